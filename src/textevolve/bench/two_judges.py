"""Labelled items before a first judge and a second: when would the first alone have done?

Judges are handed in as any other `Evaluator`. Where there is one debate alone, its first round is
the first judge, and its whole the second. The threshold is worked out in `escalation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from textevolve.bench.ablation import first_round
from textevolve.bench.escalation import (
    SPENT,
    THRESHOLDS,
    Point,
    SpentOnItems,
    ThresholdSelection,
    coverage_risk_curve,
    mean_figure,
    select_threshold,
)
from textevolve.bench.items import question_of
from textevolve.bench.verdicts import ItemQuestion, TextOrder, credit_of, read_verdict
from textevolve.errors import InputError
from textevolve.evaluation import (
    Evaluation,
    Evaluator,
    Failure,
    Usage,
    attempt,
)
from textevolve.judges.cascade import certainty_of
from textevolve.llm.usage_meter import DistinctCalls, NotedCall, note_calls
from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import Statistic, mean_present


@dataclass(frozen=True, slots=True)
class Taken:
    """What a judge made of an item: the credit of that (NaN where there is no whole verdict), and
    what it took (None where the judge raised before it asked anything)."""

    credit: float = math.nan
    usage: Usage | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class TwiceJudged:
    """One item in one order before both judges. `certainty`: the first's, NaN where it has none.
    `both`: what a cascade takes where it asks both; of one debate that is the whole. `question`:
    items of one question are not independent. `position`: its place in the run."""

    item: str
    certainty: float = math.nan
    first: Taken = Taken()
    second: Taken = Taken()
    both: Usage | None = None
    order: TextOrder = "given"
    question: str = ""
    position: int = 0

    @property
    def failure(self) -> Failure | None:
        """Why something is missing; what was not asked goes first."""
        found = [one.failure for one in (self.first, self.second) if one.failure is not None]
        return next((one for one in found if one.kind == "skipped"), found[0] if found else None)

    @property
    def usage(self) -> Usage:
        """What was spent on it."""
        if self.both is not None:
            return self.both
        return sum((one.usage for one in (self.first, self.second) if one.usage), Usage())


@dataclass(frozen=True, slots=True)
class Escalated:
    """`chosen`: what the selected threshold gives, by the same items that it was selected on; None
    where there is no threshold."""

    items: tuple[TwiceJudged, ...]
    first: Statistic
    second: Statistic
    difference: Statistic
    curve: tuple[Point, ...]
    selection: ThresholdSelection
    chosen: Point | None
    usage: Usage


async def debate_item(judge: Evaluator, question: ItemQuestion, position: int) -> TwiceJudged:
    """Judge an item by one debate: its first round compared with the whole of it.

    Raises:
        InputError: the judge is no debate. FatalModelError: no call can succeed.
    """
    item, group = question.item.id, question_of(question.item)
    blank = TwiceJudged(item, order=question.order, question=group, position=position)
    debate = await attempt(judge(question.case), InputError)
    if isinstance(debate, Failure):
        return replace(blank, second=Taken(failure=debate))
    first, second = (_take(part, question) for part in (first_round(debate), debate))
    sure = certainty_of(debate)
    return replace(
        blank,
        certainty=math.nan if sure is None else sure,
        first=first,
        second=second,
        both=debate.usage,
    )


async def ask_both(
    judges: Sequence[Evaluator], question: ItemQuestion, position: int
) -> TwiceJudged:
    """Ask two judges about the same item. What both ask in the same words a cascade pays for once.

    Raises:
        FatalModelError: no call can succeed.
    """
    taken: list[Taken] = []
    noted: list[list[NotedCall]] = []
    certainty: float | None = None
    for number, judge in enumerate(judges):
        with note_calls() as calls:
            evaluation = await attempt(judge(question.case), InputError)
        if number == 0 and not isinstance(evaluation, Failure):
            certainty = certainty_of(evaluation)
        counted = _take(evaluation, question)
        taken.append(replace(counted, usage=DistinctCalls().count(calls)[0]) if calls else counted)
        noted.append(calls)
    first, second = taken
    both = None if first.usage is None or second.usage is None else first.usage + second.usage
    if both is not None and all(noted):
        both = DistinctCalls().count((*noted[0], *noted[1]))[0]
    sure = math.nan if certainty is None else certainty
    item, group = question.item.id, question_of(question.item)
    return TwiceJudged(item, sure, first, second, both, question.order, group, position)


def _take(evaluation: Evaluation | Failure, question: ItemQuestion) -> Taken:
    if isinstance(evaluation, Failure):
        return Taken(failure=evaluation)
    verdict = read_verdict(evaluation, question)
    return Taken(credit_of(question.item, verdict), verdict.usage, verdict.failure)


def weigh_escalation(
    items: Sequence[TwiceJudged],
    *,
    agreement: float = 0.9,
    confidence: float = 0.9,
    thresholds: Sequence[float] = THRESHOLDS,
) -> Escalated:
    """The coverage-risk curve and the threshold for the agreement wanted, with that confidence."""
    groups = [one.question for one in items]
    sure = [one.certainty for one in items]
    first, second = [one.first.credit for one in items], [one.second.credit for one in items]
    spent = {name: _spent(items, name) for name in SPENT}
    selection = select_threshold(
        sure, first, groups, agreement=agreement, confidence=confidence, thresholds=thresholds
    )
    chosen: tuple[Point, ...] = ()
    if selection.threshold is not None:
        chosen = coverage_risk_curve(
            sure, first, second, spent, groups, thresholds=[selection.threshold]
        )
    gap = [a - b for a, b in zip(first, second, strict=True)]
    return Escalated(
        items=tuple(items),
        first=mean_figure(first, groups),
        second=mean_figure(second, groups),
        difference=Statistic(mean_present(gap), difference_interval(first, second, groups)),
        curve=coverage_risk_curve(sure, first, second, spent, groups),
        selection=selection,
        chosen=chosen[0] if chosen else None,
        usage=sum((one.usage for one in items), Usage()),
    )


def _spent(items: Sequence[TwiceJudged], name: str) -> SpentOnItems:
    """NaN where it is not known of an item."""

    def read(usages: Sequence[Usage | None]) -> list[float]:
        found = [None if usage is None else getattr(usage, name) for usage in usages]
        return [math.nan if value is None else float(value) for value in found]

    return SpentOnItems(
        first=read([one.first.usage for one in items]),
        both=read([one.both for one in items]),
        second=read([one.second.usage for one in items]),
    )
