"""Means and shares of outputs, where a row may have several: rows are independent, outputs of the
same row are not.

The formulas are closed, so that ten thousand rows take no time; bootstrap intervals are in
`intervals.py`.
"""

from __future__ import annotations

import math

import numpy as np

from textevolve.statistics.intervals import (
    TIE,
    UNIT,
    Array,
    Groups,
    Interval,
    Numbers,
    Statistic,
    group_numbers,
    sum_groups,
    t_quantile,
    vector,
    wilson_interval,
)


def cluster_mean(
    values: Numbers, groups: Groups | None = None, *, level: float = 0.95
) -> Statistic:
    """Compute the mean with its t interval; groups are independent, values within a group are not.

    Liang and Zeger (1986), "Longitudinal data analysis using generalized linear models": the
    variance is computed from each group's sum of residuals, times G / (G - 1), with G - 1 degrees
    of freedom; without groups it is Student's interval. NaN counts as missing. There is no interval
    if fewer than two groups have data, or if nothing varies.
    """
    array = vector(values)
    present = ~np.isnan(array)
    numbers = group_numbers(groups, array.size)[present]
    array = array[present]
    if not array.size:
        return Statistic()
    mean = float(array.mean())
    sums = sum_groups(array - mean, np.unique(numbers, return_inverse=True)[1])
    if sums.size < 2:
        return Statistic(mean, Interval(reason="one group only"))
    error = _error(sums, array.size)
    if error <= TIE:
        return Statistic(mean, Interval(reason="no variation between the groups"))
    half = t_quantile(level, sums.size - 1) * error
    return Statistic(mean, Interval(mean - half, mean + half))


def clip_interval(figure: Statistic) -> Statistic:
    """Clip the ends of an interval of scores to 0 and 1."""
    return Statistic(figure.value, figure.interval.clipped(*UNIT))


def _error(sums: Array, items: int) -> float:
    return math.sqrt(sums.size / (sums.size - 1) * float((sums**2).sum())) / items


def cluster_share(
    successes: Numbers, groups: Groups | None = None, *, level: float = 0.95
) -> Statistic:
    """Compute the share of true values with Wilson's interval; groups are independent, values
    within a group are not.

    The number of trials in the formula is the effective one: the number of values divided by the
    design effect, corrected for the degrees of freedom as by Korn and Graubard (1998), "Confidence
    intervals for proportions with small expected number of positive counts estimated from survey
    data"; it is used in Wilson's formula as by Franco et al. (2019), "Comparative study of
    confidence intervals for proportions in complex sample surveys". If each value is its own group,
    it is Wilson's interval itself.
    """
    array = vector(successes)
    names, places = np.unique(group_numbers(groups, array.size), return_inverse=True)
    trials, clusters = array.size, names.size
    if not trials:
        return Statistic()
    share = float(array.mean())
    if clusters < 2:
        return Statistic(share, Interval(reason="one group only"))
    effective = float(clusters)
    if 0 < share < 1:
        sums = sum_groups(array - share, places)
        alone = share * (1 - share) / (trials - 1)
        design = _error(sums, trials) ** 2 / alone
        effective = min(float(trials), max(float(clusters), trials / max(design, TIE)))
    few = t_quantile(level, trials - 1) / t_quantile(level, clusters - 1)
    effective *= few**2
    return Statistic(share, wilson_interval(share * effective, effective, level))
