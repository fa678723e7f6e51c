"""The mean of items that were drawn in strata, with its interval.

A stratum counts with its share of all items, however many of them were drawn: each of its items has
the weight (items of the stratum) / (items drawn from it), the inverse of the probability of being
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from textevolve.statistics.intervals import (
    LEAST_GROUPS,
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


def stratum_weights(values: Numbers, strata: Sequence[str], sizes: Numbers) -> Array:
    """Return the weight of each value: the number of items of its stratum by the number of its
    values that are not NaN; 0 for NaN. `sizes`: for each value the size of its stratum."""
    present = ~np.isnan(vector(values))
    numbers = group_numbers(strata, present.size)
    counts = sum_groups(present.astype(np.float64), numbers)[numbers]
    return np.where(present, vector(sizes) / np.maximum(counts, 1.0), 0.0)


def stratified_mean(
    values: Numbers,
    strata: Sequence[str],
    sizes: Numbers,
    groups: Groups | None = None,
    *,
    bounds: tuple[float, float] = UNIT,
    level: float = 0.95,
) -> Statistic:
    """Compute the mean over all items of the strata, from those that were drawn.

    The interval is Student's, with the variance of a stratified sample (Cochran 1977, "Sampling
    Techniques", section 5.4) without the correction for a finite population. Values of a group are
    not independent: their deviations are summed. The variance of a stratum is at least that with
    one more value at each bound, since a few equal values do not show that all others are equal.

    `strata`, `sizes`: for each value the name of its stratum, and the number of items in it.
    """
    array = vector(values)
    weights = stratum_weights(array, strata, sizes)
    present = weights > 0
    if not present.any():
        return Statistic()

    array = array[present]
    numbers = group_numbers(strata, present.size)[present]
    clusters = np.unique(group_numbers(groups, present.size)[present], return_inverse=True)[1]
    weights = weights[present] / weights.sum()
    mean = float(weights @ array)
    if clusters.max() + 1 < LEAST_GROUPS:
        return Statistic(mean, Interval(reason=TOO_FEW))

    _, numbers, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    shares = sum_groups(weights, numbers)
    sums = sum_groups(array, numbers)
    squares = sum_groups(array**2, numbers)
    spread = (squares - sums**2 / counts) / np.maximum(counts - 1, 1)
    # The same with a value at each bound added.
    low, high = bounds
    padded = squares + low**2 + high**2 - (sums + low + high) ** 2 / (counts + 2)
    excess = np.maximum(padded / (counts + 1) - spread, 0.0)

    scale = np.sqrt(counts / np.maximum(counts - 1, 1))
    deviations = (weights * (array - (sums / counts)[numbers])) * scale[numbers]
    variance = float((sum_groups(deviations, clusters) ** 2).sum())
    variance += float((shares**2 * excess / counts).sum())

    freedom = max(1, int(clusters.max()) + 1 - counts.size)
    half = t_quantile(level, freedom) * math.sqrt(variance)

    return Statistic(mean, Interval(mean - half, mean + half).clipped(*bounds))
