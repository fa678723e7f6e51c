"""Intervals, paired tests and agreement: pure numpy, for whatever room needs them.

A value that is missing is NaN and is left out; a statistic that does not exist (no item, one class
only) is NaN, never a 0 or a 1 in its stead.
"""
