"""Escalation: from which certainty on a first judge may stand, and what that saves."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.bench.escalation import (
    FINE_THRESHOLDS,
    SPENT,
    Point,
    ThresholdSelection,
    format_points,
)
from textevolve.bench.two_judges import (
    Escalated,
    Taken,
    TwiceJudged,
    ask_both,
    debate_item,
    weigh_escalation,
)
from textevolve.bench.verdicts import ItemQuestion, orders_of
from textevolve.engine.local import stream
from textevolve.evaluation import Case, Usage
from textevolve.evaluators import judges_in
from textevolve.events import RecordsExpected
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table
from textevolve.report.cells import cell_text
from textevolve.report.data import plain
from textevolve.spec import option
from textevolve.statistics.intervals import Statistic
from textevolve.studies.cells import estimate, finite
from textevolve.studies.labelled_items import (
    OrdersSpec,
    item_of,
    read_cases,
    require_absolute_judges,
)
from textevolve.studies.study import Asks, Row, Study, json_decoder, row_of
from textevolve.wiring import Workbench

REASONS = 3


class EscalationSpec(OrdersSpec):
    """Find from which certainty on a first judge may stand, and what that saves and costs.

    Both judges are asked about every item. The threshold is selected so that its promise holds for
    new items, with the confidence that is asked for. Where no first judge is named, every item is
    debated to the end once, and the first round is the first judge.
    """

    kind: ClassVar[str] = "escalation"

    first: str | None = option(
        None,
        "The cheap judge, which decides where it is certain, such as probe+rules. Unset: the first"
        " round of the dear judge, which is a debate.",
        group="Judging",
    )
    then: str = option(
        "debate+protocol=blind-first+convergence=none",
        "The dear judge, which is asked where the first is not certain, such as debate:general.",
        group="Judging",
    )
    agreement: float = option(
        0.9,
        "How often a first judgement that may stand is to agree with people, from 0 to 1.",
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

    @model_validator(mode="after")
    def _usable(self) -> EscalationSpec:
        for judge in judges_of(self):
            judges_in(judge)
        return self


def judges_of(spec: EscalationSpec) -> tuple[str, ...]:
    """Two judges, or one debate."""
    return (spec.then,) if spec.first is None else (spec.first, spec.then)


def name_first(spec: EscalationSpec) -> str:
    return spec.first or "the first round"


def use_threshold(spec: EscalationSpec, threshold: float) -> str:
    """The option of the command line that uses a threshold."""
    if spec.first is None:
        return f"--protocol escalation --escalate-below {threshold:.6g}"
    return f"--judge {shlex.quote(f'cascade:{threshold:.6g}:{spec.first},{spec.then}')}"


def report(spec: EscalationSpec, found: Escalated) -> Report:
    facts = {
        "Items": f"{len(found.items):,}; {found.selection.items:,} of use, one a question",
        "First judge": f"{name_first(spec)}, right in {_share(found.first)}",
        "Second judge": f"{spec.then}, right in {_share(found.second)}",
    }
    reasons = dict.fromkeys(one.failure.reason for one in found.items if one.failure)
    if reasons:
        facts["Missing"] = "\n".join(wording.shorten(r, 160) for r in list(reasons)[:REASONS])
    title = f"Where {name_first(spec)} may stand"
    blocks = [_draw_curve(found.curve, spec)] if found.curve else []
    return Report(title, explain_selection(spec, found), blocks, facts)


def _share(figure: Statistic) -> str:
    return cell_text(estimate(figure), Column("", "percent"))


def explain_selection(spec: EscalationSpec, found: Escalated) -> str:
    """The threshold and how it is used, or why there is none."""
    made = found.selection
    aim = f"{made.agreement:.0%} agreement with a confidence of {made.confidence:.0%}"
    if made.threshold is None or found.chosen is None:
        return f"No threshold holds {aim}: {made.reason}."
    point = found.chosen
    return (
        f"For {aim} {name_first(spec)} may stand from a certainty of {made.threshold:.6g} on. On"
        f" these items that decides {wording.percent(point.share.value, 1)} at once and takes"
        f" {_say_spent(point)}, for a difference of {format_points(point.difference)} to asking"
        f" {spec.then} about all."
        f" {_last(made)} It holds for new items like these, not for others. To use it:"
        f" {use_threshold(spec, made.threshold)}"
    )


def _say_spent(point: Point) -> str:
    shares = [(name, getattr(point, name)) for name in SPENT]
    known = [f"{wording.percent(v, 1)} of the {name}" for name, v in shares if math.isfinite(v)]
    return ", ".join(known) or "calls that are not known"


def _last(made: ThresholdSelection) -> str:
    step = [step for step in made.steps if step.threshold == made.threshold][-1]
    return (
        f"Of {step.items} judgements so sure {step.errors} were wrong, so at most"
        f" {step.bound:.1%} are."
    )


def _draw_curve(curve: Sequence[Point], spec: EscalationSpec) -> Table:
    spent = [n for n in SPENT if any(math.isfinite(getattr(p, n)) for p in curve)]
    columns = (
        Column("below", "number", 6),
        Column("at once", "percent", 0),
        Column("wrong of these", "percent", 0),
        Column("right of all", "percent", 1),
        Column("gain", "percent", 1),
        *(Column(name, "percent", 0) for name in spent),
    )
    rows = [
        (
            point.threshold,
            finite(point.share.value),
            estimate(point.error),
            finite(point.accuracy.value),
            finite(point.difference.value),
            *(finite(getattr(point, name)) for name in spent),
        )
        for point in curve
    ]
    note = (
        f"Below: the certainty below which {spec.then} is asked. At once: decided by"
        f" {name_first(spec)}. Gain: over asking {spec.then} about all, in points of 100;"
        f" {', '.join(spent)}: as a share of that. A"
        " threshold read off here has to be tried on other items."
    )
    return Table("What escalating below a certainty does", columns, rows, note=note)


def run(
    spec: EscalationSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[TwiceJudged]:
    judges = [bench.whole_judge_of(judge) for judge in judges_of(spec)]
    items = [item_of(case) for case in cases]
    asked = [ItemQuestion(item, order) for item in items for order in orders_of(item, spec.orders)]
    require_absolute_judges(items, judges_of(spec))
    bench.listener(RecordsExpected(len(asked)))

    async def judge(placed: tuple[int, ItemQuestion]) -> TwiceJudged:
        position, question = placed
        if len(judges) == 2:
            return await ask_both(judges, question, position)
        return await debate_item(judges[0], question, position)

    return stream(enumerate(asked), judge, bench.concurrency)


def find_row(found: TwiceJudged) -> Row:
    key = found.item if found.order == "given" else f"{found.item} (reversed)"
    credit = finite(found.second.credit)
    return row_of(key, found.position, found.failure, found.item, credit)


def summarise(spec: EscalationSpec, records: Iterable[TwiceJudged]) -> Escalated:
    items = list(records)
    return weigh_escalation(
        items,
        agreement=spec.agreement,
        confidence=spec.confidence,
        thresholds=_thresholds_within(items),
    )


def _thresholds_within(items: Sequence[TwiceJudged]) -> tuple[float, ...]:
    """Those that tell these items apart, and the highest that decides all of them at once: what
    lies below has no item to speak for it. Certainties choose them, never credits."""
    known = [one.certainty for one in items if not math.isnan(one.certainty)]
    below = [t for t in FINE_THRESHOLDS if known and t <= min(known)]
    least = max(below, default=0.0)
    return tuple(t for t in FINE_THRESHOLDS if t >= least)


def data(spec: EscalationSpec, found: Escalated) -> Mapping[str, Any]:
    threshold = found.selection.threshold
    return {
        "parameters": spec.model_dump(mode="json"),
        "sentence": explain_selection(spec, found),
        "use": None if threshold is None else use_threshold(spec, threshold),
        "source": list(spec.items),
        "half": spec.half,
        **plain(found),
    }


def flatten(found: TwiceJudged) -> Iterator[Mapping[str, Any]]:
    used: Usage = found.usage
    yield {
        "item": found.item,
        "order": found.order,
        "question": found.question,
        "status": found.failure.kind if found.failure else "scored",
        "certainty": finite(found.certainty),
        "first": finite(found.first.credit),
        "second": finite(found.second.credit),
        **_spent("first", found.first),
        **_spent("second", found.second),
        "tokens": used.tokens,
        "cost": used.cost,
        "reason": found.failure.reason if found.failure else None,
    }


def _spent(name: str, taken: Taken) -> Mapping[str, Any]:
    known = taken.usage
    return {
        f"{name}_calls": None if known is None else known.calls,
        f"{name}_tokens": None if known is None else known.tokens,
        f"{name}_cost": None if known is None else known.cost,
    }


STUDY = Study(
    spec=EscalationSpec,
    cases=read_cases,
    asks=lambda spec: Asks(judges_of(spec)),
    run=run,
    row=find_row,
    decode=json_decoder(TwiceJudged),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
)
