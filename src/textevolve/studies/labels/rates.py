"""The rates study: a judge's pass rate or mean score over many texts, corrected by the few texts
that people judged as well.

No model is called. The judge's verdicts are read from tables that `textevolve evaluate -o
results.csv` writes, or from rows with `id` and `judged`. Labelled rows also have `human`; if their
verdict is missing, it is looked up by `id` (and `candidate`). `textevolve.bench.rates` has the
estimator.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import asdict
from statistics import fmean
from typing import Any, ClassVar, TypeAlias

from textevolve.bench.labels import (
    HUMAN,
    LABEL,
    describe_people,
    label_columns,
    label_text,
    require_single_people,
    take_label,
)
from textevolve.bench.rates import RateReport, explain_rate, report_rate
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.events import RecordsExpected
from textevolve.ledger import log
from textevolve.loading import np
from textevolve.mappings import read_fields
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Note, Report, Table
from textevolve.rows import Row as FileRow
from textevolve.rows import read_rows
from textevolve.rows.columns import Columns
from textevolve.runs.aggregates import with_ends
from textevolve.runs.study import Asks, Row, Study, StudySpec, json_decoder, last_record
from textevolve.spec import option
from textevolve.statistics.intervals import Array, vector
from textevolve.wiring import Workbench

# The fields that may hold the judge's verdict; the first that exists is used.
FIELDS = ("judged", "passed")

TextKey: TypeAlias = tuple[str, str]
"""The id of a row, and the number of its candidate, from 1."""


class RatesSpec(StudySpec):
    """Correct a judge's rate or mean over many texts by the few that people judged too.

    Files are JSONL, JSON, CSV or Parquet. No model is called.
    """

    kind: ClassVar[str] = "rates"

    judged: str = option(
        description="A judge's verdicts on many texts: a table (.csv, .parquet) of textevolve"
        " evaluate, or rows with id and judged (true, false or 0 to 1).",
        argument=True,
        identity=False,
        reads=True,
    )
    labelled: str = option(
        description="Labelled texts of the same kind: rows with people's verdict as human or"
        " label, and the judge's verdict as judged or the id of a row with it.",
        argument=True,
        identity=False,
        reads=True,
    )
    field: str | None = option(
        None, "The field with the judge's verdicts, such as score; default: judged, else passed."
    )


def read_cases(spec: RatesSpec) -> Iterator[Case]:
    """Yield first a case whose parameters hold facts about all texts, then a case for each text,
    with the judge's verdict, and people's for labelled texts."""
    field, verdicts = _read_judged(spec)
    labelled: list[tuple[float | None, float]] = []
    moved: set[TextKey] = set()
    unread = Columns()
    rows = list(read_rows(spec.labelled, "row", _is_column))
    by_human = any(HUMAN in row for _, row in rows)
    people: dict[str, None] = {}

    for where, row in rows:
        labels = [HUMAN] if by_human else label_columns(row)
        filled = [name for name in labels if label_text(row.get(name))]
        require_single_people(filled, where)
        unread.note_unread(row, (*OF_TEXTS, field, *labels))
        human = _take_verdict(row, labels, where)
        judged = _take_verdict(row, [field], where)
        if human is None:
            continue
        people |= dict.fromkeys(filled)
        key = _key_of(row, where)
        if key in moved:
            raise InputError(f"{where}: the text '{key[0]}' is labelled twice; keep one row")
        if key in verdicts:
            moved.add(key)
            judged = verdicts[key] if judged is None else judged
        elif field not in row:
            raise InputError(
                f"{where}: '{field}' is missing, and the file of verdicts has no text with this id;"
                " add the field, or correct the id"
            )

        labelled.append((judged, human))

    if not labelled:
        raise InputError(
            f"{spec.labelled}: no row has '{HUMAN}' or a '{LABEL}' by a person; add the verdicts of"
            " people to some rows"
        )

    unread.leave_out_unread()
    line = f"labels in {describe_people(people)}: the mean of a text's labels counts"
    log.info(line, extra={"shown": line})
    yield Case("", (), "about", {"field": field, "moved": len(moved)})

    unlabelled = [verdict for key, verdict in verdicts.items() if key not in moved]
    for number, judged in enumerate(unlabelled, 1):
        yield Case("", (), f"text {number}", {"judged": judged})

    for number, (judged, human) in enumerate(labelled, 1):
        yield Case("", (), f"labelled text {number}", {"judged": judged, "human": human})


def _read_judged(spec: RatesSpec) -> tuple[str, dict[TextKey, float | None]]:
    """Return the name of the field with the judge's verdicts, and the verdicts by id (or position,
    for rows without an id) and number of the candidate."""
    verdicts: dict[TextKey, float | None] = {}
    field = spec.field
    unread = Columns()

    for where, row in read_rows(spec.judged, "row", _is_column):
        field = field or next((name for name in FIELDS if name in row), None)
        if field is None:
            break
        key = _key_of(row, where)
        if key in verdicts:
            raise InputError(f"{where}: the id '{key[0]}' is used twice; give each text its own id")
        verdicts[key] = _take_verdict(row, [field], where)
        unread.note_unread(row, (*OF_TEXTS, field))

    unread.leave_out_unread()
    if field is None or all(verdict is None for verdict in verdicts.values()):
        raise InputError(
            f"{spec.judged}: no row has a verdict in '{field or ' or '.join(FIELDS)}'; name the"
            " field with --field"
        )

    return field, verdicts


def _is_column(name: str) -> bool:
    return name in ("id", "text", "feedback")


OF_TEXTS = ("id", "candidate")
"""The columns that identify a text."""


def _key_of(row: FileRow, where: str) -> TextKey:
    id = row.get("id")
    candidate = row.get("candidate")
    number = "1" if candidate is None else str(candidate).removesuffix(".0")
    return where if id is None else str(id), number


def _take_verdict(row: FileRow, names: Iterable[str], where: str) -> float | None:
    """Return the mean of the verdicts or labels in a row's fields, where a pass is 1 and a failure
    0; None without any."""
    verdicts: list[float] = []
    for name in names:
        grade = take_label(row, name, where)
        if grade is not None:
            # A word such as `pass` is an infinite grade, which is above all numbers.
            verdicts.append(float(grade > 0) if math.isinf(grade) else grade)

    if any(not 0 <= verdict <= 1 for verdict in verdicts):
        raise InputError(
            f"{where}: {' and '.join(names)} must be pass or fail, or a number from 0 to 1"
        )

    return fmean(verdicts) if verdicts else None


async def run(
    _spec: RatesSpec, cases: Iterable[Case], bench: Workbench
) -> AsyncGenerator[RateReport]:
    bench.listener(RecordsExpected(1))
    about, *texts = (case.parameters for case in cases)
    labelled = [text for text in texts if HUMAN in text]
    judged = _numbers(text["judged"] for text in texts if HUMAN not in text)
    ours = _numbers(text["judged"] for text in labelled)
    people = _numbers(text[HUMAN] for text in labelled)
    yield report_rate(about["field"], judged, ours, people, about["moved"])


def _numbers(values: Iterable[float | None]) -> Array:
    return vector([np.nan if v is None else v for v in values])


def report(_spec: RatesSpec, rate: RateReport) -> Report:
    kind = "Rate" if rate.is_rate else "Mean"
    texts = wording.count(rate.texts, "text")
    labelled = wording.count(rate.labelled, "labelled text")
    title = f"{kind} of '{rate.field}' over {texts}, corrected by {labelled}"
    verdict, *sentences = explain_rate(rate)
    value = Column("value", "percent", 1) if rate.is_rate else Column("value", "number", 3)
    table = Table("", ("", value), list(_rows(rate)), note="Brackets: 95 % intervals.")

    return Report(title, verdict, [table, *map(Note, sentences)])


def _rows(rate: RateReport) -> Iterator[tuple[str, Estimate]]:
    yield "as judged", with_ends(rate.raw, rate.raw_interval)
    if rate.powered is not None:
        yield "prediction-powered mean", with_ends(rate.powered.value, rate.powered.interval)
        yield "people's labels alone", with_ends(rate.powered.human, rate.powered.human_interval)


def data(_spec: RatesSpec, rate: RateReport) -> Mapping[str, Any]:
    return {**asdict(rate), "sentences": list(explain_rate(rate))}


def flatten(rate: RateReport) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each estimate."""
    for name, figure in _rows(rate):
        yield {
            "estimate": name,
            **read_fields(figure, "value", "low", "high"),
            **read_fields(rate, "texts", "labelled"),
        }


STUDY = Study(
    spec=RatesSpec,
    cases=read_cases,
    asks=lambda _: Asks(),
    run=run,
    row=lambda _: Row("rate"),
    decode=json_decoder(RateReport),
    summarise=last_record,
    report=report,
    data=data,
    flat=flatten,
)
