"""Statistics in pure numpy: intervals, paired tests, agreement, calibration and regression. Nothing
depends on judges or cases.

An interval by group treats groups as independent, and the items of a group as dependent. A missing
value is NaN and is left out. A statistic that is not defined, for lack of items or because all are
in one class, is NaN, never 0 or 1.
"""
