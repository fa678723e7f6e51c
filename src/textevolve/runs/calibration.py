"""Escalation on labelled items as a run: whole debates, and what their first rounds said.

Which threshold follows from that is worked out in `textevolve.bench.escalation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textevolve.bench.ablation import first_round
from textevolve.bench.credit import top_credit
from textevolve.bench.escalation import (
    Calibration,
    Point,
    calibrate_threshold,
    coverage_risk_curve,
    mean_figure,
)
from textevolve.bench.items import Item, question_of
from textevolve.debate.result import DebateResult
from textevolve.engine.local import stream
from textevolve.errors import BudgetError, FatalModelError, InputError, ModelError
from textevolve.evaluation import Case, EvaluationResult, Evaluator, Failure, Usage, failure_of
from textevolve.events import Listener, StepFinished, silence
from textevolve.runs.measurement import cases_in_flight, open_judges
from textevolve.runs.spec import read_measurement
from textevolve.settings import Settings
from textevolve.statistics.comparisons import difference_interval
from textevolve.statistics.intervals import Figure, mean_present
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.wiring import Limits

STEP = "item"
WHOLE = ("protocol=blind-first", "convergence=none")
"""What makes a debate go as an escalation does, but through all its rounds in every case."""


@dataclass(frozen=True, slots=True)
class Debated:
    """One item: the certainty of its first round, the credit of what that said and of what the
    whole debate said, and the calls of both. NaN where there is none."""

    item: str
    certainty: float = math.nan
    first: float = math.nan
    debate: float = math.nan
    first_calls: int = 0
    debate_calls: int = 0
    usage: Usage = Usage()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Escalated:
    """`chosen`: what the calibrated threshold gives, by the same items that it was calibrated on;
    None where there is no threshold."""

    debated: tuple[Debated, ...]
    first: Figure
    debate: Figure
    difference: Figure
    curve: tuple[Point, ...]
    calibration: Calibration
    chosen: Point | None
    usage: Usage

    @property
    def skipped(self) -> int:
        return sum(d.failure is not None and d.failure.kind == "skipped" for d in self.debated)

    @property
    def missing(self) -> int:
        return sum(math.isnan(d.debate) for d in self.debated)


def check_wanted(agreement: float, confidence: float) -> None:
    """Raises InputError where these are no shares that could be aimed at."""
    if not (0 < agreement < 1 and 0 < confidence < 1):
        raise InputError("agreement and confidence must lie between 0 and 1")


async def measure_escalation(
    store: Store,
    run: RunRecord,
    items: Sequence[Item],
    settings: Settings,
    limits: Limits = Limits(),
    listener: Listener = silence,
    *,
    agreement: float = 0.9,
    confidence: float = 0.9,
) -> Escalated:
    """Debate every item to the end, and calibrate on what the first rounds said.

    Raises:
        FatalModelError: no call can succeed; what was answered is kept.
        StoreError: the journal cannot be written, or another process works on this run.
    """
    check_wanted(agreement, confidence)
    spec = read_measurement(run)
    async with open_judges(store, run, settings, limits, listener) as judges:
        (judge,) = judges.values()

        async def debate(item: Item) -> Debated:
            found = await _debate(judge, item)
            listener(StepFinished(item.id, STEP, found))
            return found

        answers = stream(items, debate, cases_in_flight(spec, settings))
        try:
            debated = [found async for found in answers]
        finally:
            await answers.aclose()
    found = escalate(items, debated, agreement=agreement, confidence=confidence)
    if not found.skipped:
        store.finish_run(run.id, "finished")
    return found


async def _debate(judge: Evaluator, item: Item) -> Debated:
    try:
        result = await judge(Case(item.input, item.candidates, item.id))
    except FatalModelError:
        raise
    except (InputError, ModelError, BudgetError) as error:
        return Debated(item.id, failure=failure_of(error))
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
    )


def _credit(outcomes: Sequence[EvaluationResult | Failure], item: Item) -> float:
    scores = [r.score for r in outcomes if isinstance(r, EvaluationResult)]
    return top_credit(scores, item.human) if len(scores) == len(item.human) else math.nan


def escalate(
    items: Sequence[Item],
    debated: Sequence[Debated],
    *,
    agreement: float = 0.9,
    confidence: float = 0.9,
) -> Escalated:
    """The coverage-risk curve and the threshold for the agreement wanted, with that confidence."""
    groups = [question_of(item) for item in items]
    sure, first, whole = (
        [getattr(d, name) for d in debated] for name in ("certainty", "first", "debate")
    )
    calls = [d.first_calls for d in debated], [d.debate_calls for d in debated]
    calibration = calibrate_threshold(
        sure, first, groups, agreement=agreement, confidence=confidence
    )
    chosen: tuple[Point, ...] = ()
    if calibration.threshold is not None:
        chosen = coverage_risk_curve(
            sure, first, whole, *calls, groups, thresholds=[calibration.threshold]
        )
    gap = [a - b for a, b in zip(first, whole, strict=True)]
    return Escalated(
        debated=tuple(debated),
        first=mean_figure(first, groups),
        debate=mean_figure(whole, groups),
        difference=Figure(mean_present(gap), difference_interval(first, whole, groups)),
        curve=coverage_risk_curve(sure, first, whole, *calls, groups),
        calibration=calibration,
        chosen=chosen[0] if chosen else None,
        usage=sum((d.usage for d in debated), Usage()),
    )
