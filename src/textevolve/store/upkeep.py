"""Upkeep of a store: sizes, free space that is given back, and a check of every row, which can save
the whole rows of a damaged SQLite file into a new one.

SQLite itself reads a damaged file, in ranges of row numbers that are halved around unreadable rows.
Rows that SQLite cannot reach, such as those of a table whose root page is damaged, are lost.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import Table, delete, func, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.settings import StoreLocation
from textevolve.store import sqlite, tables
from textevolve.store.copying import copied_tables, count_rows, finish_copy, read_rows
from textevolve.store.database import open_database
from textevolve.store.dialects import file_bytes, is_postgres
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
from textevolve.store.postgres import SCHEMA
from textevolve.store.runs import check_fields
from textevolve.store.schema import version_of_persona
from textevolve.store.sqlite import SQLiteDatabase, sqlite3

LOSSES = (tables.cases, tables.calls, tables.records)
"""The tables whose rows are counted by run."""
LAST = 2**63 - 1
MOST_FAILURES = 10_000
"""After how many unreadable row numbers in succession the rest of a gap is given up."""
_SIZE = f"""
SELECT coalesce(sum(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)::regclass)),
    0)::int8, current_setting('server_version') FROM pg_tables WHERE schemaname = '{SCHEMA}'
"""


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
    if is_postgres(connection):
        size, version = connection.exec_driver_sql(_SIZE).one()
        free, engine = 0, f"PostgreSQL {version.split()[0]}"
    else:
        size, free = file_bytes(connection)
        version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
        engine = f"SQLite {version}"
    query = select(tables.runs.c.status, func.count()).group_by(tables.runs.c.status)
    states = {row[0]: row[1] for row in connection.execute(query)}
    return StoreStats(engine, tables.REVISION, size, free, count_rows(connection), states)


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
            database.vacuum(scrub=True)
    except StoreError as error:
        raise StoreError(
            f"{error}; the text is erased, but free pages may hold it still: when no other process"
            " uses the store, give the command: textevolve config store vacuum"
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
    if not isinstance(location, Path):
        if salvage is not None:
            raise StoreError(
                f"store {location}: only a file is salvaged; what is whole is copied by:"
                " textevolve config store copy, and backups are made with pg_dump"
            )
        with closing(open_database(location)) as database:
            return database.read(
                lambda c: _check_rows(partial(read_rows, c), partial(_count_by_run, c))
            )
    with _open_damaged(location.expanduser().absolute()) as file:
        if salvage is None:
            findings = _check_rows(file.read_rows, file.count_by_run)
        else:
            findings = _salvage(file, salvage.expanduser().absolute())
    skipped = dict(Counter(findings.skipped) + file.gaps)
    return replace(findings, skipped=skipped, complaint=file.complaint)


def _count_by_run(connection: Connection, table: Table) -> dict[str, int]:
    query = select(table.c.run_id, func.count()).group_by(table.c.run_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def _check_rows(
    read: Callable[[Table], Iterable[dict[str, Any]]],
    count: Callable[[Table], Mapping[str, int]],
    keep: Callable[[Table, dict[str, Any]], bool] = lambda _table, _row: True,
) -> Findings:
    """Check all rows, and keep those that are whole, unless the run or call that they belong to is
    lost."""
    whole, skipped = Counter[str](), Counter[str]()
    lost = defaultdict[str, Counter[str]](Counter)
    by_run: Counter[tuple[Table, str]] = Counter()
    missing = defaultdict[str, set[bytes]](set)
    runs, texts, calls = dict[str, int](), set[bytes](), set[int]()
    first = (tables.runs, tables.texts, tables.calls)
    for table in (*first, *(table for table in copied_tables() if table not in first)):
        for row in read(table):
            run_id = str(row.get("run_id"))
            if not _is_whole(table, row):
                skipped[table.name] += 1
                continue
            if table in (tables.cases, tables.records, tables.reuses):
                if run_id not in runs:
                    lost[run_id]["runs"] = 1
                    continue
                if table is tables.reuses and row["call_id"] not in calls:
                    lost[run_id]["calls"] += 1
                    continue
            if not keep(table, row):
                skipped[table.name] += 1
                continue
            whole[table.name] += 1
            by_run[table, run_id] += 1
            keys: Iterable[bytes] = ()
            if table is tables.runs:
                runs[row["id"]] = row["n_cases"] or 0
            elif table is tables.texts:
                texts.add(row["hash"])
            elif table is tables.calls:
                calls.add(row["id"])
                keys = split_hashes(row["parts"])
                if row["key"] == tables.ERASED_KEY:
                    whole["erased calls"] += 1
            elif table is tables.cases:
                keys = image_keys(row["body"])
            missing[run_id].update(key for key in keys if key not in texts)
    for table in LOSSES:  # an index knows of rows that cannot be read
        for run_id, number in count(table).items():
            lost[run_id][table.name] += number - by_run[table, run_id]
    for run_id, number in runs.items():
        absent = number - by_run[tables.cases, run_id]
        lost[run_id]["cases"] = max(lost[run_id]["cases"], absent)
    for run_id, keys in missing.items():
        lost[run_id]["texts"] = len(keys)
    order = ("runs", "cases", "calls", "texts", "records")
    losses = {
        run_id: {kind: kinds[kind] for kind in order if kinds[kind] > 0}
        for run_id, kinds in sorted(lost.items())
    }
    losses = {run_id: kinds for run_id, kinds in losses.items() if kinds}
    return Findings(dict(whole), losses, dict(skipped), "")


def _is_whole(table: Table, row: Mapping[str, Any]) -> bool:
    """Whether a row is as it was written."""
    if any(not isinstance(row[name], kinds) for name, kinds in _column_kinds(table).items()):
        return False
    try:
        _CHECKS.get(table, lambda _row: None)(row)
    except DAMAGES:
        return False
    return True


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


class _DamagedFile:
    """The rows of a store's file that SQLite can read. `complaint`: a fault that SQLite reports;
    `gaps`: the number of unreadable places in each table."""

    def __init__(self, raw: sqlite3.Connection, size: int, complaint: str) -> None:
        self._raw, self._size, self.complaint = raw, size, complaint
        self._raw.row_factory = sqlite3.Row
        self.gaps = Counter[str]()
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        self._tables = {row[0] for row in self._read_first("tables", query)}

    def read_rows(self, table: Table) -> Iterator[dict[str, Any]]:
        """Yield the readable rows of a table, in no order."""
        if table.name not in self._tables:
            if table is tables.resource_versions and "personas" in self._tables:
                yield from map(version_of_persona, map(dict, self._read_around_gaps("personas")))
            return
        if table.dialect_options["sqlite"]["with_rowid"]:
            rows = self._read_around_gaps(table.name)
        else:
            rows = self._read_first(table.name, f"SELECT * FROM {table.name}")
        for row in rows:
            values = dict(row)  # older stores have fewer columns
            yield {column.name: values.get(column.name) for column in table.columns}

    def count_by_run(self, table: Table) -> dict[str, int]:
        """Count each run's rows by an index, which also lists rows that are unreadable."""
        query = f"SELECT run_id, count(*) FROM {table.name} GROUP BY run_id"
        rows = self._read_first("indexes", query) if table.name in self._tables else ()
        return {row[0]: row[1] for row in rows if isinstance(row[0], str)}

    def _read_first(self, table: str, query: str) -> Iterator[sqlite3.Row]:
        """Yield rows up to the first that is unreadable."""
        try:
            yield from self._raw.execute(query)
        except (sqlite3.Error, *DAMAGES):
            self.gaps[table] += 1

    def _read_around_gaps(self, table: str) -> Iterator[sqlite3.Row]:
        """Yield rows from both ends of a range; halve the gap between them, if there is one."""
        query = (
            f"SELECT rowid AS number, * FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ?"
            " ORDER BY rowid {} LIMIT ?"  # the limit keeps SQLite from reading beyond the last row
        )
        ranges, failures = [(1, LAST)], 0
        while ranges and failures < MOST_FAILURES:
            low, high = ranges.pop()
            for order in ("ASC", "DESC"):
                try:
                    for row in self._raw.execute(query.format(order), (low, high, high - low + 1)):
                        if not low <= row[0] <= high:
                            raise ValueError("the rows are out of order")
                        yield row
                        low, high = (row[0] + 1, high) if order == "ASC" else (low, row[0] - 1)
                        failures = 0
                except (sqlite3.Error, *DAMAGES):
                    continue
                break
            else:
                if low == high:
                    self.gaps[table] += failures == 0
                    failures += 1
                elif low < high:
                    high = min(high, low + self._size)  # a row takes some bytes
                    middle = (low + high) // 2
                    ranges += [(middle + 1, high), (low, middle)]


@contextmanager
def _open_damaged(path: Path) -> Generator[_DamagedFile]:
    """Open a store's file for reading; no other process writes meanwhile.

    Raises:
        StoreError: there is no such file, it cannot be opened, or is in use.
    """
    if not path.is_file():
        raise StoreError(f"store {path}: there is no such file")
    with closing(sqlite3.connect(path, timeout=sqlite.BUSY_SECONDS, isolation_level=None)) as raw:
        yield _DamagedFile(raw, path.stat().st_size, _lock(raw, path))


def _lock(raw: sqlite3.Connection, path: Path) -> str:
    """Keep other processes from writing; return a fault of the file, or an empty string."""
    try:
        raw.execute("PRAGMA writable_schema = ON")  # reads files that were cut off, too
        raw.execute("BEGIN IMMEDIATE")
        (result,) = raw.execute("PRAGMA integrity_check(1)").fetchone()
        (mark,) = raw.execute("PRAGMA application_id").fetchone()
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
        if busy or not os.access(path, os.W_OK):
            raise sqlite.explain(error, path) from error
        return str(error)
    if mark != tables.APPLICATION_ID:
        return "the file is not marked as a store"
    return "" if result == "ok" else " ".join(str(result).split())


def _salvage(file: _DamagedFile, target: Path) -> Findings:
    if target.exists():
        raise StoreError(f"store {target}: is there already; name a new file")

    def write(connection: Connection) -> Findings:
        findings = _check_rows(file.read_rows, file.count_by_run, partial(_copy_row, connection))
        _mark_losses(connection, findings.lost)
        finish_copy(connection)
        return findings

    try:
        with closing(SQLiteDatabase(target)) as database:
            return database.write(write)
    except BaseException:
        target.unlink(missing_ok=True)  # an incomplete copy would look like a store
        raise


def _copy_row(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row; return whether it broke no constraint."""
    names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
    statement = f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES ({marks})"
    return connection.exec_driver_sql(statement, tuple(row.values())).rowcount == 1


def _mark_losses(connection: Connection, losses: dict[str, dict[str, int]]) -> None:
    """Let runs that lost rows be resumed, or take their cases in again."""
    runs, served = tables.runs, tables.served_runs
    connection.execute(delete(served).where(served.c.run_id.not_in(select(runs.c.id))))
    for run_id, kinds in losses.items():
        run = update(runs).where(runs.c.id == run_id)
        connection.execute(run.where(runs.c.status == "finished").values(status="interrupted"))
        if "cases" in kinds:
            connection.execute(run.values(n_cases=None))
