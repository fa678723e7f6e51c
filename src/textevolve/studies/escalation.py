"""Escalation: from which certainty on a debate's first round may stand, and what that saves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from textevolve.bench.escalation import Point, ThresholdSelection
from textevolve.bench.first_rounds import (
    WHOLE,
    Debated,
    Escalated,
    debate_item,
    weigh_escalation,
)
from textevolve.engine.local import stream
from textevolve.evaluation import Case, Usage
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, LineChart, Report, Table
from textevolve.report.data import plain
from textevolve.spec import option
from textevolve.statistics.intervals import Statistic
from textevolve.studies.cells import estimate, finite
from textevolve.studies.labelled_items import OneProfileSpec, item_of, name_judge, read_cases
from textevolve.studies.study import Asks, Row, Study, json_codec
from textevolve.wiring import Workbench

REASONS = 3


class EscalationSpec(OneProfileSpec):
    """Find from which certainty on a debate's first round may stand, and what that saves and costs.

    Every item is debated to the end once. The threshold is selected so that its promise holds for
    new items, with the confidence that is asked for.
    """

    kind: ClassVar[str] = "escalation"

    agreement: float = option(
        0.9,
        "How often a first round that may stand is to agree with people, from 0 to 1.",
        group="Statistics",
        gt=0,
        lt=1,
    )
    confidence: float = option(
        0.9,
        "The probability with which that is to hold for new items, from 0 to 1.",
        group="Statistics",
        gt=0,
        lt=1,
    )


def judge_of(spec: EscalationSpec) -> str:
    return name_judge(spec, "debate", *WHOLE)


async def run(
    spec: EscalationSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[Debated]:
    judge = bench.whole_judge_of(judge_of(spec))

    async def debate(placed: tuple[int, Case]) -> Debated:
        position, case = placed
        return await debate_item(judge, item_of(case), position)

    async with aclosing(stream(enumerate(cases), debate, bench.concurrency)) as debated:
        async for one in debated:
            yield one


def find_row(found: Debated) -> Row:
    failure = found.failure
    return Row(
        key=found.item,
        position=found.position,
        case=found.item,
        score=finite(found.debate),
        status=failure.kind if failure else "scored",
        reason=failure.reason if failure else "",
    )


def summarise(spec: EscalationSpec, records: Iterable[Debated]) -> Escalated:
    return weigh_escalation(list(records), agreement=spec.agreement, confidence=spec.confidence)


def report(_spec: EscalationSpec, found: Escalated) -> Report:
    blocks: list[Block] = []
    if found.curve:
        blocks += [_draw_curve(found.curve), _chart_curve(found.curve)]
    facts = {
        "Items": f"{len(found.debated)}; {found.selection.items} of use, one a question",
        "First round": _right(found.first),
        "Whole debate": _right(found.debate),
        "Used": f"{wording.count(found.usage.calls, 'call')}, {wording.spent(found.usage)}",
    }
    reasons = dict.fromkeys(d.failure.reason for d in found.debated if d.failure)
    if reasons:
        facts["Missing"] = "\n".join(wording.shorten(r, 160) for r in list(reasons)[:REASONS])
    return Report("Where a first round may stand", explain_selection(found), blocks, facts)


def _right(figure: Statistic) -> str:
    found = estimate(figure)
    ends = "" if found.low is None else f" ({_ends(found.low, found.high)})"
    return f"right in {wording.percent(found.value, 1)}{ends}"


def _ends(low: float | None, high: float | None) -> str:
    return f"{wording.percent(low)} to {wording.percent(high)}"


def _draw_curve(curve: Iterable[Point]) -> Table:
    columns = (
        Column("below a certainty of", "number", 3),
        Column("decided at once", "percent", 1),
        Column("wrong of these", "percent", 1),
        Column("right of all", "percent", 1),
        Column("difference", "percent", 1),
        Column("calls", "percent", 1),
    )
    rows = [
        (
            point.threshold,
            finite(point.share.value),
            estimate(point.error),
            finite(point.accuracy.value),
            finite(point.difference.value),
            finite(point.calls.value),
        )
        for point in curve
    ]
    note = (
        "Decided at once: by the first round. Difference: to debating everything, in points of 100;"
        " calls: as a share of those. A threshold read off here has to be tried on other items."
    )
    return Table("What escalating below a certainty does", columns, rows, note=note)


def _chart_curve(curve: Iterable[Point]) -> LineChart:
    points = [(p.calls.value, p.accuracy.value) for p in curve]
    return LineChart(
        "Right of all items, by the share of calls", {"escalation": points}, "calls", "right"
    )


def explain_selection(found: Escalated) -> str:
    """The threshold and how it is used, or why there is none."""
    made = found.selection
    aim = f"{made.agreement:.0%} agreement with a confidence of {made.confidence:.0%}"
    if made.threshold is None or found.chosen is None:
        return f"No threshold holds {aim}: {made.reason}."
    point = found.chosen
    gap, ends = point.difference.value, point.difference.interval
    return (
        f"For {aim}: --protocol escalation --escalate-below {made.threshold:g}. On these items that"
        f" decides {wording.percent(point.share.value, 1)} at once and takes"
        f" {wording.percent(point.calls.value, 1)} of the calls, for a difference of {_points(gap)}"
        f" ({_points(ends.low)} to {_points(ends.high)}) points to debating all. {_last(made)} It"
        " holds for new items like these, not for others."
    )


def _points(share: float) -> str:
    """A difference of two shares, in points of 100."""
    if finite(share) is None:
        return wording.DASH
    return f"{100 * share:+.1f}" if abs(share) >= 0.0005 else "0.0"


def _last(made: ThresholdSelection) -> str:
    step = [step for step in made.steps if step.threshold == made.threshold][-1]
    return (
        f"Of {step.items} first rounds so sure {step.errors} were wrong, so at most"
        f" {step.bound:.1%} are."
    )


def data(spec: EscalationSpec, found: Escalated) -> Mapping[str, Any]:
    return {
        "parameters": spec.model_dump(mode="json"),
        "sentence": explain_selection(found),
        "source": list(spec.items),
        "half": spec.half,
        **plain(found),
    }


def flatten(found: Debated) -> Iterator[Mapping[str, Any]]:
    used: Usage = found.usage
    yield {
        "item": found.item,
        "question": found.question,
        "status": found.failure.kind if found.failure else "scored",
        "certainty": finite(found.certainty),
        "first_round": finite(found.first),
        "debate": finite(found.debate),
        "first_round_calls": found.first_calls,
        "debate_calls": found.debate_calls,
        "tokens": used.tokens,
        "cost": used.cost,
        "reason": found.failure.reason if found.failure else None,
    }


encode, decode = json_codec(Debated)

STUDY = Study(
    spec=EscalationSpec,
    cases=read_cases,
    asks=lambda spec: Asks((judge_of(spec),)),
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
    aggregates=False,
)
