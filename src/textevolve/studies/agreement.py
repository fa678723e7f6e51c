"""The agreement study: it measures how far judges agree with people on labelled items, and which
judge agrees better.

`textevolve.bench.verdicts` collects the judges' verdicts, and `textevolve.bench.agreement` computes
the figures.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, ClassVar

from textevolve.bench.agreement import summarise
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.report.blocks import Report
from textevolve.report.data import plain
from textevolve.spec import Several, option
from textevolve.studies.agreement_report import (
    MeasuredJudges,
    draw_agreement,
    summary_facts,
    summary_sentence,
)
from textevolve.studies.labelled_items import (
    ItemVerdict,
    RepeatsSpec,
    ask_judges,
    decode,
    find_row,
    flatten,
    read_cases,
)
from textevolve.studies.study import Asks, Study
from textevolve.wiring import Workbench


class AgreementSpec(RepeatsSpec):
    """Measure how far judges agree with people, and whether one does better than another.

    Each judge sees the texts of each item in both orders. A difference between two judges is
    reported with an interval and a test.
    """

    kind: ClassVar[str] = "agreement"

    judge: Several = option(
        description="A judge to measure, such as debate:general, jury or pairwise+rules."
        " Repeatable.",
        short="-j",
        group="Judging",
        min_length=1,
    )
    samples: int = option(
        1, "The number of times that each judge judges each item.", group="Judging", ge=1
    )
    threshold: float | None = option(
        None,
        "The score from which a single response passes; default: the judge's own verdict.",
        group="Judging",
        ge=0,
        le=1,
    )


def ask(spec: AgreementSpec) -> Asks:
    if spec.equal_tokens and spec.samples != 1:
        raise InputError(
            "give samples or equal tokens, not both: with equal tokens the number of samples"
            " follows from the cost"
        )
    return Asks(spec.judge)


def run(
    spec: AgreementSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[ItemVerdict]:
    return ask_judges(
        cases,
        spec.judge,
        bench,
        orders=spec.orders,
        samples=spec.samples,
        equal_tokens=spec.equal_tokens,
    )


def sum_up(spec: AgreementSpec, records: Iterable[ItemVerdict]) -> MeasuredJudges:
    return measure_judges(records, spec, spec.threshold)


def measure_judges(
    records: Iterable[ItemVerdict], spec: RepeatsSpec, threshold: float | None = None
) -> MeasuredJudges:
    """Compute the agreement figures of all verdicts. `threshold`: the score from which a single
    response passes; None: the judge's own verdict counts.

    Raises:
        InputError: there is no record.
    """
    items: dict[str, Item] = {}
    verdicts: list[Verdict] = []
    samples: dict[str, int] = {}
    for record in records:
        verdict = record.verdict
        items.setdefault(record.item.id, record.item)
        verdicts.append(verdict)
        samples[verdict.judge] = max(samples.get(verdict.judge, 1), verdict.sample + 1)
    summary = summarise(tuple(items.values()), verdicts, seed=spec.seed, threshold=threshold)
    return MeasuredJudges(tuple(items.values()), tuple(verdicts), samples, summary)


def report(spec: AgreementSpec, measured: MeasuredJudges) -> Report:
    blocks = draw_agreement(measured, spec.threshold)
    facts = summary_facts(measured.summary)
    return Report("Judges compared with people", summary_sentence(measured.summary), blocks, facts)


def data(spec: AgreementSpec, measured: MeasuredJudges) -> Mapping[str, Any]:
    return {"parameters": spec.model_dump(mode="json"), **measured_data(spec, measured)}


def measured_data(spec: RepeatsSpec, measured: MeasuredJudges) -> dict[str, Any]:
    return {
        "source": list(spec.items),
        "half": spec.half,
        "orders": spec.orders,
        "samples": dict(measured.samples),
        "summary": plain(measured.summary),
    }


STUDY = Study(
    spec=AgreementSpec,
    cases=read_cases,
    asks=ask,
    run=run,
    row=find_row,
    decode=decode,
    summarise=sum_up,
    report=report,
    data=data,
    flat=flatten,
    variants=lambda spec, _model: spec.judge,
)
