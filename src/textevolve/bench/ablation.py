"""Whether a debate pays on a user's own items: one answer, from the figures, in one sentence.

The debate is compared with the best of the cheaper ways to ask the same agents. That choice is made
by the same items, which errs against the debate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from textevolve.bench.agreement import AgreementSummary
from textevolve.bench.escalation import format_points, mean_figure
from textevolve.bench.items import Item, question_of
from textevolve.bench.verdicts import ItemOutcome
from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
from textevolve.evaluation import Evaluation, Usage
from textevolve.statistics.comparisons import ALPHA, items_needed
from textevolve.statistics.intervals import (
    Array,
    Interval,
    Statistic,
    vector,
    wilson_interval,
)

MINIMUM_EFFECT = 0.05

PayoffAnswer = Literal["pays", "does not pay", "cannot be told"]


@dataclass(frozen=True, slots=True)
class Payoff:
    """A debate beside `rival`, on the `items` that both judged and people labelled. `difference`
    has a wider interval than the comparison where one of the two was never the better one.

    It pays where it is better (interval above 0 and p at most 5 %); it does not where a gain of
    `minimum_effect` or more is ruled out by the interval. Else it cannot be told, and
    `items_needed` is how many it would take for the difference seen or, if that is smaller, for one
    of that size. `tokens`: how many times as many as the rival's a single verdict of the debate
    takes.
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
    """Return a debate's result as it stood after the first round, without the later turns.

    Raises:
        InputError: it is no debate.
    """
    if not isinstance(evaluation, DebateResult):
        raise InputError("only a debate has a first round")
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
    """Compare a debate with the most accurate of `rivals` (the first of equals) on the items that
    both judged and people labelled. Return None if there is no such item, or no rival has an
    accuracy."""
    if not 0 < minimum_effect < 1:
        raise InputError(f"the minimum effect lies between 0 and 1, not at {minimum_effect}")
    scored = [name for name in rivals if not math.isnan(summary.judge(name).accuracy.value)]
    if not scored:
        return None
    rival = max(scored, key=lambda name: summary.judge(name).accuracy.value)
    seen = summary.compare(debate, rival)
    if not seen.items:
        return None
    credits = [vector([o.credit for o in outcomes[n].values()]) for n in (debate, rival)]
    both = ~np.isnan(credits[0] + credits[1])
    groups = [question_of(item) for item, is_paired in zip(items, both, strict=True) if is_paired]
    sign = 1 if seen.first == debate else -1
    value, interval = sign * seen.difference.value, seen.difference.interval
    low, high = sorted((sign * interval.low, sign * interval.high))
    if math.isnan(low) or not (seen.better and seen.worse):
        low, high = _bound_difference((credits[0] - credits[1])[both], len(set(groups)))
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
            mean_figure(credits[0][both], groups, seed=summary.seed),
            mean_figure(credits[1][both], groups, seed=summary.seed),
        ),
        difference=Statistic(value, Interval(low, high)),
        p=seen.permutation,
        minimum_effect=minimum_effect,
        items_needed=items_needed(*credits, size=size),
        tokens=spent[0] / spent[1] if spent[1] else math.nan,
    )


def _bound_difference(difference: Array, questions: int) -> tuple[float, float]:
    """Return the ends of an interval for the mean difference in which one side, the gains or the
    losses, is empty: resampling such items would never give a loss (or a gain). Gains and losses
    each have a Wilson interval, with the questions as trials."""
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
