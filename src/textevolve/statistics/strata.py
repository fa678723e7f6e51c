"""The mean of items that were drawn in strata, with its interval.

A stratum counts with its share of all items, however many of them were drawn: each of its items has
the weight (items of the stratum) / (items drawn from it), the inverse of the probability of being
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from textevolve.loading import NDArray, np
from textevolve.statistics.intervals import (
    LEAST_GROUPS,
    LEVEL,
    TOO_FEW,
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
)

Strata = Sequence[tuple[str, int]]
"""For each item the name of its stratum, and the number of items of the stratum that it was drawn
from."""


def weigh_items(strata: Strata, labelled: NDArray[np.bool_]) -> Array:
    """Return the weight of each item; 0 without a label. `labelled`: whether each has one."""
    numbers = group_numbers(strata, labelled.size)
    counts = sum_groups(labelled.astype(np.float64), numbers)[numbers]
    sizes = vector([size for _, size in strata])
    return np.where(labelled, sizes / np.maximum(counts, 1.0), 0.0)


def stratified_mean(
    values: Numbers,
    strata: Strata,
    weights: Array,
    groups: Groups | None = None,
    *,
    bounds: tuple[float, float] = UNIT,
) -> Statistic:
    """Compute the mean of values over all items of the strata, from those with a weight. An item
    whose value is NaN is none that the mean is about.

    The 95 % interval is Student's, with the variance of a ratio in a stratified sample (Cochran
    1977, "Sampling Techniques", sections 5.4 and 6.11) without the correction for a finite
    population. Values of a group are not independent: their deviations are summed. The variance of
    a stratum is at least that with one more value at each bound, since a few equal values do not
    show that all others are equal.
    """
    array = vector(values)
    labelled = weights > 0
    is_meant = ~np.isnan(array[labelled])
    weights = weights[labelled]
    total = float(weights[is_meant].sum())
    if not total:
        return Statistic()
    mean = float(weights[is_meant] @ array[labelled][is_meant]) / total
    deviations = np.where(is_meant, array[labelled] - mean, 0.0)

    clusters = group_numbers(groups, labelled.size)[labelled]
    _, clusters = np.unique(clusters, return_inverse=True)
    freedom = int(clusters.max()) + 1
    if freedom < LEAST_GROUPS:
        return Statistic(mean, Interval(reason=TOO_FEW))

    numbers = group_numbers(strata, labelled.size)[labelled]
    _, numbers, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    sums = sum_groups(deviations, numbers)
    squares = sum_groups(deviations**2, numbers)
    spread = (squares - sums**2 / counts) / np.maximum(counts - 1, 1)
    low, high = bounds[0] - mean, bounds[1] - mean
    padded = squares + low**2 + high**2 - (sums + low + high) ** 2 / (counts + 2)
    excess = np.maximum(padded / (counts + 1) - spread, 0.0)

    parts = sum_groups(weights, numbers) / total
    scale = weights / total * np.sqrt(counts / np.maximum(counts - 1, 1))[numbers]
    sampled = sum_groups(scale * (deviations - (sums / counts)[numbers]), clusters)
    variance = float((sampled**2).sum() + (parts**2 * excess / counts).sum())
    half = t_quantile(LEVEL, max(1, freedom - counts.size)) * math.sqrt(variance)

    return Statistic(mean, Interval(mean - half, mean + half).clipped(*bounds))
