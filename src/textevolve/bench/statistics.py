"""How well verdicts agree with people's and with each other, and how wide a figure's interval is.

Pure numpy on arrays of numbers: no items, no judges, no I/O. Tests between two judges are in
`comparisons`, rankings in `rankings`. A missing verdict is NaN and is left out; a figure that does
not exist (no item, one class only) is NaN, never a 0 or a 1 in its stead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import InputError
from textevolve.resampling import draw_weights

Array: TypeAlias = NDArray[np.float64]
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
class Figure:
    """A figure with its interval; NaN where there is none."""

    value: float = math.nan
    interval: Interval = _NONE


@dataclass(frozen=True, slots=True)
class Prevalence:
    """Human verdicts on `items` pairs: the shares won by the first text, by the second, and tied.

    A judge that agrees no more often than `always_first` or `majority` has shown nothing.
    """

    items: int
    first: float
    second: float
    tied: float

    @property
    def always_first(self) -> float:
        """Accuracy of the answer "the first" to every pair."""
        return self.first + self.tied / 2

    @property
    def majority(self) -> float:
        """Accuracy of the better of the two constant answers."""
        return max(self.always_first, self.second + self.tied / 2)


def pair_credits(judged: Numbers, human: Numbers) -> Array:
    """Credit of each verdict on a pair, from the margins (first minus second) of judge and people.

    1 where both have the same winner or both tie, 0.5 where one of them ties, 0 where the winners
    differ, NaN where either is missing.
    """
    ours, theirs = side_by_side(judged, human)
    signs = [np.where(np.abs(m) <= TIE, 0.0, np.sign(m)) for m in (ours, theirs)]
    return np.asarray(1 - np.abs(signs[0] - signs[1]) / 2)


def top_credit(scores: Numbers, human: Numbers) -> float:
    """Credit in [0, 1] of one item with any number of candidates: shared winners by most winners.

    With W the judge's candidates of highest score and H the people's: |W & H| / max(|W|, |H|),
    which for a pair is `pair_credits`. NaN where a score is missing.
    """
    ours, theirs = side_by_side(scores, human)
    if not ours.size or np.isnan(ours).any() or np.isnan(theirs).any():
        return float("nan")
    best, wanted = (s >= s.max() - TIE for s in (ours, theirs))
    return float((best & wanted).sum() / max(best.sum(), wanted.sum()))


def mean_present(values: Numbers) -> float:
    """The mean of what is there; NaN of nothing."""
    given = vector(values)
    given = given[~np.isnan(given)]
    return float(given.mean()) if given.size else float("nan")


def shares(labels: Numbers) -> dict[float, float]:
    """Share of each class among the labels present, in the order of the classes; {} of none."""
    given = vector(labels)
    classes, counts = np.unique(given[~np.isnan(given)], return_counts=True)
    total = int(counts.sum())
    return {float(c): int(n) / total for c, n in zip(classes, counts, strict=True)}


def prevalence(human: Numbers) -> Prevalence:
    """How people's verdicts on pairs are spread, from their margins (first minus second)."""
    margins = vector(human)
    margins = margins[~np.isnan(margins)]
    won = [margins > TIE, margins < -TIE, np.abs(margins) <= TIE]
    return Prevalence(int(margins.size), *(mean_present(w) for w in won))


def cohen_kappa(first: Numbers, second: Numbers) -> float:
    """Agreement of two raters beyond what their own class shares give: (po - pe) / (1 - pe).

    Cohen (1960), "A coefficient of agreement for nominal scales", eq. 1, with
    pe = sum over classes of the product of both raters' shares. NaN where pe is 1, that is where
    both use one and the same class throughout.
    """
    return float(kappa_of(agreement_table(first, second)))


def gwet_ac1(first: Numbers, second: Numbers, classes: int | None = None) -> float:
    """Agreement of two raters beyond chance that does not collapse where one class dominates.

    Gwet (2008), "Computing inter-rater reliability and its variance in the presence of high
    agreement": (pa - pe) / (1 - pe) with pe = sum of p(1 - p) / (q - 1), p a class's share
    averaged over both raters. `classes`: q, how many classes could be named; those seen
    unless given. NaN where q is 1.
    """
    return float(ac1_of(agreement_table(first, second), classes))


def agreement_table(first: Numbers, second: Numbers) -> Array:
    """Counts (q, q) of each class of the first rater with each of the second, over whole pairs."""
    ours, theirs = whole_pairs(first, second)
    classes, places = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    table = np.zeros((classes.size, classes.size))
    np.add.at(table, (places[: ours.size], places[ours.size :]), 1.0)
    return table


def kappa_of(tables: Array) -> Array:
    """Cohen's kappa of each table (..., q, q), shape (...)."""
    total = tables.sum(axis=(-2, -1))
    agreed = ratio(np.trace(tables, axis1=-2, axis2=-1), total)
    chance = ratio((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1), total**2)
    return _beyond(agreed, chance)


def ac1_of(tables: Array, classes: int | None = None) -> Array:
    """Gwet's AC1 of each table (..., q, q), shape (...); `classes` as in `gwet_ac1`.

    Raises:
        InputError: the table has more classes than there could be.
    """
    total = tables.sum(axis=(-2, -1))
    possible = classes if classes is not None else tables.shape[-1]
    if possible < tables.shape[-1]:
        raise InputError(f"{tables.shape[-1]} classes were named, more than the {possible} allowed")
    agreed = ratio(np.trace(tables, axis1=-2, axis2=-1), total)
    if possible < 2:
        return np.full_like(agreed, np.nan)
    share = ratio(tables.sum(axis=-1) + tables.sum(axis=-2), 2 * total[..., None])
    return _beyond(agreed, (share * (1 - share)).sum(axis=-1) / (possible - 1))


def krippendorff_alpha(
    ratings: Sequence[Numbers] | Array, level: Literal["nominal", "interval"] = "nominal"
) -> float:
    """Agreement of two or more raters, 1 - observed / expected disagreement; shape (raters, items).

    Krippendorff (2019), "Content Analysis", 4th ed., chapter 12, with missing ratings: an item
    counts by the pairs of ratings it has, so one with a single rating does not count. The
    difference of two ratings is 0 or 1 (nominal) or their distance squared (interval). NaN where
    all ratings are equal or no item has two.
    """
    table = np.asarray(ratings, dtype=np.float64)
    if table.ndim != 2:
        raise InputError(f"ratings have the shape (raters, items), not {table.shape}")
    present = ~np.isnan(table)
    table = table[:, present.sum(axis=0) >= 2]
    present = ~np.isnan(table)
    count = present.sum(axis=0)
    total = int(count.sum())
    if not total:
        return float("nan")
    if level == "nominal":
        classes = np.unique(table[present])
        votes = (table[None] == classes[:, None, None]).sum(axis=1)  # (classes, items)
        observed = ((count**2 - (votes**2).sum(axis=0)) / (count - 1)).sum()
        expected = (total**2 - (votes.sum(axis=1) ** 2).sum()) / (total - 1)
    else:
        values = np.where(present, table, 0.0)
        centred = np.where(present, table - values.sum(axis=0) / count, 0.0)
        observed = (2 * count / (count - 1) * (centred**2).sum(axis=0)).sum()
        expected = 2 * total / (total - 1) * ((table[present] - table[present].mean()) ** 2).sum()
    return float(1 - observed / expected) if expected > 0 else float("nan")


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


def agreement_interval(
    first: Numbers,
    second: Numbers,
    measure: Callable[[Array], Array] = kappa_of,
    groups: Groups | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of `kappa_of`, `ac1_of` or another function of tables (..., q, q)."""
    ours, theirs = side_by_side(first, second)
    present = ~(np.isnan(ours) | np.isnan(theirs))
    classes = np.unique(np.concatenate([ours[present], theirs[present]]))
    cells = (ours[:, None, None] == classes[:, None]) & (theirs[:, None, None] == classes)
    return bootstrap_interval(
        cells.reshape(ours.size, -1).astype(np.float64),
        lambda totals: measure(totals.reshape(*totals.shape[:-1], classes.size, classes.size)),
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


def _beyond(agreed: Array, chance: Array) -> Array:
    room = 1 - chance
    return ratio(agreed - chance, np.where(room > TIE, room, 0.0))


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


def side_by_side(first: Numbers, second: Numbers) -> tuple[Array, Array]:
    ours, theirs = vector(first), vector(second)
    if ours.size != theirs.size:
        raise InputError(f"{ours.size} and {theirs.size} verdicts cannot be compared item by item")
    return ours, theirs


def whole_pairs(first: Numbers, second: Numbers) -> tuple[Array, Array]:
    ours, theirs = side_by_side(first, second)
    present = ~(np.isnan(ours) | np.isnan(theirs))
    return ours[present], theirs[present]
