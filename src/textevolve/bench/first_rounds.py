"""Debates on labelled items beside their own first rounds, and when those alone would have done.

A debate is handed in as any other `Evaluator`. The threshold is worked out in `escalation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.bench.ablation import first_round
from textevolve.bench.credit import top_credit
from textevolve.bench.escalation import (
    Point,
    ThresholdSelection,
    coverage_risk_curve,
    mean_figure,
    select_threshold,
)
from textevolve.bench.items import Item, question_of
from textevolve.debate.result import DebateResult
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, Failure, Usage, failure_of
from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import Statistic, mean_present

WHOLE = ("protocol=blind-first", "convergence=none")
"""What makes a debate go as an escalation does, but through all its rounds in every case."""


@dataclass(frozen=True, slots=True)
class Debated:
    """One item: the certainty of its first round, the credit of what that said and of what the
    whole debate said, and the calls of both. NaN where there is none. `question`: items of one
    question are not independent. `position`: its place in the run."""

    item: str
    certainty: float = math.nan
    first: float = math.nan
    debate: float = math.nan
    first_calls: int = 0
    debate_calls: int = 0
    usage: Usage = Usage()
    failure: Failure | None = None
    question: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Escalated:
    """`chosen`: what the selected threshold gives, by the same items that it was selected on; None
    where there is no threshold."""

    debated: tuple[Debated, ...]
    first: Statistic
    debate: Statistic
    difference: Statistic
    curve: tuple[Point, ...]
    selection: ThresholdSelection
    chosen: Point | None
    usage: Usage


async def debate_item(judge: Evaluator, item: Item, position: int = 0) -> Debated:
    """
    Raises:
        FatalModelError: no call can succeed.
    """
    question = question_of(item)
    try:
        result = await judge(Case(item.input, item.candidates, item.id))
    except FatalModelError:
        raise
    except (InputError, ModelError, BudgetError) as error:
        failure = failure_of(error)
        return Debated(item.id, failure=failure, question=question, position=position)
    assert isinstance(result, DebateResult)
    first = first_round(result)
    failure = next((r for r in result.result if isinstance(r, Failure)), None)
    certainty = result.certainty
    return Debated(
        item=item.id,
        certainty=math.nan if certainty is None else certainty,
        first=_credit(first.result, item),
        debate=_credit(result.result, item),
        first_calls=first.usage.calls,
        debate_calls=result.usage.calls,
        usage=result.usage,
        failure=failure,
        question=question,
        position=position,
    )


def _credit(outcomes: Sequence[EvaluationResult | Failure], item: Item) -> float:
    scores = [r.score for r in outcomes if isinstance(r, EvaluationResult)]
    return top_credit(scores, item.human) if len(scores) == len(item.human) else math.nan


def weigh_escalation(
    debated: Sequence[Debated], *, agreement: float = 0.9, confidence: float = 0.9
) -> Escalated:
    """The coverage-risk curve and the threshold for the agreement wanted, with that confidence."""
    groups = [d.question for d in debated]
    sure, first, whole = (
        [getattr(d, name) for d in debated] for name in ("certainty", "first", "debate")
    )
    calls = [d.first_calls for d in debated], [d.debate_calls for d in debated]
    selection = select_threshold(sure, first, groups, agreement=agreement, confidence=confidence)
    chosen: tuple[Point, ...] = ()
    if selection.threshold is not None:
        chosen = coverage_risk_curve(
            sure, first, whole, *calls, groups, thresholds=[selection.threshold]
        )
    gap = [a - b for a, b in zip(first, whole, strict=True)]
    return Escalated(
        debated=tuple(debated),
        first=mean_figure(first, groups),
        debate=mean_figure(whole, groups),
        difference=Statistic(mean_present(gap), difference_interval(first, whole, groups)),
        curve=coverage_risk_curve(sure, first, whole, *calls, groups),
        selection=selection,
        chosen=chosen[0] if chosen else None,
        usage=sum((d.usage for d in debated), Usage()),
    )
