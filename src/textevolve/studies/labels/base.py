"""The options and steps that all studies on labelled items share: items (pairs of texts, or single
texts, with people's labels) are read, and judges are called on them.

Labels are stored with the cases, so that a run can be resumed and summarised from the store alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from textevolve.bench.escalation import SPENT
from textevolve.bench.items import Item, read_items, winner_of
from textevolve.bench.verdicts import (
    Verdict,
    View,
    count_samples,
    credit_of,
    orders_of,
    stream_verdicts,
)
from textevolve.errors import InputError
from textevolve.evaluation import Case, select_skipped
from textevolve.events import RecordsExpected
from textevolve.judges.judge import Judge, require_absolute
from textevolve.ledger import log
from textevolve.llm.meter import DistinctCalls
from textevolve.mappings import drop_empty, drop_none, read_fields
from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Section, Table
from textevolve.runs.aggregates import estimate, finite
from textevolve.runs.study import Row, json_decoder, record_reason, record_status
from textevolve.spec import Several, option
from textevolve.statistics.calibration import Calibration
from textevolve.studies.rows import MappedSpec
from textevolve.wiring import Workbench

# Whether judges see the texts of a pair in both orders, or only as given.
Orders = Literal["both", "given"]


WEIGHTED = ("agreement", "ablation")
"""The kinds of study that weight items which were drawn in strata."""


class LabelledItemsSpec(MappedSpec):
    """The base of specifications that read items with people's labels."""

    items: Several = option(
        (),
        "Files of items that people have judged, as JSONL, JSON, CSV or Parquet.",
        argument=True,
        identity=False,
        reads=True,
    )
    limit: int | None = option(
        None,
        "The most items to take, the first ones; default: all.",
        group="Items",
        identity=False,
        ge=1,
    )
    half: Literal["tune", "report"] | None = option(
        None,
        "Take only one half of the items: tune (to choose a judge or a threshold), or report (to"
        " measure it).",
        group="Items",
        identity=False,
    )

    good: Annotated[str, BeforeValidator(str, json_schema_input_type=str | float)] | None = option(
        None,
        "For single responses: the labels of good ones, separated by commas, or the lowest good"
        " grade. Default: pass, good, true, yes or 1, or the upper half of the scale.",
        group="Items",
        identity=False,
        metavar="LABEL,...|GRADE",
    )


class OrdersSpec(LabelledItemsSpec):
    """The base of specifications in which judges see the texts of an item in one or both orders."""

    orders: Orders = option(
        "both",
        "Judge each item in both orders of its texts, or only in the given order.",
        group="Judging",
    )


class RepeatsSpec(OrdersSpec):
    """The base of specifications in which judges may judge the same item several times."""

    equal_tokens: bool = option(
        False,
        "Repeat cheaper judges until each has used as many tokens as the dearest.",
        group="Judging",
    )
    seed: int = option(0, "The seed of the bootstrap intervals.", group="Statistics", ge=0)


def read_labelled_items(spec: LabelledItemsSpec) -> Iterator[Case]:
    if not spec.items:
        raise InputError("no items: name the files of labelled items")
    items = read_items(
        spec.items,
        half=spec.half,
        limit=spec.limit,
        renamed=spec.map,
        good=spec.good,
    )
    if spec.kind not in WEIGHTED and any(item.stratum for item in items):
        log.warning(
            "the items were drawn with `labels create --draw judges`: here each counts once, only"
            " `bench agreement` weights them to all items"
        )
    yield from map(as_case, items)


def as_case(item: Item) -> Case:
    about = {
        "human": list(item.human) if item.labelled else None,
        "group": item.group,
        "subset": item.subset,
        "reference": item.reference,
    }
    about |= drop_none({"context": item.context})
    about |= drop_empty({"labels": dict(item.labels)})
    about |= drop_none({"stratum": item.stratum})

    return Case(item.input, item.candidates, item.id, about)


def item_of(case: Case) -> Item:
    """Return the item that a case was built from."""
    about = dict(case.parameters)
    human = tuple(about.pop("human") or [math.nan] * len(case.candidates))
    labels = tuple(about.pop("labels", {}).items())
    if "stratum" in about:
        about["stratum"] = tuple(about["stratum"])
    return Item(case.id, case.input, tuple(case.candidates), human, **about, labels=labels)


@dataclass(frozen=True, slots=True)
class ItemVerdict:
    """A judge's verdict with the item that it concerns. `position`: the number of the verdict in
    the run."""

    position: int
    item: Item
    verdict: Verdict

    @property
    def credit(self) -> float | None:
        """Return the agreement with people: 1 if the judge and people choose the same, 0.5 if only
        one side sees a tie between two texts, 0 otherwise; None without a verdict or a label."""
        return finite(credit_of(self.item, self.verdict))


async def ask_judges(
    cases: Iterable[Case],
    judges: Sequence[Judge],
    bench: Workbench,
    *,
    orders: Orders,
    samples: int = 1,
    equal_tokens: bool = False,
    views: Mapping[str, View] | None = None,
) -> AsyncGenerator[ItemVerdict]:
    """Yield the verdicts of every judge on every item.

    `orders`: whether a pair is shown in both orders. `samples`: the number of verdicts of a judge
    on the same question. `equal_tokens`: afterwards cheap judges give further samples until each
    judge has used about as many tokens, unless a limit skipped some of the first. `views`: further
    judges by name, whose verdicts are computed from another judge's evaluation, without calls.
    """
    items = {case.id: item_of(case) for case in cases}
    require_absolute_judges(items.values(), judges)
    opened = {judge.text: bench.whole_judge_of(judge) for judge in judges}
    ranges = dict.fromkeys(opened, range(samples))
    counted: defaultdict[str, DistinctCalls] = defaultdict(DistinctCalls)
    verdicts: list[Verdict] = []

    # How many further samples a judge gets follows from the tokens of its first ones.
    rounds = (False, True) if equal_tokens else (False,)
    for again in rounds:
        if again:
            if select_skipped(verdict.failure for verdict in verdicts):
                return
            views = None
            numbers = count_samples(verdicts, list(opened))
            ranges = {name: range(1, number) for name, number in numbers.items()}

        samples_per_order = sum(map(len, ranges.values())) + len(views or ())
        presentations = sum(len(orders_of(item, orders)) for item in items.values())
        bench.listener(RecordsExpected(len(verdicts) + samples_per_order * presentations))
        stream = stream_verdicts(
            items.values(),
            opened,
            orders=orders,
            concurrency=bench.concurrency,
            samples=ranges,
            counted=counted,
            views=views,
        )
        async with aclosing(stream):
            async for verdict in stream:
                yield ItemVerdict(len(verdicts), items[verdict.item], verdict)
                verdicts.append(verdict)


def require_absolute_judges(items: Iterable[Item], judges: Iterable[Judge]) -> None:
    """Raise InputError if items are single responses and a judge can only compare candidates."""
    if any(item.is_single for item in items):
        for judge in judges:
            require_absolute(judge)


def find_row(record: ItemVerdict) -> Row:
    """Return the store columns of a verdict. Its score is the credit."""
    verdict = record.verdict
    failure = verdict.failure
    return Row(
        key=f"{verdict.judge}/{verdict.order}/{verdict.sample}/{verdict.item}",
        position=record.position,
        case=verdict.item,
        score=record.credit,
        status=record_status(failure),
        reason=f"{verdict.judge}: {failure.reason}" if failure else "",
        variant=verdict.judge,
    )


def flatten(record: ItemVerdict) -> Iterator[dict[str, Any]]:
    verdict = record.verdict
    yield {
        "item": verdict.item,
        "subset": record.item.subset,
        "input": record.item.input,
        **_name_texts(record.item),
        "people": name_people(record.item),
        **read_fields(verdict, "judge", "order", "sample"),
        "status": record_status(verdict.failure),
        "scores": list(verdict.scores),
        "unit": "log-odds" if verdict.log_odds else "score",
        "credit": record.credit,
        **drop_none({"passed": verdict.passed}),
        **read_fields(verdict.usage, *SPENT),
        "seconds": verdict.seconds,
        "reason": record_reason(verdict.failure),
    }


def _name_texts(item: Item) -> dict[str, str]:
    """Return the texts of an item by their names: the response, or the letters of several."""
    if item.is_single:
        return {"response": item.candidates[0]}
    return {wording.letter(place): text for place, text in enumerate(item.candidates)}


def name_choice(item: Item, winner: int) -> str:
    """Return a winner as a letter, or as a tie if it is negative; for a single response return pass
    or fail."""
    if item.is_single:
        return "pass" if winner else "fail"
    return "tie" if winner < 0 else wording.letter(winner)


def name_people(item: Item) -> str:
    """Return what people chose; empty without a label."""
    if not item.labelled:
        return ""
    winner = int(item.human[0] > 0.5) if item.is_single else winner_of(item.human)
    return name_choice(item, winner)


decode = json_decoder(ItemVerdict)


def count_items(items: int, questions: int) -> str:
    return f"{wording.count(items, 'item')} on {wording.count(questions, 'question')}"


def describe_right(*, is_single: bool) -> str:
    """Return the verb of a sentence on how often a judge is right: on single responses it agrees
    with most people, of several texts it chooses the same."""
    return "agrees with people" if is_single else "makes the choice of people"


def list_source(spec: LabelledItemsSpec) -> dict[str, Any]:
    """Return the files of the items, and the half of them that was used, as JSON-ready data."""
    return {"source": list(spec.items), "half": spec.half}


# The report on how well probabilities are calibrated: how often the predicted event came true,
# compared with its predicted probability.
#
# The probabilities come from judges, from signals of judges, or from fitted judges.


def draw_calibrations(
    calibrations: Mapping[str, Calibration], event: str, missing: str
) -> Iterator[Block]:
    """Draw the calibration figures and the calibration curve of each judge. `event`: what the
    probabilities predict, in words; `missing`: a sentence on judges that give no probabilities."""
    if not calibrations:
        return
    columns = (
        "judge",
        Column("Brier", "number", 3),
        Column("ECE", "number", 3),
        Column("by chance", "number", 3),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            estimate(calibration.brier),
            estimate(calibration.ece),
            finite(calibration.ece_by_chance),
        )
        for name, calibration in calibrations.items()
    ]
    most = max(calibrations.values(), key=lambda calibration: calibration.items)
    rows.append(("always the share", finite(most.base_brier), "", ""))
    note = (
        f"Of the probability that {event}; lower is better. ECE: mean distance between predicted"
        " and observed shares, over bins of equal mass; by chance: its value if every probability"
        f" were right. The last row always predicts the share of all items:"
        f" {wording.percent(most.base_rate)}."
    )
    yield Table("Calibration", columns, rows, note=f"{note} {missing}".rstrip())
    points = [
        (name, point.probability, estimate(point.observed), point.count)
        for name, calibration in calibrations.items()
        for point in calibration.curve
    ]
    curve = Table(
        "",
        (
            "judge",
            Column("probability", "percent", 0),
            Column("came true", "percent", 0),
            "items",
        ),
        points,
    )
    yield Section("Calibration curve", [curve], folded=True)
