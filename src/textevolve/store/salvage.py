"""Reading the rows of a damaged SQLite file, and writing them into a new one.

SQLite itself reads the file, in ranges of row numbers that are halved around unreadable rows. Rows
that SQLite cannot reach, such as those of a table whose root page is damaged, are lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Table, delete, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.store import sqlite, tables
from textevolve.store.documents import DAMAGES
from textevolve.store.schema import version_of_persona
from textevolve.store.sqlite import explain, sqlite3

RowRange: TypeAlias = tuple[int, int]

LAST = 2**63 - 1
MOST_FAILURES = 10_000
"""After how many unreadable row numbers in succession the rest of a gap is given up."""


class DamagedFile:
    """The rows of a store's file that SQLite can read. `complaint`: a fault that SQLite reports;
    `gaps`: the number of unreadable places in each table."""

    def __init__(self, raw: sqlite3.Connection, path: Path) -> None:
        self._raw, self._size = raw, path.stat().st_size
        self._raw.row_factory = sqlite3.Row
        self.complaint, self.gaps = _lock(raw, path), Counter[str]()
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
        ranges, failures = [(1, LAST)], 0
        while ranges and failures < MOST_FAILURES:
            low, high = ranges.pop()
            gap = yield from self._read_range(table, low, high)
            if gap != (low, high):
                failures = 0
            elif low == high:
                self.gaps[table] += failures == 0
                failures += 1
                continue
            if gap is not None:
                low, high = gap[0], min(gap[1], gap[0] + self._size)  # a row takes some bytes
                middle = (low + high) // 2
                ranges += [(middle + 1, high)] * (middle < high) + [(low, middle)]

    def _read_range(
        self, table: str, low: int, high: int
    ) -> Generator[sqlite3.Row, None, RowRange | None]:
        """Yield rows from both ends of a range; return the gap between them, where there is one."""
        query = (
            f"SELECT rowid AS number, * FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ?"
            " ORDER BY rowid {} LIMIT ?"  # the limit keeps SQLite from reading beyond the last row
        )
        try:
            for row in self._raw.execute(query.format("ASC"), (low, high, high - low + 1)):
                if row[0] < low:
                    raise ValueError("the rows are out of order")
                yield row
                low = row[0] + 1
            return None
        except (sqlite3.Error, *DAMAGES):
            pass
        try:
            for row in self._raw.execute(query.format("DESC"), (low, high, high - low + 1)):
                yield row
                high = row[0] - 1
            return None
        except (sqlite3.Error, *DAMAGES):
            return low, high


@contextmanager
def open_damaged(path: Path) -> Generator[DamagedFile]:
    """Open a store's file for reading; no other process writes meanwhile.

    Raises:
        StoreError: there is no such file, it cannot be opened, or is in use.
    """
    if not path.is_file():
        raise StoreError(f"store {path}: there is no such file")
    with closing(sqlite3.connect(path, timeout=sqlite.BUSY_SECONDS, isolation_level=None)) as raw:
        yield DamagedFile(raw, path)


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
            raise explain(error, path) from error
        return str(error)
    if mark != tables.APPLICATION_ID:
        return "the file is not marked as a store"
    return "" if result == "ok" else " ".join(str(result).split())


def copy_row(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row; return whether it broke no constraint."""
    names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
    statement = f"INSERT OR IGNORE INTO {table.name} ({names}) VALUES ({marks})"
    return connection.exec_driver_sql(statement, tuple(row.values())).rowcount == 1


def mark_losses(connection: Connection, losses: dict[str, dict[str, int]]) -> None:
    """Let runs that lost rows be resumed, or take their cases in again."""
    runs, served = tables.runs, tables.served_runs
    connection.execute(delete(served).where(served.c.run_id.not_in(select(runs.c.id))))
    for run_id, kinds in losses.items():
        run = update(runs).where(runs.c.id == run_id)
        connection.execute(run.where(runs.c.status == "finished").values(status="interrupted"))
        if "cases" in kinds:
            connection.execute(run.values(n_cases=None))
