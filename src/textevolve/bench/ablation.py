"""Tells whether a debate pays on a user's own items: whether it agrees with people more often than
cheaper uses of the same agents.

The debate is compared with the most accurate of the cheaper judges. That judge is selected by the
same items, which makes the comparison slightly unfavourable to the debate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from textevolve.bench.agreement import AgreementSummary
from textevolve.bench.escalation import format_points, mean_figure
from textevolve.bench.items import Item
from textevolve.bench.verdicts import ItemOutcome
from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
from textevolve.evaluation import Evaluation, Usage
from textevolve.statistics.comparisons import ALPHA, items_needed
from textevolve.statistics.intervals import (
    Array,
    Interval,
    Statistic,
    complete_pairs,
    wilson_interval,
)

MINIMUM_EFFECT = 0.05  # the default for the smallest gain in accuracy that matters

# The conclusion on a debate; "cannot be told" means that the items are too few.
PayoffAnswer = Literal["pays", "does not pay", "cannot be told"]


@dataclass(frozen=True, slots=True)
class Payoff:
    """The comparison of a debate with a cheaper judge, its rival.

    The debate pays if it is significantly better: the interval of the difference is above 0, and p
    is at most 5 %. It does not pay if the interval excludes a gain of `minimum_effect` or more.
    Otherwise more items are needed.

    Attributes:
        items: The number of items that both judged and people labelled.
        accuracy: The accuracy of the debate and of the rival, in [0, 1].
        difference: The debate's accuracy minus the rival's. If one of the two was better on no
            item, a bootstrap interval would be too narrow, so a wider one is used.
        p: The p-value of a sign-flip test of the difference.
        minimum_effect: The smallest gain in accuracy that matters.
        items_needed: The number of items that would show a difference as large as the observed one,
            or as `minimum_effect` if that is larger.
        tokens: The tokens of one verdict of the debate, divided by those of the rival.
    """

    answer: PayoffAnswer
    debate: str
    rival: str
    items: int
    accuracy: tuple[Statistic, Statistic]
    difference: Statistic
    p: float
    minimum_effect: float
    items_needed: float
    tokens: float


def first_round(evaluation: Evaluation) -> Evaluation:
    """Return the result that a debate had after its first round, without the later turns.

    Raises:
        InputError: the evaluation is not a debate's.
    """
    if not isinstance(evaluation, DebateResult):
        raise InputError("only the evaluation of a debate has a first round")
    return replace(
        evaluation,
        turns=tuple(turn for turn in evaluation.turns if turn.round == 0),
        convergence=evaluation.convergence[:1],
        summaries=(),
        extra_usage=Usage(),
    )


def weigh_debate(
    items: Sequence[Item],
    summary: AgreementSummary,
    outcomes: Mapping[str, Mapping[str, ItemOutcome]],
    debate: str,
    rivals: Sequence[str],
    *,
    minimum_effect: float,
) -> Payoff | None:
    """Compare a debate with the most accurate of `rivals` (the first of equals), on the items that
    both judged and people labelled. Return None if there is no such item, or if no rival has an
    accuracy."""
    scored = [name for name in rivals if not math.isnan(summary.judge(name).accuracy.value)]
    if not scored:
        return None
    rival = max(scored, key=lambda name: summary.judge(name).accuracy.value)
    seen = summary.compare(debate, rival)
    if not seen.items:
        return None
    credits, others = ([o.credit for o in outcomes[name].values()] for name in (debate, rival))
    ours, theirs, numbers = complete_pairs(credits, others, [item.group for item in items])
    groups = numbers.tolist()
    sign = 1 if seen.first == debate else -1
    value, interval = sign * seen.difference.value, seen.difference.interval
    low, high = sorted((sign * interval.low, sign * interval.high))
    if math.isnan(low) or not (seen.better and seen.worse):
        low, high = _bound_difference(ours - theirs, len(set(groups)))
    answer: PayoffAnswer = "cannot be told"
    if low > 0 and seen.permutation <= ALPHA:
        answer = "pays"
    elif high < minimum_effect:
        answer = "does not pay"
    size = max(abs(value), minimum_effect)
    spent = [summary.judge(name).per_item.tokens for name in (debate, rival)]
    return Payoff(
        answer=answer,
        debate=debate,
        rival=rival,
        items=seen.items,
        accuracy=(
            mean_figure(ours, groups, seed=summary.seed),
            mean_figure(theirs, groups, seed=summary.seed),
        ),
        difference=Statistic(value, Interval(low, high)),
        p=seen.permutation,
        minimum_effect=minimum_effect,
        items_needed=items_needed(ours, theirs, size=size),
        tokens=spent[0] / spent[1] if spent[1] else math.nan,
    )


def _bound_difference(difference: Array, questions: int) -> tuple[float, float]:
    """Return the interval of a mean difference for items on which one of the two judges was never
    better, where a bootstrap could not draw any such item. Gains and losses each have a Wilson
    interval, with the questions as trials."""
    gained, lost = (
        wilson_interval(questions * float(np.maximum(part, 0).mean()), questions)
        for part in (difference, -difference)
    )
    return gained.low - lost.high, gained.high - lost.low


def describe_payoff(payoff: Payoff, names: Mapping[str, str]) -> str:
    """Describe the payoff in one plain sentence; `names` maps each judge to its display name."""
    sentence = {
        "pays": "the debate pays here",
        "does not pay": "the debate does not pay here",
        "cannot be told": "it is not known whether the debate pays here",
    }[payoff.answer]
    sentence += f": {format_points(payoff.difference)}, p {payoff.p:.2g}"
    if payoff.answer == "cannot be told" and not math.isnan(payoff.items_needed):
        size = max(abs(payoff.difference.value), payoff.minimum_effect)
        sentence += f"; a difference of {100 * size:.0f} points takes"
        sentence += f" about {payoff.items_needed:,.0f} items to be found"
    if not math.isnan(payoff.tokens):
        sentence += f", and the debate took {payoff.tokens:.1f} times the tokens"
    where = f"On these {payoff.items:,} items"
    judge, rival = (names.get(name, name) for name in (payoff.debate, payoff.rival))
    ours, theirs = (f"{100 * figure.value:.0f} %" for figure in payoff.accuracy)
    return f"{where} {judge} was right in {ours} and {rival} in {theirs}: {sentence}."
