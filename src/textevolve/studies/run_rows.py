"""Some records of a run as rows of a matrix, in the way of their kind; of a kind that has none, by
what the rows of its tables say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Entry, MatrixRow, Table
from textevolve.store.records import Kept
from textevolve.studies.stored import decode_record
from textevolve.studies.study import AnyStudy, StudySpec

TEXT_SHOWN = 20_000
FACTS_SHOWN = 8
FACT_LENGTH = 120
SAID = ("score", "passed", "status", "reason", "index", "id", "position")
"""Fields that an entry shows in their place."""


def show_rows(
    study: AnyStudy, run_id: str, variants: Sequence[str], found: Sequence[Kept]
) -> list[MatrixRow]:
    """The records of a case, or a record alone, as a row of a matrix (rows, where there are
    several samples). The number of entries is that of the variants where there are any.

    Raises:
        StoreError: a record cannot be read.
    """
    decoded = [decode_record(study, run_id, kept) for kept in found]
    if study.rows is not None:
        return list(study.rows(decoded, variants))
    entries = [_entry(study, kept, one) for kept, one in zip(found, decoded, strict=True)]
    name = found[0].case if len(found) > 1 else found[0].case or found[0].key
    if not variants:
        return [MatrixRow(name, "", [entry]) for entry in entries]
    return [
        MatrixRow(name, "", [by_variant.get(name) for name in variants])
        for by_variant in _spread(found, entries)
    ]


def show_alone(study: AnyStudy, spec: StudySpec, run_id: str, found: Sequence[Kept]) -> list[Block]:
    """The report of a record that is a result by itself; empty where records are parts of one, or
    rows of a matrix tell all.

    Raises:
        StoreError: the record cannot be read.
    """
    if study.rows is not None or len(found) != 1 or not study.streams:
        return []
    record = decode_record(study, run_id, found[0])
    return list(study.report(spec, study.summarise(spec, [record])).blocks)


def name_entries(rows: Iterable[MatrixRow], variants: Sequence[str]) -> Sequence[str]:
    """The heads of the columns: the variants, or letters for the candidates of a case."""
    number = max((len(row.entries) for row in rows), default=1)
    if variants:
        return variants
    return ["Result"] if number == 1 else [wording.letter(n) for n in range(number)]


def _spread(found: Sequence[Kept], entries: Sequence[Entry]) -> list[dict[str, Entry]]:
    """A row for each time that all variants come: several samples are several rows."""
    rows: list[dict[str, Entry]] = []
    for kept, entry in zip(found, entries, strict=True):
        free = next((row for row in rows if kept.variant not in row), None)
        if free is None:
            rows.append(free := {})
        free[kept.variant] = entry
    return rows


def _entry(study: AnyStudy, kept: Kept, record: Any) -> Entry:
    failed = kept.status != "scored"
    told = [dict(row) for row in study.flat(record)]
    facts = {
        name: wording.shorten(_say(value), FACT_LENGTH)
        for name, value in (told[0] if told else {}).items()
        if name not in SAID and isinstance(value, str | int | float) and value != ""
    }
    return Entry(
        scores={} if kept.score is None else {"score": kept.score},
        passed=kept.passed,
        reasons={"reason": kept.reason} if kept.reason and not failed else {},
        failure=f"{kept.status}: {kept.reason}" if failed else "",
        facts=dict(list(facts.items())[:FACTS_SHOWN]),
        details=[_table(row) for row in told],
    )


def _table(row: Mapping[str, Any]) -> Block:
    cells = [(name, _say(value)) for name, value in row.items() if value is not None]
    return Table("", (Column("field"), Column("value")), cells)


def _say(value: object) -> str:
    if isinstance(value, str):
        return wording.clip(value, TEXT_SHOWN)
    return wording.clip(json.dumps(value, ensure_ascii=False, default=str), TEXT_SHOWN)
