"""Labelled items that a cheap first judge and a better second judge both judge, to measure when the
first alone would do.

A judge is any `Evaluator`. With a single debate, its first round is the first judge, and the
complete debate the second. `escalation.py` selects the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from textevolve.bench.ablation import first_round
from textevolve.bench.escalation import (
    SPENT,
    THRESHOLDS,
    Point,
    ThresholdSelection,
    coverage_risk_curve,
    difference_figure,
    mean_figure,
    select_threshold,
)
from textevolve.bench.verdicts import ItemQuestion, TextOrder, credit_of, read_verdict
from textevolve.errors import InputError
from textevolve.evaluation import (
    Evaluation,
    Evaluator,
    Failure,
    Result,
    Usage,
    attempt,
    select_failure,
)
from textevolve.judges.cascade import certainty_of
from textevolve.llm.usage_meter import DistinctCalls, NotedCall, note_calls
from textevolve.statistics.intervals import Statistic


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
    vote, both = CreditedVerdict(), None
    if not isinstance(debate, Failure):
        vote, both = _take(first_round(debate), question), debate.usage
    return _place(question, position, debate, (vote, _take(debate, question)), both)


async def ask_both(
    judges: Sequence[Evaluator], question: ItemQuestion, position: int
) -> TwiceJudged:
    """Judge the same item by two judges. Identical requests of both count once in the usage of the
    cascade.

    Raises:
        FatalModelError: no call can succeed.
    """
    evaluations: list[Evaluation | Failure] = []
    verdicts: list[CreditedVerdict] = []
    noted: list[list[NotedCall]] = []
    for judge in judges:
        with note_calls() as calls:
            evaluation = await attempt(judge(question.case), InputError)
        verdict = _take(evaluation, question)
        if calls:
            verdict = replace(verdict, usage=DistinctCalls().count(calls)[0])
        evaluations.append(evaluation)
        verdicts.append(verdict)
        noted.append(calls)
    first, second = verdicts
    both = None
    if first.usage is not None and second.usage is not None:
        both = first.usage + second.usage
        if all(noted):
            both = DistinctCalls().count((*noted[0], *noted[1]))[0]
    return _place(question, position, evaluations[0], (first, second), both)


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
        usage=sum((item.usage for item in items), Usage()),
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
