"""Agreement: how far judges agree with people on labelled items, and which does better.

Verdicts are gathered in `textevolve.bench.verdicts`, and summed up in `textevolve.bench.agreement`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import model_validator

from textevolve.bench.agreement import AgreementSummary, summarise
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict, count_samples
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.report.blocks import Report
from textevolve.report.data import plain
from textevolve.spec import Several, option
from textevolve.studies.agreement_report import draw_agreement, summary_facts, summary_sentence
from textevolve.studies.labelled_items import (
    ItemVerdict,
    OrdersSpec,
    Questioning,
    ask_judges,
    decode,
    encode,
    find_row,
    flatten,
    is_skipped,
    read_cases,
)
from textevolve.studies.study import Asks, Study
from textevolve.wiring import Workbench


class AgreementSpec(OrdersSpec):
    """Measure how far judges agree with people, and whether one does better than another.

    Each judge is asked about each item with its texts in both orders. A difference between two
    judges is told with an interval and a test.
    """

    kind: ClassVar[str] = "agreement"

    judge: Several = option(
        description="A judge, such as debate:general, jury or pairwise+rules. Repeatable.",
        short="-j",
        group="Judging",
        min_length=1,
    )
    samples: int = option(1, "How often each judge is asked the same.", group="Judging", ge=1)

    @model_validator(mode="after")
    def _usable(self) -> AgreementSpec:
        if self.equal_tokens and self.samples != 1:
            raise InputError("give samples or equal tokens, not both: the latter finds the number")
        return self


@dataclass(frozen=True, slots=True)
class MeasuredJudges:
    """What came of asking. `samples`: how many each judge gave. `once`: the figures of the first
    sample, where further ones were asked to equal tokens; None where they were not, which is also
    so while verdicts of the first pass are missing because a limit was reached."""

    items: tuple[Item, ...]
    verdicts: tuple[Verdict, ...]
    samples: Mapping[str, int]
    summary: AgreementSummary
    once: AgreementSummary | None = None


def ask(spec: AgreementSpec) -> Asks:
    return Asks(spec.judge)


def run(
    spec: AgreementSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[ItemVerdict]:
    how = Questioning(spec.orders, spec.samples, spec.equal_tokens)
    return ask_judges(cases, spec.judge, how, bench)


def sum_up(spec: AgreementSpec, records: Iterable[ItemVerdict]) -> MeasuredJudges:
    return measure_judges(records, spec.judge, spec, spec.samples)


def measure_judges(
    records: Iterable[ItemVerdict], judges: tuple[str, ...], spec: OrdersSpec, samples: int = 1
) -> MeasuredJudges:
    """The figures of all verdicts; those of the first samples, too, once further ones were asked.

    Raises:
        InputError: there is no record.
    """
    items: dict[str, Item] = {}
    verdicts: list[Verdict] = []
    for record in records:
        items.setdefault(record.item.id, record.item)
        verdicts.append(record.verdict)
    known, all_items = tuple(verdicts), tuple(items.values())
    counts = dict.fromkeys([v.judge for v in known], 1) | dict.fromkeys(judges, samples)
    summary = summarise(all_items, known, seed=spec.seed)
    first = [v for v in known if v.sample == 0]
    if not spec.equal_tokens or any(map(is_skipped, first)):
        return MeasuredJudges(all_items, known, counts, summary)
    planned = count_samples(first, judges)
    if len(first) == len(known) and set(planned.values()) > {1}:  # stopped before the second pass
        return MeasuredJudges(all_items, known, counts, summary)
    once = summarise(all_items, first, seed=spec.seed)
    return MeasuredJudges(all_items, known, counts | planned, summary, once)


def report(spec: AgreementSpec, found: MeasuredJudges) -> Report:
    blocks = draw_agreement(found.items, found.verdicts, found.samples, found.summary, found.once)
    facts = summary_facts(found.summary, said_to_equal=spec.equal_tokens, once=found.once)
    return Report("Judges beside people", summary_sentence(found.summary), blocks, facts)


def data(spec: AgreementSpec, found: MeasuredJudges) -> Mapping[str, Any]:
    return {"parameters": spec.model_dump(mode="json"), **measured_data(spec, found)}


def measured_data(spec: OrdersSpec, found: MeasuredJudges) -> dict[str, Any]:
    return {
        "source": list(spec.items),
        "half": spec.half,
        "orders": spec.orders,
        "samples": dict(found.samples),
        "summary": plain(found.summary),
        "once": plain(found.once),
    }


STUDY = Study(
    spec=AgreementSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    encode=encode,
    decode=decode,
    summarise=sum_up,
    report=report,
    data=data,
    flat=flatten,
    aggregates=False,
    variants=lambda spec, _model: spec.judge,
)
