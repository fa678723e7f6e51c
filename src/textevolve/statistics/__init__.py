"""Statistics in pure numpy: intervals, paired tests, agreement, calibration and regression. Nothing
depends on judges or cases.

A missing value is NaN and is left out. A statistic that is not defined, for lack of items or
because all are in one class, is NaN, never 0 or 1.
"""
