"""Runs and their calls in an SQLite file; what each call needs goes straight to the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from textevolve.errors import StoreError
from textevolve.store.backend import CALL_COLUMNS, FoundAnswers, GroupRows, Spoiled
from textevolve.store.documents import DAMAGES
from textevolve.store.schema import connect, explain, prepare
from textevolve.store.sqlite import sqlite3

T = TypeVar("T")

ROWS_PER_STATEMENT = 64

_SWEEPS = "SELECT value FROM counters WHERE name = 'sweeps'"

_FIND = """
SELECT key, id, prompt_tokens, cached_tokens, completion_tokens, cost, saved, response,
    run_id = :run OR EXISTS (SELECT 1 FROM reuses WHERE run_id = :run AND call_id = calls.id)
FROM calls WHERE key IN (SELECT value FROM json_each(:keys)) AND error IS NULL
ORDER BY run_id = :run, id DESC
"""


class SQLiteBackend:
    """A file, which several processes may use at once."""

    errors = (SQLAlchemyError, sqlite3.Error, *DAMAGES)
    remote = False

    def __init__(self, path: Path) -> None:
        prepare(path)
        self.location = path

    def open_reader(self) -> SQLiteReader:
        return SQLiteReader(self.location)

    def open_session(self) -> SQLiteSession:
        return SQLiteSession(self.location)

    def explain(self, error: Exception, run_id: str = "") -> StoreError:
        return explain(error, self.location, run_id)

    def judge(self, error: Exception) -> Spoiled:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, sqlite3.OperationalError):
            return "store"
        return "group" if type(cause) is sqlite3.DatabaseError else "row"  # no row is bad

    def find_answers(
        self, connection: Connection, run_id: str, keys: Sequence[str], done: Sequence[str]
    ) -> FoundAnswers:
        """Straight through the driver: this is done before each call, and costs a third so."""
        asked = {"run": run_id, "keys": json.dumps(keys)}
        return FoundAnswers(_raw(connection).execute(_FIND, asked).fetchall())

    def close(self) -> None:
        """Each connection is closed by whoever opened it."""


class SQLiteReader:
    def __init__(self, path: Path) -> None:
        self._connection = connect(path, writing=False)

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def read(self, query: Callable[[Connection], T]) -> T:
        return query(self._connection)

    def close(self) -> None:
        self._connection.close()


class SQLiteSession:
    def __init__(self, path: Path) -> None:
        self._connection = connect(path, writing=True)
        # Groups go straight to the driver: the layer above costs more than the rows.
        self._raw = _raw(self._connection)

    def change(self, change: Callable[[Connection], T], run_id: str | None) -> T:
        with self._connection.begin():
            return change(self._connection)

    def insert(self, fill: Callable[[int], GroupRows]) -> None:
        self._raw.execute("BEGIN IMMEDIATE")
        with self._raw:
            (sweeps,) = self._raw.execute(_SWEEPS).fetchone()
            rows = fill(sweeps)
            _insert_rows(self._raw, "OR IGNORE INTO texts (hash, size, body)", rows.texts)
            _insert_rows(self._raw, f"INTO calls ({CALL_COLUMNS})", rows.calls)
            _insert_rows(self._raw, "OR IGNORE INTO reuses (run_id, call_id)", rows.reuses)

    def close(self) -> None:
        self._connection.close()


def _raw(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def _insert_rows(raw: sqlite3.Connection, target: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for position in range(0, len(rows), ROWS_PER_STATEMENT):
        chunk = rows[position : position + ROWS_PER_STATEMENT]
        values = [value for row in chunk for value in row]
        raw.execute(_insert_statement(target, len(chunk[0]), len(chunk)), values)


@lru_cache(maxsize=3 * ROWS_PER_STATEMENT)
def _insert_statement(target: str, columns: int, count: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT {target} VALUES {', '.join([row] * count)}"
