"""Means and shares with their intervals, and the arrays that all other statistics here use.

A missing value is NaN and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

from textevolve.errors import InputError
from textevolve.loading import NDArray, np

# The resamples of groups on which all resampling intervals are based.

Array: TypeAlias = "NDArray[np.float64]"

_CELLS = 1_000_000  # random numbers held at once


FEW = 30
"""The number of groups from which a bootstrap is used. Its percentiles are too narrow for fewer
groups, so a jackknife is used for those."""


def draw_weights(groups: int, draws: int, seed: int) -> Iterator[Array]:
    """Yield how often each group occurs in each resample, shape (resamples, groups), in blocks that
    fit into memory.

    For `FEW` groups or more, the resamples are random draws with replacement (bootstrap). For fewer
    groups nothing is drawn: one resample has each group once, and each other one leaves out one
    group (jackknife). `intervals.resampling_interval` computes an interval from either form.
    """
    if groups < FEW:
        yield np.ones((groups + 1, groups)) - np.eye(groups + 1, groups, -1)
        return
    generator = np.random.default_rng(seed)
    block = max(1, _CELLS // groups)

    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = generator.integers(0, groups, (size, groups))
        cells = drawn + groups * np.arange(size)[:, None]
        counts = np.bincount(cells.ravel(), minlength=size * groups)
        yield counts.reshape(size, groups).astype(np.float64)


# Numbers or truth values, one for each item; NaN if missing.
Numbers: TypeAlias = "Sequence[float] | NDArray[np.float64] | NDArray[np.bool_] | NDArray[np.int_]"
# The name of each item's group; "" or None for a group of its own.
Groups: TypeAlias = "Sequence[Hashable] | NDArray[np.intp]"

LEVEL = 0.95  # the level of intervals
_TAIL = (1 - LEVEL) / 2  # the probability that an interval leaves out at each end
DRAWS = 2000  # the default for the number of resamples of a bootstrap
TIE = 1e-9  # the difference up to which two numbers count as equal
UNIT = (0.0, 1.0)  # the bounds of scores and shares
MOST_UNDEFINED = 0.05  # share of resamples without a value above which no interval is given
_GREATEST_BET = 0.999  # the share of the capital that one item may cost
_SERIES_UP_TO = 200


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval. If it cannot be computed, both ends are NaN, and `reason` has the
    reason."""

    low: float = math.nan
    high: float = math.nan
    reason: str = ""

    def clipped(self, low: float, high: float) -> Interval:
        """Return the part of the interval within bounds; none if it holds all that is possible, as
        that of a few groups may, since it would say nothing."""
        if self.low <= low and self.high >= high:
            return Interval(reason=TOO_FEW)
        ends: list[float] = np.clip([self.low, self.high], low, high).tolist()
        return Interval(*ends, reason=self.reason)


LEAST_GROUPS = 3
"""The least number of groups for an interval by Student's t. From two groups t is 12.7, so that
such an interval holds almost any value."""
TOO_FEW = "too few groups for an interval"
_NONE = Interval(reason="no item")


@dataclass(frozen=True, slots=True)
class Statistic:
    """A figure with its interval; the figure is NaN if it is missing."""

    value: float = math.nan
    interval: Interval = _NONE


def mean_present(values: Numbers) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    present = vector(values)
    present = present[~np.isnan(present)]
    return float(present.mean()) if present.size else float("nan")


def quantile(level: float) -> float:
    """Return z such that a standard normal variable lies within +-z with the probability
    `level`."""
    return NormalDist().inv_cdf(1 - (1 - level) / 2)


@lru_cache(maxsize=1024)
def t_quantile(level: float, freedom: int) -> float:
    """Return t such that a Student variable with `freedom` degrees of freedom lies within +-t with
    the probability `level`, to about nine digits.

    Abramowitz and Stegun (1964), 26.7.3 and 26.7.4 for the probability, solved by halving; above
    200 degrees of freedom the expansion 26.7.5.
    """
    if freedom > _SERIES_UP_TO:
        z = NormalDist().inv_cdf((1 + level) / 2)
        terms = (
            z,
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return sum(term / freedom**power for power, term in enumerate(terms))

    low = 0.0
    high = math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)

    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Compute the probability that |t| is at most sqrt(freedom) * tan(angle)."""
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(freedom // 2):
        total += term
        term *= cosine**2 * ((2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2))
    share = math.sin(angle) * total

    return 2 / math.pi * (angle + share) if odd else share


def wilson_interval(successes: float, trials: float) -> Interval:
    """Compute Wilson's 95 % interval of a share of independent trials.

    Wilson (1927), "Probable inference, the law of succession, and statistical inference"; Brown,
    Cai and DasGupta (2001), section 3.1.1. Half a success (a tie) is allowed; it varies less than
    the formula assumes, so that the interval is then somewhat too wide.
    """
    z = quantile(LEVEL)
    if not 0 <= successes <= trials:
        raise InputError(f"{successes} successes in {trials} trials are impossible")
    if trials == 0:
        return _NONE
    share = float(successes) / trials
    middle = share + z**2 / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    scale = 1 + z**2 / trials
    # Rounding would leave 1e-17 at the ends, which are exact.
    low = 0.0 if successes == 0 else (middle - half) / scale
    high = 1.0 if successes == trials else (middle + half) / scale

    return Interval(max(0.0, low), min(1.0, high))


def mean_interval(
    values: Numbers,
    groups: Groups | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """Compute a 95 % interval of the mean of one value per item, by `bootstrap_interval`. With the
    bounds `UNIT` (0 to 1) and at least two groups it is instead Wilson's interval, with groups as
    trials, if all values are equal, or if there are fewer than 30 groups and each value is 0, 1 or
    one half."""
    array = vector(values)
    present = ~np.isnan(array)
    features = np.stack([np.where(present, array, 0.0), present.astype(np.float64)], axis=1)
    trials = len(_sum_by_group(features, groups))
    shares = trials < FEW and np.isin(array[present], (0.0, 0.5, 1.0)).all()
    if bounds == UNIT and trials > 1 and (shares or np.ptp(array[present]) <= TIE):
        return wilson_interval(mean_present(array) * trials, trials)

    return bootstrap_interval(
        features,
        lambda totals: ratio(totals[..., 0], totals[..., 1]),
        groups,
        draws=draws,
        seed=seed,
        bounds=bounds,
    )


def betting_interval(
    values: Numbers,
    bounds: tuple[float, float] = UNIT,
    *,
    seed: int = 0,
) -> Interval:
    """Compute an interval of the mean of independent values within `bounds` that holds at the level
    of 95 % for any number of values and any distribution.

    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting", JRSS
    B 86: the hedged capital interval with predictable bets for a fixed number of items. A mean is
    rejected if bets on larger (or smaller) values would have multiplied a stake by 40,
    which by Ville's inequality is that improbable for the true mean. Since bets depend on the
    order, values are shuffled by the seed first.

    Raises:
        InputError: a value is outside the bounds.
    """
    low, high = bounds
    part = (vector(values) - low) / (high - low)
    if not part.size:
        return _NONE
    if not (part.min() >= -TIE and part.max() <= 1 + TIE):
        raise InputError(f"all figures must be from {low:g} to {high:g}, and some are outside")
    part = np.random.default_rng(seed).permutation(np.clip(part, 0.0, 1.0))
    stake = -math.log(_TAIL)
    ends = _bet_on_more(part, stake), 1 - _bet_on_more(1 - part, stake)

    return Interval(low + (high - low) * ends[0], low + (high - low) * ends[1])


def _bet_on_more(values: Array, stake: float) -> float:
    """Return the lowest mean in [0, 1] that bets on larger values do not reject."""
    # The size of each bet, from the spread of the values before it.
    places = np.arange(2, values.size + 2)
    middles = (0.5 + np.cumsum(values)) / places
    spreads = (0.25 + np.cumsum((values - middles) ** 2)) / places
    bets = np.sqrt(2 * stake / (values.size * np.append(0.25, spreads[:-1])))
    low = 0.0
    high = 1.0

    for _ in range(40):
        mean = (low + high) / 2
        gains = np.minimum(bets, _GREATEST_BET / mean) * (values - mean)
        refuted = np.log1p(gains).cumsum().max() >= stake  # the largest capital at any time
        low, high = (mean, high) if refuted else (low, mean)

    return low


def bootstrap_interval(
    features: Array,
    statistic: Callable[[Array], Array],
    groups: Groups | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """Compute a 95 % interval of a statistic of sums over items, by resampling whole groups.

    From 30 groups it consists of percentiles of draws with replacement: Efron and Tibshirani
    (1993), "An Introduction to the Bootstrap", section 13.3; groups as the drawn unit: Field and
    Welsh (2007), "Bootstrapping clustered data". With fewer groups these would be too narrow, and
    the jackknife with Student's t is used, clipped to `bounds`: Tukey (1958), "Bias and confidence
    in not quite large samples"; for a mean it is Student's interval.

    `features`: the contributions of each item to the sums, shape (items, m), all 0 for a missing
    item. `statistic`: a function from sums (..., m) to values (...). `groups`: a name for each
    item; an item with "" or None is a group of its own.

    There is no interval if fewer than three groups have data, if all resamples have the same value
    (a width of 0 would claim certainty; for shares use `wilson_interval`), or if the statistic is
    undefined in more than a twentieth of the resamples (fewer are left out).
    """
    sums = _sum_by_group(features, groups)
    if len(sums) < 2:
        return Interval(reason="one group only" if len(sums) else "no item")
    values = [statistic(weights @ sums) for weights in draw_weights(len(sums), draws, seed)]

    return resampling_interval(np.concatenate(values)).clipped(*bounds)


def resampling_interval(values: Array) -> Interval:
    """Compute a 95 % interval from the values of a statistic under the weights of `draw_weights`:
    percentiles of the values or, with fewer than 30 groups, the jackknife, for which the first
    value is that of the whole sample."""
    defined = values[~np.isnan(values)]
    if defined.size < values.size * (1 - MOST_UNDEFINED) or np.isnan(values[0]):
        share = 1 - defined.size / values.size
        return Interval(reason=f"undefined in {share:.0%} of the draws")
    if np.ptp(defined) <= TIE:
        return Interval(reason="no variation between the groups")
    if values.size <= LEAST_GROUPS:  # the first value is that of the whole sample
        return Interval(reason=TOO_FEW)
    if values.size > FEW:
        low, high = np.quantile(defined, [_TAIL, 1 - _TAIL])
        return Interval(float(low), float(high))
    resampled = defined[1:]
    error = math.sqrt((resampled.size - 1) * float(resampled.var()))
    half = t_quantile(LEVEL, resampled.size - 1) * error

    return Interval(float(values[0]) - half, float(values[0]) + half)


def group_numbers(groups: Groups | None, items: int) -> NDArray[np.intp]:
    """Return a group number, from 0, for each item; items with "" or None are groups of their own,
    and numbers stay as they are.

    Raises:
        InputError: the numbers of groups and items differ.
    """
    if groups is None:
        return np.arange(items)
    if len(groups) != items:
        raise InputError(f"{len(groups)} groups were given for {items} items")
    if isinstance(groups, np.ndarray):
        return groups
    numbers: dict[Hashable, int] = {}
    labels = [g if g not in ("", None) else (i,) for i, g in enumerate(groups)]

    return np.array([numbers.setdefault(g, len(numbers)) for g in labels], dtype=np.intp)


def sum_groups(values: Array, numbers: NDArray[np.intp]) -> Array:
    """Sum the rows (items, ...) of each group, shape (groups, ...)."""
    sums = np.zeros((int(numbers.max(initial=-1)) + 1, *values.shape[1:]))
    np.add.at(sums, numbers, values)
    return sums


def ratio(part: Array, total: Array) -> Array:
    """Return part / total, NaN if the total is 0."""
    shape = np.broadcast_shapes(np.shape(part), np.shape(total))
    return np.divide(part, total, out=np.full(shape, np.nan), where=np.asarray(total) != 0)


def _sum_by_group(features: Array, groups: Groups | None) -> Array:
    """Sum the features of each group, shape (groups, m), for groups that have any data."""
    numbers = group_numbers(groups, len(features))
    present = (features != 0).any(axis=1)
    _, numbers = np.unique(numbers[present], return_inverse=True)
    return sum_groups(features[present], numbers)


def vector(values: Numbers) -> Array:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise InputError(
            f"one number for each item is needed, not an array of the shape {vector.shape}"
        )

    return vector


def paired(values: Numbers, references: Numbers) -> tuple[Array, Array]:
    ours = vector(values)
    theirs = vector(references)
    if ours.size != theirs.size:
        raise InputError(f"{ours.size} and {theirs.size} verdicts cannot be compared item by item")
    return ours, theirs


def complete_pairs(
    values: Numbers, references: Numbers, groups: Groups | None = None
) -> tuple[Array, Array, NDArray[np.intp]]:
    """Return the numbers of the items that have both, and the group number of each."""
    ours, theirs = paired(values, references)
    present = ~np.isnan(ours + theirs)
    return ours[present], theirs[present], group_numbers(groups, present.size)[present]


# Means and shares of outputs, where a row may have several: rows are independent, outputs of the
# same row are not.
#
# The formulas are closed, so that ten thousand rows take no time; bootstrap intervals are in
# `intervals.py`.


def cluster_mean(values: Numbers, groups: Groups | None = None) -> Statistic:
    """Compute the mean with its t interval; groups are independent, values within a group are not.

    Liang and Zeger (1986), "Longitudinal data analysis using generalized linear models": the
    variance is computed from each group's sum of residuals, times G / (G - 1), with G - 1 degrees
    of freedom; without groups it is Student's interval. NaN counts as missing. There is no interval
    if fewer than three groups have data, or if nothing varies.
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
    if sums.size < LEAST_GROUPS:
        return Statistic(mean, Interval(reason=TOO_FEW))
    half = t_quantile(LEVEL, sums.size - 1) * error

    return Statistic(mean, Interval(mean - half, mean + half))


def _error(sums: Array, items: int) -> float:
    return math.sqrt(sums.size / (sums.size - 1) * float((sums**2).sum())) / items


def cluster_share(successes: Numbers, groups: Groups | None = None) -> Statistic:
    """Compute the share of true values with Wilson's interval; groups are independent, values
    within a group are not.

    The number of trials in the formula is the effective one: the number of values divided by the
    design effect, corrected for the degrees of freedom as by Korn and Graubard (1998), "Confidence
    intervals for proportions with small expected number of positive counts estimated from survey
    data"; it is used in Wilson's formula as by Franco et al. (2019), "Comparative study of
    confidence intervals for proportions in complex sample surveys". If each value is its own group,
    it is Wilson's interval itself; otherwise there is none for fewer than three groups.
    """
    array = vector(successes)
    names, places = np.unique(group_numbers(groups, array.size), return_inverse=True)
    trials = array.size
    clusters = names.size
    if not trials:
        return Statistic()
    share = float(array.mean())
    if clusters < 2:
        return Statistic(share, Interval(reason="one group only"))
    if clusters < min(LEAST_GROUPS, trials):
        return Statistic(share, Interval(reason=TOO_FEW))
    effective = float(clusters)

    if 0 < share < 1:
        sums = sum_groups(array - share, places)
        alone = share * (1 - share) / (trials - 1)
        design = _error(sums, trials) ** 2 / alone
        effective = min(float(trials), max(float(clusters), trials / max(design, TIE)))

    few = t_quantile(LEVEL, trials - 1) / t_quantile(LEVEL, clusters - 1)
    effective *= few**2

    return Statistic(share, wilson_interval(share * effective, effective))
