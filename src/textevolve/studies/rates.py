"""Rates: a judge's rate or mean over many texts, corrected by the few that people judged too.

No model is asked: the verdicts are read from files. The estimators are in `textevolve.bench.rates`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np

from textevolve.bench.judged import JudgedTexts, read_judged
from textevolve.bench.rates import RateReport, explain_rate, report_rate
from textevolve.evaluation import Case
from textevolve.events import RecordsExpected
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Note, Report, Table
from textevolve.spec import option
from textevolve.studies.cells import finite, with_ends
from textevolve.studies.study import Asks, Row, Study, StudySpec, json_codec
from textevolve.wiring import Workbench


class RatesSpec(StudySpec):
    """Correct a judge's rate or mean over many texts by the few that people judged too.

    Reads JSONL, JSON, CSV and Parquet. Asks no model.
    """

    kind: ClassVar[str] = "rates"

    judged: str = option(
        description="What a judge said of many texts: a result file of textevolve evaluate, or rows"
        " with id and judged (true, false or 0 to 1).",
        argument=True,
        identity=False,
        reads=True,
    )
    labelled: str = option(
        description="Some such texts with what people said of them, as human, beside judged.",
        argument=True,
        identity=False,
        reads=True,
    )
    field: str | None = option(
        None, "The field with the judge's verdicts, such as score. Unset: judged, or else passed."
    )


def read_cases(spec: RatesSpec) -> Iterator[Case]:
    """A case for each text: what the judge said of it, and what people did where they were asked.
    The first says what no single text can."""
    found = read_judged(spec.judged, spec.labelled, spec.field)
    yield Case("", (), "about", {"field": found.field, "moved": found.moved})
    for number, judged in enumerate(found.judged.tolist(), 1):
        yield Case("", (), f"text {number}", {"judged": finite(judged)})
    labelled = zip(found.labelled_judged.tolist(), found.labelled_human.tolist(), strict=True)
    for number, (judged, human) in enumerate(labelled, 1):
        said = {"judged": finite(judged), "human": human}
        yield Case("", (), f"labelled text {number}", said)


def texts_of(cases: Iterable[Case]) -> JudgedTexts:
    """What `read_cases` made cases of."""
    about, *texts = (case.parameters for case in cases)
    labelled = [one for one in texts if "human" in one]
    return JudgedTexts(
        field=about["field"],
        judged=_numbers(one["judged"] for one in texts if "human" not in one),
        labelled_judged=_numbers(one["judged"] for one in labelled),
        labelled_human=_numbers(one["human"] for one in labelled),
        moved=about["moved"],
    )


def _numbers(values: Iterable[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


async def run(
    _spec: RatesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[RateReport]:
    bench.listener(RecordsExpected(1))
    yield report_rate(texts_of(cases))


def summarise(_spec: RatesSpec, records: Iterable[RateReport]) -> RateReport:
    *_, last = records
    return last


def report(_spec: RatesSpec, found: RateReport) -> Report:
    what = "Rate" if found.is_rate else "Mean"
    about = f"{what} of '{found.field}' over {wording.count(found.texts, 'text')}"
    about += f", corrected by {wording.count(found.labelled, 'labelled text')}"
    first, *rest = explain_rate(found)
    format = "percent" if found.is_rate else "number"
    columns = (Column(""), Column("value", format, 1 if found.is_rate else 3))
    table = Table("", columns, list(_rows(found)), note="Brackets: 95 % intervals.")
    notes = [Note(found.powered_note, "warning")] if found.powered_note else []
    return Report(about, first, [table, *notes, *(Note(sentence) for sentence in rest)])


def _rows(found: RateReport) -> Iterator[tuple[str, Estimate]]:
    yield "as judged", with_ends(found.raw, found.raw_interval)
    if found.corrected is not None:
        corrected = with_ends(found.corrected.value, found.corrected.interval)
        yield "corrected (Rogan-Gladen)", corrected
    if found.powered is not None:
        yield "prediction-powered mean", with_ends(found.powered.value, found.powered.interval)
        alone = with_ends(found.powered.human, found.powered.human_interval)
        yield "people's labels alone", alone


def data(_spec: RatesSpec, found: RateReport) -> Mapping[str, Any]:
    return {**asdict(found), "sentences": explain_rate(found)}


def flatten(found: RateReport) -> Iterator[Mapping[str, Any]]:
    """A row for each way to estimate."""
    for name, estimate in _rows(found):
        yield {
            "estimate": name,
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "texts": found.texts,
            "labelled": found.labelled,
        }


encode, decode = json_codec(RateReport)

STUDY = Study(
    spec=RatesSpec,
    cases=read_cases,
    asks=lambda _: Asks(),
    run=run,
    row=lambda found: Row("rate", reason=found.powered_note),
    encode=encode,
    decode=decode,
    summarise=summarise,
    report=report,
    data=data,
    flat=flatten,
)
