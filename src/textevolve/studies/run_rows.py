"""The records of a run as rows of a matrix. A kind of study converts its own records, or else the
rows of its tables are used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from textevolve.report import wording
from textevolve.report.blocks import Block, Entry, MatrixRow, Table
from textevolve.store.records import StoredRecord
from textevolve.studies.stored import decode_record
from textevolve.studies.study import AnyStudy, StudySpec

TEXT_SHOWN = 20_000
FACTS_SHOWN = 8
FACT_LENGTH = 120
SHOWN_ELSEWHERE = ("score", "passed", "status", "reason", "index", "id", "position")
"""The fields that an entry of the matrix does not list, since it shows them in other places."""


def show_rows(
    study: AnyStudy, run_id: str, variants: Sequence[str], stored_records: Sequence[StoredRecord]
) -> list[MatrixRow]:
    """Return the records of a case, or a single record, as rows of a matrix. There are several rows
    if there are several samples. With variants, a row has an entry for each variant.

    Raises:
        StoreError: a record cannot be read.
    """
    decoded = [decode_record(study, run_id, stored) for stored in stored_records]
    if study.rows is not None:
        return list(study.rows(decoded, variants))
    entries = [
        _entry(study, stored, record)
        for stored, record in zip(stored_records, decoded, strict=True)
    ]
    name = (
        stored_records[0].case
        if len(stored_records) > 1
        else stored_records[0].case or stored_records[0].key
    )
    if not variants:
        return [MatrixRow(name, "", [entry]) for entry in entries]
    return [
        MatrixRow(name, "", [by_variant.get(name) for name in variants])
        for by_variant in _spread(stored_records, entries)
    ]


def show_alone(
    study: AnyStudy, spec: StudySpec, run_id: str, stored_records: Sequence[StoredRecord]
) -> list[Block]:
    """Return the report on a record that is a result by itself. It is empty if records are only
    parts of a result, or if the rows of a matrix show everything already.

    Raises:
        StoreError: the record cannot be read.
    """
    if study.rows is not None or len(stored_records) != 1 or not study.streams:
        return []
    record = decode_record(study, run_id, stored_records[0])
    return list(study.report(spec, study.summarise(spec, [record])).blocks)


def name_entries(rows: Iterable[MatrixRow], variants: Sequence[str]) -> Sequence[str]:
    """Return the headings of the matrix columns: the variants, or letters for the candidates of a
    case."""
    number = max((len(row.entries) for row in rows), default=1)
    if variants:
        return variants
    return ["Result"] if number == 1 else [wording.letter(n) for n in range(number)]


def _spread(
    stored_records: Sequence[StoredRecord], entries: Sequence[Entry]
) -> list[dict[str, Entry]]:
    """Distribute the entries over rows that have at most one entry for each variant, so that a
    variant's samples are in different rows."""
    rows: list[dict[str, Entry]] = []
    for stored, entry in zip(stored_records, entries, strict=True):
        free = next((row for row in rows if stored.variant not in row), None)
        if free is None:
            rows.append(free := {})
        free[stored.variant] = entry
    return rows


def _entry(study: AnyStudy, stored: StoredRecord, record: Any) -> Entry:
    failed = stored.status != "scored"
    table_rows = [dict(row) for row in study.flat(record)]
    facts = {
        name: wording.shorten(_format_value(value), FACT_LENGTH)
        for name, value in (table_rows[0] if table_rows else {}).items()
        if name not in SHOWN_ELSEWHERE and isinstance(value, str | int | float) and value != ""
    }
    return Entry(
        scores={} if stored.score is None else {"score": stored.score},
        passed=stored.passed,
        reasons={"reason": stored.reason} if stored.reason and not failed else {},
        failure=f"{stored.status}: {stored.reason}" if failed else "",
        facts=dict(list(facts.items())[:FACTS_SHOWN]),
        details=[_table(row) for row in table_rows],
    )


def _table(row: Mapping[str, Any]) -> Block:
    cells = [(name, _format_value(value)) for name, value in row.items() if value is not None]
    return Table("", ("field", "value"), cells)


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return wording.clip(value, TEXT_SHOWN)
    return wording.clip(json.dumps(value, ensure_ascii=False, default=str), TEXT_SHOWN)
