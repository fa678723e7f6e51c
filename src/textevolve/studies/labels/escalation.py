"""The escalation study: a cheap judge decides if it is certain, and otherwise an expensive judge
does. The study selects the certainty from which the cheap judge's verdict is good enough, and
reports the savings.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.bench.ablation import (
    CreditedVerdict,
    Escalated,
    TwiceJudged,
    ask_both,
    debate_item,
    weigh_escalation,
)
from textevolve.bench.escalation import (
    FINE_THRESHOLDS,
    SPENT,
    Point,
    ThresholdSelection,
    format_points,
)
from textevolve.bench.verdicts import ItemQuestion, orders_of
from textevolve.engine.local import stream
from textevolve.evaluation import Case
from textevolve.events import RecordsExpected
from textevolve.judges.judge import Judge, parse_judge
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, cell_text
from textevolve.rows.writing import plain
from textevolve.runs.aggregates import estimate, finite
from textevolve.runs.study import (
    Asks,
    Row,
    Study,
    json_decoder,
    record_reason,
    record_status,
    row_of,
)
from textevolve.spec import option
from textevolve.statistics.intervals import Statistic
from textevolve.studies.labels.base import (
    OrdersSpec,
    item_of,
    list_source,
    read_labelled_items,
    require_absolute_judges,
)
from textevolve.wiring import Workbench

REASONS = 3


class EscalationSpec(OrdersSpec):
    """Find the certainty from which a cheap judge may decide, and what that saves and costs.

    Both judges judge every item. The threshold is chosen so that the agreement holds for new items
    with the requested confidence. Without --first, every item is debated to the end, and the scores
    of the first round are those of the first judge.
    """

    kind: ClassVar[str] = "escalation"

    first: Judge | None = option(
        None,
        "The cheap judge, which decides if it is certain, such as probe+rules; default: the"
        " first round of the expensive judge, which must be a debate.",
        group="Judging",
    )
    then: Judge = option(
        parse_judge("debate+protocol=blind-first+convergence=none"),
        "The expensive judge, which decides if the cheap one is uncertain, such as debate:general.",
        group="Judging",
    )
    agreement: float = option(
        0.9,
        "The least share of the cheap judge's decisions that must agree with people, from 0 to 1.",
        group="Statistics",
        gt=0,
        lt=1,
    )
    confidence: float = option(
        0.9,
        "The probability with which that share must hold for new items, from 0 to 1.",
        group="Statistics",
        gt=0,
        lt=1,
    )

    @model_validator(mode="after")
    def _usable(self) -> EscalationSpec:
        for judge in judges_of(self):
            judge.check()
        return self


def judges_of(spec: EscalationSpec) -> tuple[Judge, ...]:
    """Return the cheap and the expensive judge; or one debate, whose first round is the cheap
    judge."""
    return (spec.then,) if spec.first is None else (spec.first, spec.then)


def name_first(spec: EscalationSpec) -> str:
    return spec.first.text if spec.first else "the first round"


def use_threshold(spec: EscalationSpec, threshold: float) -> str:
    """Return the option of the command line that applies a threshold."""
    if spec.first is None:
        return f"--protocol escalation --escalate-below {threshold:.6g}"
    return f"--judge {shlex.quote(f'cascade:{threshold:.6g}:{spec.first},{spec.then}')}"


def report(spec: EscalationSpec, result: Escalated) -> Report:
    reasons = dict.fromkeys(item.failure.reason for item in result.items if item.failure)
    facts = {
        "Items": f"{len(result.items):,}; {result.selection.items:,} of use, one a question",
        "First judge": f"{name_first(spec)}, right in {_share(result.first)}",
        "Second judge": f"{spec.then}, right in {_share(result.second)}",
        "Missing": "\n".join(wording.shorten(reason, 160) for reason in list(reasons)[:REASONS]),
    }
    title = f"When {name_first(spec)} is good enough"
    blocks = [_draw_curve(result.curve, spec)] if result.curve else []

    return Report(title, explain_selection(spec, result), blocks, facts)


def _share(figure: Statistic) -> str:
    return cell_text(estimate(figure), Column("", "percent"))


def explain_selection(spec: EscalationSpec, result: Escalated) -> str:
    """Describe the selected threshold and how to use it, or the reason why there is none."""
    selection = result.selection
    aim = f"{selection.agreement:.0%} agreement with a confidence of {selection.confidence:.0%}"
    if selection.threshold is None or result.chosen is None:
        return f"No threshold reaches {aim}: {selection.reason}."
    point = result.chosen

    return (
        f"For {aim} {name_first(spec)} is good enough from a certainty of"
        f" {selection.threshold:.6g} on."
        f" On these items that decides {wording.percent(point.share.value, 1)} at once and takes"
        f" {_describe_cost(point)}, for a difference of {format_points(point.difference)} to asking"
        f" {spec.then} about all."
        f" {_last(selection)} It holds for new items like these, not for others. To use it:"
        f" {use_threshold(spec, selection.threshold)}"
    )


def _describe_cost(point: Point) -> str:
    texts: list[str] = []
    for name in SPENT:
        share = getattr(point, name)
        if math.isfinite(share):
            texts.append(f"{wording.percent(share, 1)} of the {name}")

    return ", ".join(texts) or "an unknown number of calls"


def _last(selection: ThresholdSelection) -> str:
    step = [step for step in selection.steps if step.threshold == selection.threshold][-1]
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
    # The curve is computed on the items that it shows, so its best threshold looks too good.
    note = (
        f"Below: the certainty below which {spec.then} is asked. At once: decided by"
        f" {name_first(spec)}. Gain: over asking {spec.then} about all, in points of 100;"
        f" {', '.join(spent)}: as a share of that."
        " A threshold read off here has to be tried on other items."
    )

    return Table("What escalating below a certainty does", columns, rows, note=note)


def run(
    spec: EscalationSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[TwiceJudged]:
    judges = list(map(bench.whole_judge_of, judges_of(spec)))
    items = list(map(item_of, cases))
    item_questions = [
        ItemQuestion(item, order) for item in items for order in orders_of(item, spec.orders)
    ]
    require_absolute_judges(items, judges_of(spec))
    bench.listener(RecordsExpected(len(item_questions)))

    async def judge(placed: tuple[int, ItemQuestion]) -> TwiceJudged:
        position, question = placed
        if len(judges) == 2:
            return await ask_both(judges, question, position)
        return await debate_item(judges[0], question, position)

    return stream(enumerate(item_questions), judge, bench.concurrency)


def find_row(judgement: TwiceJudged) -> Row:
    key = judgement.item if judgement.order == "given" else f"{judgement.item} (reversed)"
    credit = finite(judgement.second.credit)
    return row_of(key, judgement.position, judgement.failure, judgement.item, credit)


def summarise(spec: EscalationSpec, records: Iterable[TwiceJudged]) -> Escalated:
    items = list(records)
    return weigh_escalation(
        items,
        agreement=spec.agreement,
        confidence=spec.confidence,
        thresholds=_thresholds_within(items),
    )


def _thresholds_within(items: Sequence[TwiceJudged]) -> tuple[float, ...]:
    """Return the candidate thresholds, from the highest one that lets the cheap judge decide all
    items: lower ones would decide no more. The selection uses certainties only, not the labels."""
    certainties = (item.certainty for item in items if not math.isnan(item.certainty))
    lowest = min(certainties, default=-math.inf)
    least = max((t for t in FINE_THRESHOLDS if t <= lowest), default=0.0)
    return tuple(t for t in FINE_THRESHOLDS if t >= least)


def data(spec: EscalationSpec, result: Escalated) -> Mapping[str, Any]:
    threshold = result.selection.threshold
    return {
        "parameters": spec.model_dump(mode="json"),
        "sentence": explain_selection(spec, result),
        "use": None if threshold is None else use_threshold(spec, threshold),
        **list_source(spec),
        **plain(result),
    }


def flatten(judgement: TwiceJudged) -> Iterator[Mapping[str, Any]]:
    yield {
        **read_fields(judgement, "item", "order", "question"),
        "status": record_status(judgement.failure),
        "certainty": finite(judgement.certainty),
        "first": finite(judgement.first.credit),
        "second": finite(judgement.second.credit),
        **_spent("first", judgement.first),
        **_spent("second", judgement.second),
        **read_fields(judgement.usage, "tokens", "cost"),
        "reason": record_reason(judgement.failure),
    }


def _spent(name: str, part: CreditedVerdict) -> Mapping[str, Any]:
    return {f"{name}_{figure}": getattr(part.usage, figure, None) for figure in SPENT}


STUDY = Study(
    spec=EscalationSpec,
    cases=read_labelled_items,
    asks=lambda spec: Asks(judges_of(spec)),
    run=run,
    row=find_row,
    decode=json_decoder(TwiceJudged),
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
)
