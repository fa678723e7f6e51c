"""Labelled items before a first judge and a second: when would the first alone have done?

Judges are handed in as any other `Evaluator`. Where there is one debate alone, its first round is
the first judge, and its whole the second. The threshold is worked out in `escalation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from textevolve.bench.ablation import first_round
from textevolve.bench.credit import top_credit
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
from textevolve.bench.items import Item, question_of
from textevolve.bench.verdicts import TextOrder
from textevolve.debate.result import DebateResult
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import (
    Case,
    Evaluation,
    Evaluator,
    Failure,
    Usage,
    failure_of,
)
from textevolve.judges.cascade import certainty_of
from textevolve.judges.judged import ranks_of
from textevolve.llm.usage_meter import DistinctCalls, NotedCall, note_calls
from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import Statistic, mean_present

WHOLE = ("protocol=blind-first", "convergence=none")
"""What makes a debate go as an escalation does, but through all its rounds in every case."""


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
    where there is no threshold. `each`: the means of an item's `SPENT` for the first judge alone
    and for the second alone."""

    items: tuple[TwiceJudged, ...]
    first: Statistic
    second: Statistic
    difference: Statistic
    curve: tuple[Point, ...]
    selection: ThresholdSelection
    chosen: Point | None
    usage: Usage
    each: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])


@dataclass(frozen=True, slots=True)
class Presented:
    """An item in one order, and its place in the run."""

    item: Item
    order: TextOrder
    position: int

    @property
    def case(self) -> Case:
        item = self.item
        texts = item.candidates if self.order == "given" else item.candidates[::-1]
        return Case(item.input, texts, item.id, reference=item.reference, context=item.context)


async def debate_item(judge: Evaluator, asked: Presented) -> TwiceJudged:
    """One debate: its first round beside the whole of it.

    Raises:
        FatalModelError: no call can succeed.
    """
    made = await _ask(judge, asked)
    if isinstance(made, Failure):
        return _judged(asked, None, Taken(), Taken(failure=made), None)
    assert isinstance(made, DebateResult)
    first, second = (_take(one, asked) for one in (first_round(made), made))
    return _judged(asked, made.certainty, first, second, made.usage)


async def ask_both(first: Evaluator, second: Evaluator, asked: Presented) -> TwiceJudged:
    """Both judges on the same item. What both ask in the same words a cascade pays for once.

    Raises:
        FatalModelError: no call can succeed.
    """
    with note_calls() as calls:
        made = await _ask(first, asked)
    with note_calls() as further:
        then = await _ask(second, asked)
    one, other = _count(_take(made, asked), calls), _count(_take(then, asked), further)
    sure = None if isinstance(made, Failure) else certainty_of(made)
    both = None if one.usage is None or other.usage is None else one.usage + other.usage
    if both is not None and calls and further:
        both = DistinctCalls().count((*calls, *further))[0]
    return _judged(asked, sure, one, other, both)


def _count(taken: Taken, calls: Sequence[NotedCall]) -> Taken:
    """With what its distinct requests cost, also where the judge failed; of a judge that asked no
    model of a workbench, what it says itself."""
    return replace(taken, usage=DistinctCalls().count(calls)[0]) if calls else taken


async def _ask(judge: Evaluator, asked: Presented) -> Evaluation | Failure:
    try:
        return await judge(asked.case)
    except FatalModelError:
        raise
    except (InputError, ModelError, BudgetError) as error:
        return failure_of(error)


def _judged(
    asked: Presented, certainty: float | None, first: Taken, second: Taken, both: Usage | None
) -> TwiceJudged:
    return TwiceJudged(
        item=asked.item.id,
        certainty=math.nan if certainty is None else certainty,
        first=first,
        second=second,
        both=both,
        order=asked.order,
        question=question_of(asked.item),
        position=asked.position,
    )


def _take(made: Evaluation | Failure, asked: Presented) -> Taken:
    if isinstance(made, Failure):
        return Taken(failure=made)
    failure = next((one for one in made.result if isinstance(one, Failure)), None)
    return Taken(_credit(made, asked), made.usage, failure)


def _credit(made: Evaluation, asked: Presented) -> float:
    human = asked.item.human if asked.order == "given" else asked.item.human[::-1]
    ranks = [rank for rank in ranks_of(made.result) if rank is not None]
    return top_credit(ranks, human) if len(ranks) == len(human) else math.nan


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
        each={n: (mean_present(s.first), mean_present(s.second)) for n, s in spent.items()},
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
