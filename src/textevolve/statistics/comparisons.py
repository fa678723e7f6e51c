"""Tests of the difference between two judges or variants on the same items, and the number of items
needed to find it; and of a fall of a pass rate over time.

Every test but `permutation_p` is paired: an item that either side lacks is left out. The compared
values are credits (how right a verdict is, from 0 to 1), or any other number for each item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from statistics import NormalDist
from typing import Any

from textevolve.errors import InputError
from textevolve.loading import NDArray, np
from textevolve.mappings import read_fields
from textevolve.statistics.intervals import (
    DRAWS,
    TIE,
    Array,
    Groups,
    Interval,
    Numbers,
    complete_pairs,
    group_numbers,
    mean_present,
    paired,
    quantile,
    ratio,
    sum_groups,
    vector,
)

# An exact test of a paired gain that may be evaluated several times while data comes in (looks).
#
# The test is one-sided: whether the mean of paired differences is above 0.

ONE_SIDED_ALPHA = 0.025
"""The one-sided level: that of the gains in a two-sided test at 0.05."""
LATTICE = 1000
"""The number of parts of 1 to which differences are rounded, so that the distribution of sums is a
finite table."""
FIRST_SHARE = 0.2
"""The share of the level that even the earliest of many looks may use."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class LookOutcome:
    """The result of one look at the data so far. `p`: the probability, if there is no gain, of
    acceptance at an earlier look or of a sum at least as large at this one. `accepted`: whether p
    is within the level that looks up to this one may use."""

    p: float
    accepted: bool


def sequential_test(blocks: Sequence[Numbers], spending: Sequence[float]) -> list[LookOutcome]:
    """Test whether the mean of paired differences is above 0, with a look after each block of
    units.

    `blocks`: the differences of the units that each look adds. A unit is an item, or the sum over
    items that are not independent. `spending`: for each look the level that all looks up to it may
    use together, increasing; the last is the level of the whole test. The test ends with the first
    look that accepts.

    Signs are flipped (Fisher 1935, "The Design of Experiments", chapter III): if both sides are
    equally good, a unit's difference has either sign with the same probability. For right and wrong
    answers that is McNemar's exact test. Given the sizes of the differences, the joint distribution
    of the sums at all looks is known, so that the level holds exactly for any number of units,
    without a normal approximation or random draws: patterns of signs that would have been accepted
    at an earlier look are counted as used, and the others continue. Rosenberger and Lachin (2015),
    "Randomization in Clinical Trials", section 10.10, after Lan and DeMets (1983), "Discrete
    sequential boundaries for clinical trials". The table of sums is computed by convolution, after
    Pagano and Tritchler (1983), "On obtaining permutation distributions in polynomial time".
    Stopping early for lack of success needs no correction, since it only accepts less.
    """
    steps = [np.rint(np.asarray(block, dtype=float) * LATTICE).astype(int) for block in blocks]
    unit = int(np.gcd.reduce(np.concatenate([np.zeros(1, int), *steps]))) or 1
    reach = sum(int(np.abs(block).sum()) for block in steps) // unit
    alive = np.zeros(2 * reach + 1)  # patterns that no look has accepted, by their sum
    alive[reach] = 1.0
    spent = 0.0
    total = 0
    looks: list[LookOutcome] = []

    for block, level in zip(steps, spending, strict=True):
        for size in np.abs(block[block != 0]) // unit:
            # One more unit, with a positive or negative difference of this size.
            flipped = np.zeros_like(alive)
            flipped[size:] += alive[:-size]
            flipped[:-size] += alive[size:]
            alive = flipped / 2

        total += int(block.sum()) // unit
        tails = spent + np.cumsum(alive[::-1])[::-1]  # by the sum: as much as that, or stopped
        p = min(1.0, float(tails[reach + total]))
        looks.append(LookOutcome(p, total > 0 and p <= level + _TINY))
        if looks[-1].accepted:
            break
        stop = (tails <= level + _TINY) & (np.arange(tails.size) > reach)
        spent += float(alive[stop].sum())
        alive[stop] = 0.0

    return looks


def look_levels(count: int) -> list[float]:
    """Return for each of `count` looks the level that all looks up to it may use together: a first
    share of `ONE_SIDED_ALPHA`, and of the rest the square of the share of looks."""
    shares = [FIRST_SHARE + (1 - FIRST_SHARE) * (look / count) ** 2 for look in range(1, count)]
    return [ONE_SIDED_ALPHA * share for share in (*shares, 1.0)]


def fewest_units(level: float = ONE_SIDED_ALPHA) -> int:
    """Return the smallest number of units, all with a gain, whose p-value can reach the level."""
    return math.ceil(-math.log2(level))


# A test for a fall of a pass rate that is evaluated after every case, without an end.

CASES_BETWEEN_FALSE_ALARMS = 10_000
"""The evidence of a fall from which an alarm is raised: on average at least so many cases lie
between two false alarms."""
FALL = 0.1
"""The fall of the pass rate for which the test is most sensitive."""


def add_evidence(evidence: Array | float, passed: NDArray[Any] | bool, rate: float) -> Array:
    """Return the evidence that a pass rate has fallen, after one more case; it begins with 0, and
    again with 0 after an alarm. From `CASES_BETWEEN_FALSE_ALARMS` on it is an alarm.

    `passed`: whether the case passed. `rate`: the pass rate while all is well, between 0 and 1.
    With arrays, each element is a stream of its own.

    The evidence is the statistic of Shiryaev and Roberts (Roberts 1966, "A comparison of some
    control chart procedures"): the sum, over all cases at which the fall may have begun, of the
    likelihood ratio of the results since then. While the pass rate is `rate`, the evidence minus
    the number of cases is a martingale, so that the mean number of cases before a false alarm is at
    least the threshold, however often one looks (Pollak 1985, "Optimal detection of a change in
    distribution"). With a higher rate false alarms are rarer, with a lower one they are more
    frequent.

    Raises:
        InputError: the rate is not between 0 and 1.
    """
    if not 0 < rate < 1:
        raise InputError(
            f"the expected pass rate must be above 0 and below 1, not {rate:g}; if everything"
            " passed, state a rate such as 0.99"
        )
    fallen = max(rate - FALL, rate / 2)
    ratios = np.where(passed, fallen / rate, (1 - fallen) / (1 - rate))

    return (1 + np.asarray(evidence)) * ratios


ALPHA = 0.05  # the level of tests
FLIPS = 10_000  # the number of random patterns of signs or splits
# The largest number of groups for which all patterns of signs are counted.
EXACT_UNITS = 16  # up to 2**16 patterns of signs are counted one by one
MANY_UNITS = 4096
MANY_EQUAL = 8
"""Above so many units, so many of which on average have the same difference, the units of one
difference are drawn together: the same distribution in a fraction of the time."""
_BLOCK = 4096  # sign patterns held at once,
_CELLS = 4_000_000  # and signs


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The result of a paired test. `p`: the two-sided p-value. `items`: the number of items that
    both sides have; on `first` of them the first side is better, on `second` the second. `exact`:
    whether all patterns of signs were counted, not a random sample."""

    p: float
    items: int
    first: int
    second: int
    exact: bool = True


def sign_flip_test(
    treatment: Numbers,
    control: Numbers,
    groups: Groups | None = None,
    *,
    draws: int = FLIPS,
    seed: int = 0,
) -> PairedTest:
    """Test whether the mean paired difference is 0, by a two-sided permutation test that flips
    signs.

    Fisher (1935), "The Design of Experiments", chapter III. With `groups` all differences of a
    group flip together, since its items are not independent. The test is exact for up to 16 groups
    (or items) whose differences do not cancel out; for more it draws `draws` random patterns, with
    p = (1 + b) / (1 + m) after Phipson and Smyth (2010), "Permutation p-values should never be
    zero". p is 1 if nothing differs, and NaN if there is no item.
    """
    ours, theirs, numbers = complete_pairs(treatment, control, groups)
    differences = ours - theirs
    better = int((differences > TIE).sum())
    worse = int((differences < -TIE).sum())
    sums = sum_groups(differences, numbers)
    sums = sums[np.abs(sums) > TIE]
    exact = sums.size <= EXACT_UNITS

    if not differences.size:
        p = float("nan")
    elif exact:
        p = _count_as_far(sums, sums, _all_flips(sums.size)) / (1 << sums.size)
    else:
        beyond = _count_as_far(sums, *_random_flips(sums, draws, seed))
        p = (1 + beyond) / (1 + draws)

    return PairedTest(p, differences.size, better, worse, exact)


def permutation_p(treatment: Sequence[float], control: Sequence[float]) -> float:
    """Compute the one-sided p-value of the hypothesis that the mean of `treatment` is no higher:
    the share of random splits of all values into two samples of these sizes that separate the means
    at least as far.

    For two samples without pairs, after Pitman (1937), "Significance tests which may be applied to
    samples from any populations". It is exact for at most `FLIPS` splits; for more it draws random
    ones, with p = (1 + b) / (1 + m) as in `sign_flip_test`. NaN if a sample is empty.
    """
    pooled = vector([*treatment, *control])
    if not len(treatment) or not len(control):
        return float("nan")
    reach = float(np.sum(treatment)) - TIE * max(1.0, float(np.abs(pooled).sum()))
    if math.comb(pooled.size, len(treatment)) <= FLIPS:
        sums = list(map(sum, combinations(pooled.tolist(), len(treatment))))
        return float(np.mean(np.array(sums) >= reach))
    generator = np.random.default_rng(0)
    shuffled = generator.permuted(np.tile(pooled, (FLIPS, 1)), axis=1)
    as_far = int((shuffled[:, : len(treatment)].sum(axis=1) >= reach).sum())

    return (1 + as_far) / (1 + FLIPS)


def holm(p_values: Sequence[float] | Array) -> Array:
    """Adjust p-values for their number by Holm's method: p-values that remain below alpha are
    significant at a family-wise error rate of alpha.

    Holm (1979), "A simple sequentially rejective multiple test procedure". A NaN stays NaN and does
    not count as a test.
    """
    raw = vector(p_values)
    adjusted = np.full(raw.shape, np.nan)
    order = np.argsort(raw)  # NaN goes last
    order = order[~np.isnan(raw[order])]
    steps = raw[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))

    return adjusted


def difference_interval(
    treatment: Numbers,
    control: Numbers,
    groups: Groups | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Compute an interval of the mean of treatment minus control: all values that the sign-flip
    test does not reject. It excludes 0 if that test finds a difference.

    Its ends are means of subsets: Hartigan (1969), "Using subsample values as typical values";
    above 16 groups the subsets are random. It is exact if differences are symmetric about their
    mean. With 5 groups or fewer no test reaches the level of 95 %, and there is no interval.
    """
    ours, theirs, numbers = complete_pairs(treatment, control, groups)
    pairs = np.stack([ours - theirs, np.ones(ours.size)], axis=1)
    sums = sum_groups(pairs, np.unique(numbers, return_inverse=True)[1])
    units = len(sums)
    total = sums.sum(axis=0)
    if units < 2:
        return Interval(reason="one group only" if units else "no item")
    if np.ptp(ratio(sums[:, 0], sums[:, 1])) <= TIE:
        return Interval(reason="no variation between the groups")
    exact = units <= EXACT_UNITS
    ends: list[Array] = []  # of each pattern, the means of those that flip and of those that do not
    values, patterns = (sums, _all_flips(units)) if exact else _random_flips(sums, draws, seed)
    for flips in patterns:
        flipped = flips @ values
        sides = np.stack([flipped, total - flipped])
        ends.append(ratio(sides[..., 0], sides[..., 1]))

    values = np.concatenate(ends, axis=1)
    lows = np.sort(np.where(np.isnan(values), -math.inf, values).min(axis=0))
    highs = np.sort(np.where(np.isnan(values), math.inf, values).max(axis=0))
    place = math.floor((1 - level) * (lows.size if exact else lows.size + 1) + TIE) - (not exact)
    low = float(lows[max(place, 0)])
    high = float(highs[-1 - max(place, 0)])
    if math.isinf(low):
        return Interval(reason=f"too few groups for {level:.0%}: {units}")

    return Interval(low, high)


def holm_interval(
    treatment: Numbers,
    control: Numbers,
    groups: Groups | None = None,
    *,
    p: float,
    corrected: float,
    seed: int,
) -> Interval:
    """Widen the `difference_interval` for a p-value that `holm` corrected, by as much as the
    correction is stricter, so that it includes 0 exactly if the corrected p-value is above 0.05."""
    level = 1 - ALPHA * (p / corrected if corrected > 0 else 1.0)
    interval = difference_interval(treatment, control, groups, level=level, draws=FLIPS, seed=seed)
    low = interval.low
    high = interval.high
    if interval.reason:
        return interval
    if corrected > ALPHA:  # of random patterns the two are not always the same ones
        return Interval(min(low, 0.0), max(high, 0.0))

    return Interval(max(low, 0.0), high) if low + high > 0 else Interval(low, min(high, 0.0))


def items_needed(
    treatment: Numbers,
    control: Numbers,
    groups: Groups | None = None,
    *,
    size: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    tests: int = 1,
) -> float:
    """Compute how many items a two-sided test needs to find a difference of this size. With
    `groups`, which alone are independent, it is as many as make up the groups that it needs.

    `size`: by default the observed difference; NaN if there is none. `tests`: the number of tests
    that `holm` corrects for; the strictest level is `alpha` divided by it. The result is never
    below the number of items with differences in the same direction that an exact test needs: 6 at
    0.05.

    Connor (1987), "Sample size for testing differences in proportions for the paired-sample
    design", p. 209, after Miettinen (1968): n = (z_a sqrt(d2) + z_b sqrt(d2 - d^2))^2 / d^2, where
    d is the mean difference and d2 the mean of its square, which for right or wrong verdicts is the
    share of items on which the judges differ.
    """
    ours, theirs, numbers = complete_pairs(treatment, control, groups)
    sums = sum_groups(ours - theirs, np.unique(numbers, return_inverse=True)[1])
    per_group = ours.size / max(sums.size, 1)
    difference = sums / max(per_group, 1)
    mean = mean_present(difference) if size is None else size
    if not difference.size or abs(mean) <= TIE:
        return float("nan")
    square = float((difference**2).mean())
    differing = float((np.abs(difference) > TIE).mean())
    if size is not None:  # so large a difference takes at least so many items that differ
        square = max(square, abs(size))
        differing = max(differing, abs(size))
    spread = math.sqrt(max(0.0, square - mean**2))
    z = quantile(1 - alpha / tests) * math.sqrt(square) + NormalDist().inv_cdf(power) * spread
    reach = fewest_units(alpha / tests / 2) / differing

    return float(math.ceil(max(z**2 / mean**2, reach) * per_group - TIE))


def _all_flips(units: int) -> Iterator[NDArray[Any]]:
    """Yield every pattern of which of `units` differences flip, in blocks (patterns, units)."""
    bits = np.arange(units)
    for start in range(0, 1 << units, _BLOCK):
        patterns = np.arange(start, min(start + _BLOCK, 1 << units))
        yield (patterns[:, None] >> bits) & 1


def _random_flips(sums: Array, draws: int, seed: int) -> tuple[Array, Iterator[NDArray[Any]]]:
    """Return values, and random patterns of how many of each flip, in blocks (patterns, values).
    The values are the sums, each of which flips or does not; of many sums that are often equal, as
    those of right and wrong answers are, they are the distinct ones, of which a binomial number
    flips."""
    generator = np.random.default_rng(seed)
    distinct, counts = np.unique(sums, axis=0, return_counts=True)
    joined = len(sums) > max(MANY_UNITS, MANY_EQUAL * len(distinct))
    values = distinct if joined else sums
    block = max(1, min(_BLOCK, _CELLS // len(values)))

    def draw() -> Iterator[NDArray[Any]]:
        for start in range(0, draws, block):
            size = (min(block, draws - start), len(values))
            yield generator.binomial(counts, 0.5, size) if joined else generator.random(size) < 0.5

    return values, draw()


def _count_as_far(sums: Array, values: Array, patterns: Iterator[NDArray[Any]]) -> int:
    """Count the patterns under which the sum is at least as far from 0 as the observed sum. In each
    pattern so many of each of the values flip."""
    total = float(sums.sum())
    reach = abs(total) - TIE * float(np.abs(sums).sum())
    return sum(int((np.abs(total - 2 * (flips @ values)) >= reach).sum()) for flips in patterns)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The comparison of two lists of scores over the same `items`.

    Attributes:
        groups: The number of independent groups of items; 0 if all items are independent.
        first: The mean of the first list; `second`: the mean of the second.
        low: The lower end of the `holm_interval` of the first mean minus the second, and `high`:
            the upper end; None without an interval.
        p: The p-value of a sign-flip test, corrected if it is one of several.
        needed: The number of items with which a test would find such a difference with 80 % power;
            None without a difference.
    """

    items: int
    first: float
    second: float
    low: float | None
    high: float | None
    p: float
    needed: int | None
    groups: int = 0

    @property
    def difference(self) -> float:
        return self.first - self.second

    @property
    def data(self) -> dict[str, Any]:
        """The comparison as JSON-ready data; the number of groups is left out if all items are
        independent."""
        names = [field.name for field in fields(self)]
        if not self.groups:
            names.remove("groups")
        return {**read_fields(self, *names), "difference": self.difference}


def compare_pairs(
    pairs: Sequence[tuple[Numbers, Numbers]],
    groups: Sequence[Groups | None] | None = None,
    *,
    seed: int = 0,
) -> list[PairedDifference]:
    """Compare several pairs of score lists, with p-values corrected for their number (`holm`).
    `groups`: for each pair the groups of its items."""
    groups = [None] * len(pairs) if groups is None else groups
    # The names are numbered once for all that is computed of a pair.
    grouped_pairs = [
        (*pair, group_numbers(names, len(pair[0])))
        for pair, names in zip(pairs, groups, strict=True)
    ]
    p_values = [sign_flip_test(*pair, seed=seed).p for pair in grouped_pairs]
    compared: list[PairedDifference] = []

    for pair, p, corrected in zip(grouped_pairs, p_values, holm(p_values), strict=True):
        ours, theirs = paired(*pair[:2])
        interval = holm_interval(*pair, p=p, corrected=float(corrected), seed=seed)
        needed = items_needed(*pair, tests=len(pairs))
        independent = np.unique(pair[2]).size
        # JSON has no infinity, so an end without bound is None.
        low, high = (end if math.isfinite(end) else None for end in (interval.low, interval.high))
        compared.append(
            PairedDifference(
                len(ours),
                float(ours.mean()),
                float(theirs.mean()),
                low,
                high,
                float(corrected),
                math.ceil(needed) if math.isfinite(needed) else None,
                0 if independent == len(ours) else independent,
            )
        )

    return compared
