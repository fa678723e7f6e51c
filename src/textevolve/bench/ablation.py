"""Tells whether a debate pays on a user's own items: whether it agrees with people more often than
cheaper uses of the same agents.

The debate is compared with the most accurate of the cheaper judges. That judge is selected by the
same items, which makes the comparison slightly unfavourable to the debate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from textevolve.bench.agreement import AgreementSummary
from textevolve.bench.escalation import (
    SPENT,
    THRESHOLDS,
    Point,
    ThresholdSelection,
    coverage_risk_curve,
    difference_figure,
    format_points,
    mean_figure,
    select_threshold,
)
from textevolve.bench.items import Item
from textevolve.bench.verdicts import ItemOutcome, ItemQuestion, TextOrder, credit_of, read_verdict
from textevolve.debate.result import DebateResult
from textevolve.errors import InputError
from textevolve.evaluation import (
    Evaluation,
    Evaluator,
    Failure,
    Result,
    Usage,
    attempt,
    select_failure,
    sum_usage,
)
from textevolve.judges.cascade import certainty_of
from textevolve.llm.meter import Tab, sum_calls
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
    comparison = summary.compare(debate, rival)
    if not comparison.items:
        return None

    credits = [outcome.credit for outcome in outcomes[debate].values()]
    rival_credits = [outcome.credit for outcome in outcomes[rival].values()]
    ours, theirs, numbers = complete_pairs(credits, rival_credits, [item.group for item in items])
    groups = numbers.tolist()

    # The comparison may name the rival first.
    sign = 1 if comparison.first == debate else -1
    value = sign * comparison.difference.value
    interval = comparison.difference.interval
    low, high = sorted((sign * interval.low, sign * interval.high))
    if math.isnan(low) or not (comparison.better and comparison.worse):
        low, high = _bound_difference(ours - theirs, len(set(groups)))

    answer: PayoffAnswer = "cannot be told"
    if low > 0 and comparison.permutation <= ALPHA:
        answer = "pays"
    elif high < minimum_effect:
        answer = "does not pay"

    tokens = summary.judge(debate).per_item.tokens
    rival_tokens = summary.judge(rival).per_item.tokens

    return Payoff(
        answer=answer,
        debate=debate,
        rival=rival,
        items=comparison.items,
        accuracy=(
            mean_figure(ours, groups, seed=summary.seed),
            mean_figure(theirs, groups, seed=summary.seed),
        ),
        difference=Statistic(value, Interval(low, high)),
        p=comparison.permutation,
        minimum_effect=minimum_effect,
        items_needed=items_needed(ours, theirs, size=max(abs(value), minimum_effect)),
        tokens=tokens / rival_tokens if rival_tokens else math.nan,
    )


def _bound_difference(difference: Array, questions: int) -> tuple[float, float]:
    """Return the interval of a mean difference for items on which one of the two judges was never
    better, where a bootstrap could not draw any such item. Gains and losses each have a Wilson
    interval, with the questions as trials."""
    gains = float(np.maximum(difference, 0).mean())
    losses = float(np.maximum(-difference, 0).mean())
    gained = wilson_interval(questions * gains, questions)
    lost = wilson_interval(questions * losses, questions)
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
    debate = names.get(payoff.debate, payoff.debate)
    rival = names.get(payoff.rival, payoff.rival)
    ours, theirs = payoff.accuracy

    return (
        f"On these {payoff.items:,} items {debate} was right in {100 * ours.value:.0f} % and"
        f" {rival} in {100 * theirs.value:.0f} %: {sentence}."
    )


# Labelled items that a cheap first judge and a better second judge both judge, to measure when the
# first alone would do.
#
# A judge is any `Evaluator`. With a single debate, its first round is the first judge, and the
# complete debate the second. `escalation.py` selects the threshold.


@dataclass(frozen=True, slots=True)
class CreditedVerdict:
    """A judge's outcome for one item: the credit of its verdict (agreement with people, from 0 to
    1; NaN without a complete verdict or a label), its usage (None if the judge failed before any
    request), and the `failure`, if any."""

    credit: float = math.nan
    usage: Usage | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class TwiceJudged:
    """The verdicts of both judges on one item in one order of its candidates.

    Attributes:
        item: The id of the item.
        certainty: The certainty of the first judge in [0, 1]; NaN if it has none.
        both: The usage of a cascade that calls both judges; for a single debate that of the
            complete debate.
        question: The group of the item; items of the same question are not independent.
        position: The number of the record in the run.
    """

    item: str
    certainty: float = math.nan
    first: CreditedVerdict = CreditedVerdict()
    second: CreditedVerdict = CreditedVerdict()
    both: Usage | None = None
    order: TextOrder = "given"
    question: str = ""
    position: int = 0

    @property
    def failure(self) -> Failure | None:
        """Return the failure of the judge whose verdict is missing, if any; one that was skipped at
        a limit comes first."""
        return select_failure((self.first.failure, self.second.failure))

    @property
    def usage(self) -> Usage:
        """Return the usage of both judges."""
        if self.both is not None:
            return self.both
        return sum(
            (judgement.usage for judgement in (self.first, self.second) if judgement.usage), Usage()
        )


@dataclass(frozen=True)
class Escalated(Result):
    """The result of an escalation study.

    Attributes:
        first: The accuracy of the first judge alone; `second`: of the second judge alone.
        difference: The accuracy of the first judge minus that of the second.
        curve: The figures at thresholds from high to low.
        selection: The selection of a threshold.
        chosen: The figures at the selected threshold, on the same items by which it was selected;
            None without a threshold.
    """

    items: tuple[TwiceJudged, ...]
    first: Statistic
    second: Statistic
    difference: Statistic
    curve: tuple[Point, ...]
    selection: ThresholdSelection
    chosen: Point | None
    usage: Usage


async def debate_item(judge: Evaluator, question: ItemQuestion, position: int) -> TwiceJudged:
    """Judge an item by a debate, and return its first round and its final result as the two judges.

    Raises:
        InputError: the judge is no debate. FatalModelError: no call can succeed.
    """
    debate = await attempt(judge(question.case), InputError)
    if isinstance(debate, Failure):
        verdicts = (CreditedVerdict(), CreditedVerdict(failure=debate))
        return _place(question, position, debate, verdicts, None)

    verdicts = (_take(first_round(debate), question), _take(debate, question))
    return _place(question, position, debate, verdicts, debate.usage)


async def ask_both(
    judges: Sequence[Evaluator], question: ItemQuestion, position: int
) -> TwiceJudged:
    """Judge the same item by two judges. Identical requests of both count once in the usage of the
    cascade.

    Raises:
        FatalModelError: no call can succeed.
    """
    cheap, expensive = judges
    evaluation, first, first_tab = await _ask(cheap, question)
    _, second, second_tab = await _ask(expensive, question)
    both = None
    if first.usage is not None and second.usage is not None:
        both = first.usage + second.usage
        if first_tab.is_used and second_tab.is_used:
            both = sum_calls(first_tab, second_tab)

    return _place(question, position, evaluation, (first, second), both)


async def _ask(
    judge: Evaluator, question: ItemQuestion
) -> tuple[Evaluation | Failure, CreditedVerdict, Tab]:
    with Tab() as tab:
        evaluation = await attempt(judge(question.case), InputError)
    verdict = _take(evaluation, question)
    if tab.is_used:
        verdict = replace(verdict, usage=sum_calls(tab))

    return evaluation, verdict, tab


def _place(
    question: ItemQuestion,
    position: int,
    evaluation: Evaluation | Failure,
    verdicts: tuple[CreditedVerdict, CreditedVerdict],
    both: Usage | None,
) -> TwiceJudged:
    """Return the record of a question. `evaluation`: that of the first judge, whose certainty is
    recorded. `both`: the usage of the cascade."""
    sure = None if isinstance(evaluation, Failure) else certainty_of(evaluation)
    return TwiceJudged(
        question.item.id,
        math.nan if sure is None else sure,
        *verdicts,
        both,
        question.order,
        question.item.group,
        position,
    )


def _take(evaluation: Evaluation | Failure, question: ItemQuestion) -> CreditedVerdict:
    if isinstance(evaluation, Failure):
        return CreditedVerdict(failure=evaluation)
    verdict = read_verdict(evaluation, question)
    return CreditedVerdict(credit_of(question.item, verdict), verdict.usage, verdict.failure)


def weigh_escalation(
    items: Sequence[TwiceJudged],
    *,
    agreement: float = 0.9,
    confidence: float = 0.9,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Escalated:
    """Compute the coverage-risk curve, and select the threshold for the required agreement and
    confidence."""
    groups = [item.question for item in items]
    sure = [item.certainty for item in items]
    first_credits = [item.first.credit for item in items]
    second_credits = [item.second.credit for item in items]
    spent = {name: _spent(items, name) for name in SPENT}
    selection = select_threshold(
        sure,
        first_credits,
        groups,
        agreement=agreement,
        confidence=confidence,
        thresholds=thresholds,
    )
    draw = partial(coverage_risk_curve, sure, first_credits, second_credits, spent, groups)
    chosen = None
    if selection.threshold is not None:
        (chosen,) = draw(thresholds=[selection.threshold])

    return Escalated(
        items=tuple(items),
        first=mean_figure(first_credits, groups),
        second=mean_figure(second_credits, groups),
        difference=difference_figure(first_credits, second_credits, groups),
        curve=draw(),
        selection=selection,
        chosen=chosen,
        usage=sum_usage(items),
    )


def _spent(items: Sequence[TwiceJudged], name: str) -> tuple[list[float], list[float], list[float]]:
    """Return the calls, tokens or cost (`name`) of each item by the first judge, by both, and by
    the second; NaN if unknown."""

    def read(usage: Usage | None) -> float:
        amount: float | None = getattr(usage, name, None)
        return math.nan if amount is None else float(amount)

    return (
        [read(item.first.usage) for item in items],
        [read(item.both) for item in items],
        [read(item.second.usage) for item in items],
    )
