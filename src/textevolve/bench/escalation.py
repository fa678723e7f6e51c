"""Escalation from a cheap first judge to a second one: measures what a certainty threshold saves,
and selects one.

An item is decided by the first judge if its certainty reaches the threshold; otherwise the second
judge is called. The first judge may be the first round of a debate, and the second the whole
debate.

All functions are pure, and take arrays with an entry for each labelled item: the certainty of the
first judge, the credit (1 right, 0 wrong, 0.5 half) of each judge's verdict, and the usage of both.
A certainty of NaN is below any threshold; a credit of NaN (no verdict) is left out of every share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import (
    TIE,
    UNIT,
    Array,
    Groups,
    Numbers,
    Statistic,
    complete_pairs,
    mean_interval,
    mean_present,
    paired,
    ratio,
    vector,
)

# The default candidate thresholds: 0, 0.01, ..., 1.
THRESHOLDS = tuple(step / 100 for step in range(101))
FINE_THRESHOLDS = (
    *THRESHOLDS[1:-1],
    *(round(0.99 + step / 1000, 3) for step in range(1, 10)),
    *(round(0.999 + step / 10000, 4) for step in range(1, 10)),
    *(round(0.9999 + step / 100000, 5) for step in range(1, 10)),
)
"""The candidate thresholds for judges whose certainty is often near 1: 0.01 to 0.99, then 0.991 to
0.99999. They are fixed, since thresholds chosen by the data would void the guarantee."""

SPENT = ("calls", "tokens", "cost")  # the kinds of usage that are compared
POINTS = 21  # the number of points of a coverage-risk curve
ALLOWED_AT_FIRST = 2  # errors among the items of the first threshold tested
SHARE_AT_FIRST = 1 / 3  # of all items, decided at the first threshold: fewer may fail by chance
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of escalation at one threshold.

    Attributes:
        decided: The number of items that the first judge decides.
        share: The share of items that the first judge decides (coverage).
        error: The share of wrong verdicts among those (risk).
        accuracy: The accuracy over all items, by whichever judge decides.
        difference: That accuracy minus the second judge's alone.
        calls: The calls for all items, as a share of those of the second judge alone; likewise
            `tokens` and `cost`. NaN if unknown.
    """

    threshold: float
    decided: int
    share: Statistic
    error: Statistic
    accuracy: Statistic
    difference: Statistic
    calls: float = math.nan
    tokens: float = math.nan
    cost: float = math.nan


@dataclass(frozen=True, slots=True)
class Step:
    """The test of one threshold. Among the `items` that the first judge would decide, `errors` are
    wrong. With the required confidence the true share of errors is at most `bound`."""

    threshold: float
    items: int
    errors: int
    bound: float


@dataclass(frozen=True, slots=True)
class ThresholdSelection:
    """The result of the selection of a threshold.

    Attributes:
        threshold: The lowest certainty at which the first judge agrees with people often enough;
            None if there is none, for the `reason`.
        agreement: The required share of right verdicts.
        confidence: The required probability that new items reach it.
        items: The number of items that could be used.
        steps: The tested thresholds, from the highest; the last one failed, unless all passed.
    """

    threshold: float | None
    agreement: float
    confidence: float
    items: int
    steps: tuple[Step, ...]
    reason: str = ""


def coverage_risk_curve(
    certainty: Numbers,
    first_credits: Numbers,
    second_credits: Numbers,
    spent: Mapping[str, tuple[Numbers, Numbers, Numbers]],
    groups: Groups | None = None,
    *,
    thresholds: Sequence[float] | None = None,
    seed: int = 0,
) -> tuple[Point, ...]:
    """Return the figures at each threshold, the highest first, with intervals by group.

    `spent`: by the names of `SPENT` the usage of each item if the first judge decides alone, if
    both judges are called, and if the second is called alone; NaN: unknown. `thresholds`: by
    default quantiles of the certainty, which space the points evenly in coverage. A threshold that
    is chosen by this curve must be reported on other items.
    """
    sure, ours = paired(certainty, first_credits)
    theirs = vector(second_credits)
    amounts = {name: [*map(vector, values)] for name, values in spent.items()}
    if thresholds is None:
        thresholds = _quantiles(sure)
    defined = ~(np.isnan(ours) & np.isnan(theirs))
    points: list[Point] = []

    for threshold in sorted(set(map(float, thresholds)), reverse=True):
        at_once = sure >= threshold - TIE
        credits = np.where(at_once, ours, theirs)
        decided = None if groups is None else [g for g, a in zip(groups, at_once, strict=True) if a]
        points.append(
            Point(
                threshold=threshold,
                decided=int(at_once.sum()),
                share=mean_figure(np.where(defined, at_once, np.nan), groups, seed),
                error=mean_figure(1 - ours[at_once], decided, seed),
                accuracy=mean_figure(credits, groups, seed),
                difference=difference_figure(credits, theirs, groups, seed),
                **{
                    name: _spent_share(np.where(at_once, alone, both), second_amounts)
                    for name, (alone, both, second_amounts) in amounts.items()
                },
            )
        )

    return tuple(points)


def _quantiles(certainty: Array) -> list[float]:
    defined = certainty[~np.isnan(certainty)]
    if not defined.size:
        return []
    return np.quantile(defined, np.linspace(0, 1, POINTS), method="lower").tolist()


def select_threshold(
    certainty: Numbers,
    first_credits: Numbers,
    groups: Groups | None = None,
    *,
    agreement: float = 0.9,
    confidence: float = 0.9,
    thresholds: Sequence[float] = THRESHOLDS,
    seed: int = 0,
) -> ThresholdSelection:
    """Select the lowest certainty threshold at which the first judge agrees with people often
    enough.

    With probability `confidence` over the drawn items, at least a share `agreement` of the first
    judge's decisions on new items is right. The method is fixed-sequence testing, as in
    Angelopoulos et al. (2021), Learn then Test, and for judges in Jung et al. (2024), Trust or
    Escalate: thresholds are tested from the highest to the lowest, each by the exact binomial bound
    on the share of wrong verdicts at 1 - confidence. The first failure ends the search, so that no
    correction for multiple tests is needed. A verdict with less than full credit is wrong.

    `thresholds` must not be chosen by the credits of these items. The first tested threshold is the
    highest at which the first judge decides a third of the items, and enough items to allow two
    errors (or none, if there are too few items for that). This choice depends on numbers of items
    only, not on credits. The guarantee is exact if verdicts below the first rejected threshold are
    no safer than those above it. It holds for new items of the same kind. Since the test requires
    independent items, one item of each group is drawn.
    """
    risk = 1 - agreement
    doubt = 1 - confidence
    sure, wrong = _draw_items(certainty, first_credits, groups, seed)
    needed = fewest_items(0, risk, doubt)
    if sure.size < needed:
        reason = f"too few items: {sure.size}; at least {needed} without an error are needed"
        return ThresholdSelection(None, agreement, confidence, sure.size, (), reason)
    least_items = fewest_items(ALLOWED_AT_FIRST, risk, doubt)
    least = least_items if sure.size >= least_items else needed
    least = max(least, math.ceil(sure.size * SHARE_AT_FIRST))
    steps: list[Step] = []

    for threshold in sorted(set(map(float, thresholds)), reverse=True):
        at_once = sure >= threshold - TIE
        items = int(at_once.sum())
        errors = int(wrong[at_once].sum())
        if items < least:
            continue
        steps.append(Step(threshold, items, errors, upper_bound(errors, items, doubt)))
        if steps[-1].bound > risk:
            break

    passed = [step.threshold for step in steps if step.bound <= risk]
    reason = "" if passed else _rejection_reason(steps, least, risk)

    return ThresholdSelection(
        passed[-1] if passed else None, agreement, confidence, sure.size, tuple(steps), reason
    )


def _rejection_reason(steps: Sequence[Step], least: int, risk: float) -> str:
    if not steps:
        return f"too few items: no threshold lets the first judge decide {least} of them"
    highest = steps[0]
    return (
        f"too many errors: the first judge is wrong on {highest.errors} of the {highest.items}"
        f" items with a certainty of {highest.threshold:g} or more, so its error rate may be"
        f" {highest.bound:.0%}, and {risk:.0%} is allowed"
    )


def _draw_items(
    certainty: Numbers, first_credits: Numbers, groups: Groups | None, seed: int
) -> tuple[Array, Array]:
    """Draw one item of each group at random; return its certainty, and whether its verdict is
    wrong."""
    sure, credits, numbers = complete_pairs(certainty, first_credits, groups)
    order = np.random.default_rng(seed).permutation(sure.size)
    _, places = np.unique(numbers[order], return_index=True)
    chosen = order[places]

    return sure[chosen], (credits[chosen] < 1).astype(np.float64)


def fewest_items(errors: int, risk: float, doubt: float) -> int:
    """Return the smallest number of items for which, with `errors` errors, the upper bound on the
    error rate (at a confidence of 1 - `doubt`) is at most `risk`."""
    items = errors + 1
    while binomial_tail(errors, items, risk) > doubt:
        items += 1
    return items


@lru_cache(maxsize=4096)
def upper_bound(errors: int, items: int, doubt: float) -> float:
    """Compute the exact one-sided upper bound of Clopper and Pearson (1934) on an error rate: the
    rate at which the probability of at most `errors` errors in `items` is `doubt`."""
    if errors == items:
        return 1.0
    low = errors / items
    high = 1.0

    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if binomial_tail(errors, items, middle) > doubt:
            low = middle
        else:
            high = middle

    return high


def binomial_tail(most: int, trials: int, share: float) -> float:
    """Compute the probability that a binomial variable is at most `most`."""
    if share <= 0 or most >= trials:
        return 1.0
    if share >= 1:
        return 0.0
    ways = _log_choose(trials)[: most + 1]
    hits = np.arange(most + 1)
    logs = ways + hits * np.log(share) + (trials - hits) * np.log1p(-share)

    return min(1.0, float(np.exp(logs).sum()))


@lru_cache(maxsize=256)
def _log_choose(trials: int) -> Array:
    """Return the logarithms of the binomial coefficients `trials` over 0, 1, ..., `trials`."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, trials + 1)))])
    return np.asarray(factorials[-1] - factorials - factorials[::-1])


def mean_figure(values: Numbers, groups: Groups | None, seed: int = 0) -> Statistic:
    """Return the mean of values in [0, 1], with its interval by group."""
    return Statistic(mean_present(values), mean_interval(values, groups, seed=seed, bounds=UNIT))


def difference_figure(
    ours: Numbers, theirs: Numbers, groups: Groups | None, seed: int = 0
) -> Statistic:
    """Return the mean difference of paired values, with its interval by group."""
    interval = difference_interval(ours, theirs, groups, seed=seed)
    return Statistic(mean_present(np.subtract(ours, theirs)), interval)


def format_points(figure: Statistic) -> str:
    """Format a difference between shares in percentage points, with its interval."""
    ends = figure.interval
    points = f"{100 * figure.value:+.1f} points"
    if math.isnan(ends.low):
        return f"{points} (no interval: {ends.reason})"
    return f"{points} ({100 * ends.low:+.1f} to {100 * ends.high:+.1f})"


def _spent_share(costs: Array, alone: Array) -> float:
    """Return the sum of `costs` as a share of the second judge's (`alone`), over the items that
    have both."""
    defined = ~np.isnan(costs + alone)
    return float(ratio(costs[defined].sum(), alone[defined].sum()))
