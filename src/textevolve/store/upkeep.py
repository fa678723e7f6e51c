"""Upkeep of a store: sizes, free space that is given back, and a check of every row. The rows of a
damaged file are read by `salvage`."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import Table, func, select
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.settings import StoreLocation
from textevolve.store import tables
from textevolve.store.copying import copied_tables, count_rows, finish_copy, read_rows
from textevolve.store.database import open_database
from textevolve.store.dialects import file_bytes
from textevolve.store.documents import (
    DAMAGES,
    HASH_BYTES,
    bytes_to_text,
    image_keys,
    load_case,
    load_json,
    load_response,
    split_hashes,
    unpack,
    unpack_json,
)
from textevolve.store.postgres import SCHEMA, PostgresDatabase
from textevolve.store.runs import check_fields
from textevolve.store.salvage import DamagedFile, copy_row, mark_losses, open_damaged
from textevolve.store.sqlite import SQLiteDatabase

OF_RUNS = (tables.cases, tables.calls, tables.records)
KINDS = ("runs", "cases", "calls", "texts", "records")
"""The tables whose losses are reported by run."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """`bytes`: on the disk, with indexes; `free`: of them those that are used again before the
    store grows. `revision`: of its tables."""

    engine: str
    revision: str
    bytes: int
    free: int
    rows: dict[str, int]
    runs: dict[str, int]


def read_stats(location: StoreLocation) -> StoreStats:
    """
    Raises:
        StoreError: the store cannot be read.
    """
    with closing(open_database(location)) as database:
        return database.read(_read_stats)


def _read_stats(connection: Connection) -> StoreStats:
    query = select(tables.runs.c.status, func.count()).group_by(tables.runs.c.status)
    states = {row[0]: row[1] for row in connection.execute(query)}
    size, free, engine = _sizes(connection)
    return StoreStats(engine, tables.REVISION, size, free, count_rows(connection), states)


def _sizes(connection: Connection) -> tuple[int, int, str]:
    if connection.dialect.name == "postgresql":
        asked = (
            "SELECT coalesce(sum(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)"
            f"::regclass)), 0)::int8, current_setting('server_version') FROM pg_tables"
            f" WHERE schemaname = '{SCHEMA}'"
        )
        size, version = connection.exec_driver_sql(asked).one()
        return size, 0, f"PostgreSQL {version.split()[0]}"
    size, free = file_bytes(connection)
    version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    return size, free, f"SQLite {version}"


def vacuum_store(location: StoreLocation) -> tuple[int, int]:
    """Give room back that nothing needs any more; how many bytes the store had, and has.

    Raises:
        StoreError: it is in use, or there is no room for a second copy of the file.
    """
    before = read_stats(location).bytes
    with closing(open_database(location)) as database:
        database.vacuum()
    return before, read_stats(location).bytes


def scrub_store(location: StoreLocation) -> None:
    """Write the store anew, so that no free page holds what was erased.

    Raises:
        StoreError: that cannot be done now; what was erased is in no row all the same.
    """
    try:
        with closing(open_database(location)) as database:
            if isinstance(database, PostgresDatabase):
                database.vacuum("FULL")
            elif database.vacuum():
                raise StoreError(f"store {location}: other processes read its write-ahead log")
    except StoreError as error:
        raise StoreError(
            f"{error}; the text is erased, but free pages may hold it still: when no other process"
            " uses the store, give the command: textevolve store vacuum"
        ) from error


@dataclass(frozen=True)
class Findings:
    """`whole`: how many rows of each table are whole. `lost`: how many rows are known to be lost,
    by run and table; of a run that is lost itself `runs` is 1. `skipped`: unreadable places
    of each table. `complaint`: a fault of the file that SQLite reports, or empty."""

    whole: dict[str, int]
    lost: dict[str, dict[str, int]]
    skipped: dict[str, int]
    complaint: str

    @property
    def damaged(self) -> bool:
        return bool(self.lost or self.skipped or self.complaint)


def check(location: StoreLocation, salvage: Path | None = None) -> Findings:
    """Read all rows of a store. `salvage`: a new file, into which whole rows are copied; a database
    has to be saved with the server's own tools.

    In the copy a run that has lost cases takes them in again when its command is repeated; one that
    has lost other rows counts as interrupted.

    Raises:
        StoreError: it cannot be read, or the new file cannot be written.
    """
    if isinstance(location, Path):
        return _check_file(location.expanduser().absolute(), salvage)
    if salvage is not None:
        raise StoreError(
            f"store {location}: only a file is salvaged; what is whole is copied by: textevolve"
            " store copy, and backups are made with pg_dump"
        )
    with closing(open_database(location)) as database:
        return database.read(
            lambda c: _check_rows(partial(read_rows, c), partial(_count_by_run, c))
        )


def _check_file(path: Path, salvage: Path | None) -> Findings:
    with open_damaged(path) as file:
        if salvage is None:
            findings = _check_rows(file.read_rows, file.count_by_run)
        else:
            findings = _salvage(file, salvage.expanduser().absolute())
    skipped = dict(Counter(findings.skipped) + file.gaps)
    return replace(findings, skipped=skipped, complaint=file.complaint)


def _salvage(file: DamagedFile, target: Path) -> Findings:
    if target.exists():
        raise StoreError(f"store {target}: is there already; name a new file")

    def write(connection: Connection) -> Findings:
        keep = partial(copy_row, connection)
        findings = _check_rows(file.read_rows, file.count_by_run, keep)
        mark_losses(connection, findings.lost)
        finish_copy(connection)
        return findings

    try:
        with closing(SQLiteDatabase(target)) as database:
            return database.write(write)
    except BaseException:
        target.unlink(missing_ok=True)  # an incomplete copy would look like a store
        raise


def _count_by_run(connection: Connection, table: Table) -> dict[str, int]:
    query = select(table.c.run_id, func.count()).group_by(table.c.run_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def _check_rows(
    read: Callable[[Table], Iterable[dict[str, Any]]],
    count: Callable[[Table], Mapping[str, int]],
    keep: Callable[[Table, dict[str, Any]], bool] = lambda _table, _row: True,
) -> Findings:
    rows = _WholeRows()
    first = (tables.runs, tables.texts, tables.calls)
    for table in (*first, *(table for table in copied_tables() if table not in first)):
        for row in read(table):
            try:
                _check_row(table, row)
            except DAMAGES:
                rows.skipped[table.name] += 1
                continue
            if not rows.is_orphan(table, row):
                if keep(table, row):
                    rows.add(table, row)
                else:
                    rows.skipped[table.name] += 1
    lost = rows.count_losses({table: count(table) for table in OF_RUNS})
    return Findings(dict(rows.whole), lost, dict(rows.skipped), "")


class _WholeRows:
    """Counts of whole rows, and what they say about rows that are missing."""

    def __init__(self) -> None:
        self.whole: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.lost: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._runs: dict[str, int | None] = {}
        self._texts: set[bytes] = set()
        self._calls: set[int] = set()
        self._by_run: Counter[tuple[Table, str]] = Counter()
        self._missing: defaultdict[str, set[bytes]] = defaultdict(set)

    def is_orphan(self, table: Table, row: Mapping[str, Any]) -> bool:
        """Whether the run of a row, or the call that it reuses, is lost."""
        if table not in (tables.cases, tables.records, tables.reuses):
            return False
        if row["run_id"] not in self._runs:
            self.lost[row["run_id"]]["runs"] = 1
            return True
        orphan = table is tables.reuses and row["call_id"] not in self._calls
        self.lost[row["run_id"]]["calls"] += orphan
        return orphan

    def add(self, table: Table, row: Mapping[str, Any]) -> None:
        self.whole[table.name] += 1
        if table is tables.runs:
            self._runs[row["id"]] = row["n_cases"]
        elif table is tables.texts:
            self._texts.add(row["hash"])
        elif table in OF_RUNS:
            run_id, keys = row["run_id"], ()
            self._by_run[table, run_id] += 1
            if table is tables.calls:
                self._calls.add(row["id"])
                if row["key"] == tables.ERASED_KEY:
                    self.whole["erased calls"] += 1
                keys = split_hashes(row["parts"])
            elif table is tables.cases:
                keys = image_keys(row["body"])
            self._missing[run_id].update(key for key in keys if key not in self._texts)

    def count_losses(
        self, expected: Mapping[Table, Mapping[str, int]]
    ) -> dict[str, dict[str, int]]:
        """`expected`: how many rows of a table each run has by the table's index."""
        for table, numbers in expected.items():
            for run_id, number in numbers.items():
                self.lost[run_id][table.name] += number - self._by_run[table, run_id]
        for run_id, number in self._runs.items():
            missing = (number or 0) - self._by_run[tables.cases, run_id]
            self.lost[run_id]["cases"] = max(self.lost[run_id]["cases"], missing)
        for run_id, keys in self._missing.items():
            self.lost[run_id]["texts"] = len(keys)
        kept = {
            run_id: {kind: kinds[kind] for kind in KINDS if kinds[kind] > 0}
            for run_id, kinds in sorted(self.lost.items())
        }
        return {run_id: kinds for run_id, kinds in kept.items() if kinds}


def _check_row(table: Table, row: Mapping[str, Any]) -> None:
    """
    Raises:
        one of DAMAGES: the row is not as it was written.
    """
    for name, kinds in _column_kinds(table).items():
        if not isinstance(row[name], kinds):
            raise TypeError(f"{name} is of another type")
    _CHECKS.get(table, lambda _row: None)(row)


@cache
def _column_kinds(table: Table) -> dict[str, tuple[type, ...]]:
    """The types that the values of each column may have."""
    kinds: dict[str, tuple[type, ...]] = {}
    for column in table.columns:
        kind = column.type.python_type
        number = (int,) if kind in (bool, float) else ()
        kinds[column.name] = (kind, *number, *((type(None),) if column.nullable else ()))
    return kinds


def _check_text(row: Mapping[str, Any]) -> None:
    body = unpack(row["body"], row["size"])
    bytes_to_text(body)
    if hashlib.sha256(body).digest() != row["hash"]:
        raise ValueError("the text has another hash")


def _check_call(row: Mapping[str, Any]) -> None:
    if len(row["parts"]) % HASH_BYTES or (row["error"] is None) == (row["response"] is None):
        raise ValueError("the call has neither an answer nor an error, or both")
    load_json(row["request"])["messages"]
    if row["response"] is None:
        bytes_to_text(row["error"])
    else:
        used = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost", "saved")
        load_response(row["response"], *(row[name] for name in used))


def _check_record(row: Mapping[str, Any]) -> None:
    unpack_json(row["body"])
    bytes_to_text(row["reason"])


def _check_embedding(row: Mapping[str, Any]) -> None:
    if len(row["vector"]) != 4 * row["dimension"]:
        raise ValueError("the vector has another length")


_CHECKS: Mapping[Table, Callable[[Mapping[str, Any]], object]] = {
    tables.runs: check_fields,
    tables.texts: _check_text,
    tables.calls: _check_call,
    tables.cases: lambda row: load_case(row["id"], row["body"]),
    tables.records: _check_record,
    tables.embeddings: _check_embedding,
}
