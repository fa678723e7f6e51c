"""Means and shares with their intervals; the arrays that all statistics here are made on.

Nothing here knows of judges or cases. A missing value is NaN and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import InputError
from textevolve.statistics.resampling import Array, draw_weights

Numbers: TypeAlias = Sequence[float] | NDArray[np.float64] | NDArray[np.bool_] | NDArray[np.int_]
Groups: TypeAlias = Sequence[Hashable]

DRAWS = 2000
TIE = 1e-9
MOST_UNDEFINED = 0.05  # share of bootstrap draws without a value above which no interval is given


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval; where there is none, both ends are NaN and `reason` says why."""

    low: float
    high: float
    reason: str = ""


_NONE = Interval(math.nan, math.nan, "no item")


@dataclass(frozen=True, slots=True)
class Statistic:
    """A figure with its interval; NaN where there is none."""

    value: float = math.nan
    interval: Interval = _NONE


def mean_present(values: Numbers) -> float:
    """The mean of what is there; NaN of nothing."""
    given = vector(values)
    given = given[~np.isnan(given)]
    return float(given.mean()) if given.size else float("nan")


def quantile(level: float) -> float:
    """z such that a standard normal variable lies within +-z with this probability."""
    return NormalDist().inv_cdf(1 - _tail(level))


def wilson_interval(successes: float, trials: float, level: float = 0.95) -> Interval:
    """Interval of a share of independent trials.

    Wilson (1927), "Probable inference, the law of succession, and statistical inference"; Brown,
    Cai and DasGupta (2001), section 3.1.1. Half a success (a tie) is allowed; it varies less than
    the formula thinks, so the interval is then somewhat too wide.
    """
    z = quantile(level)
    if not 0 <= successes <= trials:
        raise InputError(f"{successes} successes in {trials} trials cannot be")
    if trials == 0:
        return Interval(float("nan"), float("nan"), "no item")
    share = float(successes) / trials
    middle = share + z**2 / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    scale = 1 + z**2 / trials
    return Interval(max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))


def mean_interval(
    values: Numbers,
    groups: Groups | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of the mean of one figure an item; see `bootstrap_interval`."""
    given = vector(values)
    present = ~np.isnan(given)
    features = np.stack([np.where(present, given, 0.0), present.astype(np.float64)], axis=1)
    return bootstrap_interval(
        features,
        lambda totals: ratio(totals[..., 0], totals[..., 1]),
        groups,
        level=level,
        draws=draws,
        seed=seed,
    )


def bootstrap_interval(
    features: Array,
    statistic: Callable[[Array], Array],
    groups: Groups | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of sums over items, drawing whole groups with replacement.

    Efron and Tibshirani (1993), "An Introduction to the Bootstrap", section 13.3; groups as
    the unit drawn: Field and Welsh (2007), "Bootstrapping clustered data". `features`: (items, m),
    what each item adds to the sums, all 0 for a missing one. `statistic`: sums (..., m) to values
    (...).
    `groups`: a name for each item; an item with none ("" or None) is its own group.

    There is no interval where fewer than two groups have data, where all draws give one value (a
    width of 0 would claim certainty; for a share take `wilson_interval`), or where the statistic
    is undefined in more than a twentieth of the draws (fewer are left out).
    """
    if draws < 1:
        raise InputError(f"a bootstrap needs at least one draw, not {draws}")
    tail = _tail(level)
    sums = _sum_by_group(features, groups)
    if len(sums) < 2:
        return Interval(float("nan"), float("nan"), "one group only" if len(sums) else "no item")
    found = np.concatenate(
        [statistic(weights @ sums) for weights in draw_weights(len(sums), draws, seed)]
    )
    defined = found[~np.isnan(found)]
    if defined.size < draws * (1 - MOST_UNDEFINED):
        share = 1 - defined.size / draws
        return Interval(float("nan"), float("nan"), f"undefined in {share:.0%} of the draws")
    if np.ptp(defined) <= TIE:
        return Interval(float("nan"), float("nan"), "no variation between the groups")
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(low), float(high))


def group_numbers(groups: Groups | None, items: int) -> NDArray[np.intp]:
    """A number for each item's group, from 0; "" and None are groups of their own.

    Raises:
        InputError: there is not one group for each item.
    """
    if groups is None:
        return np.arange(items)
    if len(groups) != items:
        raise InputError(f"{len(groups)} groups were given for {items} items")
    numbers: dict[Hashable, int] = {}
    named = [g if g not in ("", None) else (i,) for i, g in enumerate(groups)]
    return np.array([numbers.setdefault(g, len(numbers)) for g in named], dtype=np.intp)


def sum_groups(values: Array, numbers: NDArray[np.intp]) -> Array:
    """Sums of the rows (items, ...) of each group, (groups, ...)."""
    sums = np.zeros((int(numbers.max(initial=-1)) + 1, *values.shape[1:]))
    np.add.at(sums, numbers, values)
    return sums


def ratio(part: Array, whole: Array) -> Array:
    """part / whole, NaN where the whole is 0."""
    shape = np.broadcast_shapes(np.shape(part), np.shape(whole))
    return np.divide(part, whole, out=np.full(shape, np.nan), where=np.asarray(whole) != 0)


def _tail(level: float) -> float:
    """The probability left out at each end."""
    if not 0 < level < 1:
        raise InputError(f"a confidence level lies between 0 and 1, not at {level}")
    return (1 - level) / 2


def _sum_by_group(features: Array, groups: Groups | None) -> Array:
    """Sums (groups, m) of the groups in which anything is present."""
    numbers = group_numbers(groups, len(features))
    present = (features != 0).any(axis=1)
    _, numbers = np.unique(numbers[present], return_inverse=True)
    return sum_groups(features[present], numbers)


def vector(values: Numbers) -> Array:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise InputError(f"one number an item is wanted, not the shape {vector.shape}")
    return vector


def paired(first: Numbers, second: Numbers) -> tuple[Array, Array]:
    ours, theirs = vector(first), vector(second)
    if ours.size != theirs.size:
        raise InputError(f"{ours.size} and {theirs.size} verdicts cannot be compared item by item")
    return ours, theirs


def whole_pairs(first: Numbers, second: Numbers) -> tuple[Array, Array]:
    ours, theirs = paired(first, second)
    present = ~(np.isnan(ours) | np.isnan(theirs))
    return ours[present], theirs[present]
