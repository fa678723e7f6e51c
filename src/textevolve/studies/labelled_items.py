"""What all studies on labelled items share: where items come from, and who is asked about them.

Labels travel with the cases, so that a run can be gone on with, and summed up, from the store.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

from textevolve.bench.items import Item, read_items
from textevolve.bench.verdicts import (
    Verdict,
    View,
    count_samples,
    credit_of,
    orders_of,
    stream_verdicts,
)
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.evaluators import check_absolute
from textevolve.events import RecordsExpected
from textevolve.llm.usage_meter import DistinctCalls
from textevolve.spec import Several, option
from textevolve.studies.case_rows import MappedSpec
from textevolve.studies.cells import finite
from textevolve.studies.study import Row, json_codec
from textevolve.wiring import Workbench

Orders = Literal["both", "given"]
GoodLabels: TypeAlias = Annotated[str, BeforeValidator(str)]
"""A label, or a grade as text, of single responses."""


class LabelledItemsSpec(MappedSpec):
    """Where labelled items come from."""

    items: Several = option(
        (),
        "Files of items that people have judged, as JSONL, JSON, CSV or Parquet.",
        argument=True,
        identity=False,
        reads=True,
    )
    limit: int | None = option(
        None, "Take only the first so many items.", group="Items", identity=False, ge=1
    )
    half: Literal["tune", "report"] | None = option(
        None,
        "Take only one half of the items: the one to choose on, or the one to report on.",
        group="Items",
        identity=False,
    )

    good: GoodLabels | None = option(
        None,
        "Of single responses: the labels of good ones, with commas between them, or the grade from"
        " which one is good. Unset: pass, good, true, yes or 1, or the upper half of the scale.",
        group="Items",
        identity=False,
        metavar="LABEL,...|GRADE",
    )


class OneProfileSpec(LabelledItemsSpec):
    """One profile whose agents are asked in several ways."""

    profile: str = option(
        "general", "Who debates: a shipped profile, or a YAML file.", short="-p", group="Judging"
    )
    judge_option: Several = option(
        (),
        "An option that every judge gets: rules, or a parameter of the profile such as"
        " readout=verbalized. Repeatable.",
        group="Judging",
    )


class OrdersSpec(LabelledItemsSpec):
    """How often judges are asked about an item."""

    orders: Orders = option(
        "both",
        "Ask about each item in both orders of its texts, or only as given.",
        group="Judging",
    )
    equal_tokens: bool = option(
        False,
        "Ask cheaper judges again until each has used the tokens of the dearest.",
        group="Judging",
    )
    seed: int = option(0, "Seed of the bootstrap.", group="Statistics", ge=0)


def name_judge(spec: OneProfileSpec, kind: str, *more: str) -> str:
    """A judge's text; the profile that is the default is not named."""
    named = kind if spec.profile == "general" else f"{kind}:{spec.profile}"
    return "+".join([named, *spec.judge_option, *more])


def read_cases(spec: LabelledItemsSpec) -> Iterator[Case]:
    if not spec.items:
        raise InputError("items are missing: name the files that hold them")
    items = read_items(
        spec.items,
        half=spec.half,
        limit=spec.limit,
        renamed=spec.map,
        good=spec.good,
    )
    yield from map(as_case, items)


def as_case(item: Item) -> Case:
    about = {
        "human": list(item.human) if item.labelled else None,
        "group": item.group,
        "subset": item.subset,
        "reference": item.reference,
    }
    about |= {} if item.context is None else {"context": item.context}
    about |= {"labels": dict(item.labels)} if item.labels else {}
    return Case(item.input, item.candidates, item.id, about)


def item_of(case: Case) -> Item:
    """What `as_case` made a case of."""
    about = dict(case.parameters)
    human = tuple(about.pop("human") or [math.nan] * len(case.candidates))
    labels = tuple(about.pop("labels", {}).items())
    return Item(case.id, case.input, tuple(case.candidates), human, **about, labels=labels)


@dataclass(frozen=True, slots=True)
class ItemVerdict:
    """A verdict with what it is about; `position` is its place in the run."""

    position: int
    item: Item
    verdict: Verdict


async def ask_judges(
    cases: Iterable[Case],
    judges: Sequence[str],
    bench: Workbench,
    *,
    orders: Orders = "both",
    samples: int = 1,
    equal_tokens: bool = False,
    views: Mapping[str, View] | None = None,
) -> AsyncGenerator[ItemVerdict]:
    """Every judge's verdicts on every item; `views` as of `stream_verdicts`. With `equal_tokens`
    further samples follow, unless a limit left out something of the first."""
    items = {case.id: item_of(case) for case in cases}
    refuse_relative(items.values(), judges)
    opened = {judge: bench.whole_judge_of(judge) for judge in judges}
    ranges = dict.fromkeys(judges, range(samples))
    counted = defaultdict[str, DistinctCalls](DistinctCalls)
    verdicts: list[Verdict] = []
    for again in (False, True) if equal_tokens else (False,):
        if again:
            if any(v.failure is not None and v.failure.kind == "skipped" for v in verdicts):
                return
            ranges = {name: range(1, n) for name, n in count_samples(verdicts, judges).items()}
        number = sum(map(len, ranges.values())) + (0 if again else len(views or ()))
        each = sum(len(orders_of(item, orders)) for item in items.values())
        bench.listener(RecordsExpected(len(verdicts) + number * each))
        stream = stream_verdicts(
            items.values(),
            opened,
            orders=orders,
            concurrency=bench.concurrency,
            samples=ranges,
            counted=counted,
            views=None if again else views,
        )
        async with aclosing(stream):
            async for verdict in stream:
                yield ItemVerdict(len(verdicts), items[verdict.item], verdict)
                verdicts.append(verdict)


def refuse_relative(items: Iterable[Item], judges: Iterable[str]) -> None:
    """Raises InputError if a judge only compares candidates, and the items are single responses."""
    if any(item.is_single for item in items):
        for judge in judges:
            check_absolute(judge)


def find_row(found: ItemVerdict) -> Row:
    """A verdict's score is its credit: 1 where the judge chose as people did, a tie half."""
    verdict = found.verdict
    failure = verdict.failure
    return Row(
        key=f"{verdict.judge}/{verdict.order}/{verdict.sample}/{verdict.item}",
        position=found.position,
        case=verdict.item,
        score=finite(credit_of(found.item, verdict)),
        status=failure.kind if failure else "scored",
        reason=f"{verdict.judge}: {failure.reason}" if failure else "",
        variant=verdict.judge,
    )


def flatten(found: ItemVerdict) -> Iterator[dict[str, Any]]:
    verdict = found.verdict
    yield {
        "item": verdict.item,
        "subset": found.item.subset,
        "judge": verdict.judge,
        "order": verdict.order,
        "sample": verdict.sample,
        "status": verdict.failure.kind if verdict.failure else "scored",
        "scores": list(verdict.scores),
        "unit": "log-odds" if verdict.log_odds else "score",
        "credit": finite(credit_of(found.item, verdict)),
        **({} if verdict.passed is None else {"passed": verdict.passed}),
        "calls": verdict.usage.calls,
        "tokens": verdict.usage.tokens,
        "cost": verdict.usage.cost,
        "seconds": verdict.seconds,
        "reason": verdict.failure.reason if verdict.failure else None,
    }


encode, decode = json_codec(ItemVerdict)
