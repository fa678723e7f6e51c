"""Upkeep of a store: measure its size, release unused space, and check every row; the intact rows
of a damaged SQLite file can be saved into a new one.

SQLite itself reads a damaged file, each table from both ends. Rows that it cannot reach are lost,
such as those between two damaged places, or in a table whose root page is damaged.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Table, delete, func, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.settings import StoreLocation
from textevolve.store import sqlite, tables
from textevolve.store.copying import copied_tables, finish_copy, read_rows
from textevolve.store.database import open_database
from textevolve.store.dialects import count_bytes
from textevolve.store.documents import (
    DAMAGES,
    HASH_BYTES,
    bytes_to_text,
    load_case,
    load_json,
    load_response,
    unpack,
    unpack_json,
)
from textevolve.store.runs import check_fields
from textevolve.store.sqlite import SQLiteDatabase, sqlite3

OF_RUNS = (tables.cases, tables.records, tables.reuses)
"""The tables whose rows are useless without their run."""


def measure_store(location: StoreLocation) -> int:
    """Return the size of a store in bytes, with its indexes.

    Raises:
        StoreError: the store cannot be read.
    """
    with closing(open_database(location)) as database:
        return database.read(count_bytes)


def vacuum_store(location: StoreLocation) -> tuple[int, int]:
    """Release unused space; return the size in bytes before and after.

    Raises:
        StoreError: the store is in use, or there is no room for a second copy of the file.
    """
    before = measure_store(location)
    with closing(open_database(location)) as database:
        database.vacuum()
    return before, measure_store(location)


def scrub_store(location: StoreLocation) -> None:
    """Rewrite the store, so that no free page contains erased texts.

    Raises:
        StoreError: the store cannot be rewritten now. Its rows contain no erased texts even so.
    """
    try:
        with closing(open_database(location)) as database:
            database.vacuum(scrub=True)
    except StoreError as error:
        raise StoreError(
            f"{error}; the text is erased, but free pages of the file may still hold it: run"
            " textevolve config store vacuum when no other process uses the store"
        ) from error


@dataclass(frozen=True)
class Findings:
    """The result of a check. `intact`: the number of intact rows of each table, and of `erased
    calls`; `unreadable`: the number of damaged rows and unreadable places of each table;
    `incomplete`: the runs that have lost rows; `complaint`: a fault of the file that SQLite
    reports, or empty."""

    intact: dict[str, int]
    unreadable: dict[str, int]
    incomplete: tuple[str, ...]
    complaint: str = ""

    @property
    def damaged(self) -> bool:
        return bool(self.unreadable or self.incomplete or self.complaint)


def check(location: StoreLocation, salvage: Path | None = None) -> Findings:
    """Read all rows of a store. `salvage`: a new file, into which intact rows are copied; a
    PostgreSQL database has to be saved with the server's own tools.

    In the copy of a damaged store, a run that has lost cases reads them again when its command is
    repeated. All other runs become interrupted, so that they can be resumed.

    Raises:
        StoreError: the store cannot be read, or the new file cannot be written.
    """
    if not isinstance(location, Path):
        if salvage is not None:
            raise StoreError(
                f"store {location}: only a store in a file can be salvaged; copy a database with:"
                " textevolve config store copy, or restore a backup of pg_dump"
            )
        with closing(open_database(location)) as database:
            return database.read(lambda c: _check_rows(partial(read_rows, c)))
    with _open_damaged(location.expanduser().absolute()) as file:
        if salvage is None:
            return _check_file(file)
        return _salvage(file, salvage.expanduser().absolute())


def _check_rows(
    read_table: Callable[[Table], Iterable[dict[str, Any]]],
    keep: Callable[[Table, dict[str, Any]], bool] = lambda _table, _row: True,
) -> Findings:
    """Check all rows, and copy the intact ones, unless their run is lost."""
    intact, unreadable, n_cases = Counter[str](), Counter[str](), Counter[str]()
    incomplete, runs = set[str](), dict[str, int]()
    for table in (tables.runs, *(each for each in copied_tables() if each is not tables.runs)):
        for row in read_table(table):
            run_id = str(row["id"] if table is tables.runs else row.get("run_id"))
            has_run = table not in OF_RUNS or run_id in runs
            if not has_run or not _is_whole(table, row) or not keep(table, row):
                unreadable[table.name] += 1
                if table is tables.runs or "run_id" in row:
                    incomplete.add(run_id)
                continue
            intact[table.name] += 1
            if table is tables.runs:
                runs[run_id] = row["n_cases"] or 0
            elif table is tables.calls:
                intact["erased calls"] += row["key"] == tables.ERASED_KEY
            elif table is tables.cases:
                n_cases[run_id] += 1
    incomplete |= {run_id for run_id, number in runs.items() if n_cases[run_id] < number}
    return Findings(dict(+intact), dict(unreadable), tuple(sorted(incomplete)))


def _is_whole(table: Table, row: Mapping[str, Any]) -> bool:
    """Check whether a row is undamaged."""
    try:
        _CHECKS.get(table, lambda _row: None)(row)
    except DAMAGES:
        return False
    return True


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
"""The function that raises an exception for a damaged row of a table."""


class _DamagedFile:
    """The rows of a store's file that SQLite can read. `complaint`: a fault that SQLite reports;
    empty without one. `gaps`: the number of unreadable places in each table."""

    def __init__(self, raw: sqlite3.Connection, complaint: str) -> None:
        self._raw, self.complaint = raw, complaint
        self._raw.row_factory = sqlite3.Row
        self.gaps = Counter[str]()

    def read_rows(self, table: Table) -> Iterator[dict[str, Any]]:
        """Yield the readable rows of a table: from the beginning up to the first unreadable place,
        and from the end back to the last one."""
        source, last = f"FROM {table.name} NOT INDEXED", 0
        queries = [f"SELECT ? AS number, * {source}"]
        if table.dialect_options["sqlite"]["with_rowid"]:
            forwards = f"SELECT rowid AS number, * {source} WHERE rowid > ? ORDER BY rowid"
            queries = [forwards, f"{forwards} DESC"]
        for query in queries:
            try:
                for row in self._raw.execute(query, (last,)):
                    values = dict(row)
                    last = values["number"]
                    yield {column.name: values[column.name] for column in table.columns}
                return
            except (sqlite3.Error, *DAMAGES):
                self.gaps[table.name] = 1


@contextmanager
def _open_damaged(path: Path) -> Generator[_DamagedFile]:
    """Open a store's file for reading; no other process can write while it is open.

    Raises:
        StoreError: there is no such file, it cannot be opened, or is in use.
    """
    if not path.is_file():
        raise StoreError(f"store {path}: there is no such file")
    with closing(sqlite3.connect(path, timeout=sqlite.BUSY_SECONDS, isolation_level=None)) as raw:
        yield _DamagedFile(raw, _lock(raw, path))


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
        return "the file has no mark of a TextEvolve store"
    return "" if result == "ok" else " ".join(str(result).split())


def _check_file(
    file: _DamagedFile,
    keep: Callable[[Table, dict[str, Any]], bool] = lambda _table, _row: True,
) -> Findings:
    findings = _check_rows(file.read_rows, keep)
    unreadable = dict(Counter(findings.unreadable) + file.gaps)
    return replace(findings, unreadable=unreadable, complaint=file.complaint)


def _salvage(file: _DamagedFile, target: Path) -> Findings:
    if target.exists():
        raise StoreError(f"store {target}: exists already; name a new file")

    def write(connection: Connection) -> Findings:
        findings = _check_file(file, partial(_copy_row, connection))
        if findings.damaged:
            _interrupt_runs(connection)
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


def _interrupt_runs(connection: Connection) -> None:
    """Mark finished runs as interrupted, so they can be resumed; runs that lack cases will read
    them again. Delete the servers' rows of runs that are lost."""
    runs, served, cases = tables.runs, tables.served_runs, tables.cases
    connection.execute(delete(served).where(served.c.run_id.not_in(select(runs.c.id))))
    finished = update(runs).where(runs.c.status == "finished")
    connection.execute(finished.values(status="interrupted"))
    number = select(func.count()).where(cases.c.run_id == runs.c.id).scalar_subquery()
    connection.execute(update(runs).where(runs.c.n_cases > number).values(n_cases=None))
