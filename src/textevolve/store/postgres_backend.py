"""Runs and their calls in PostgreSQL, which several machines may use at once.

A connection that is lost is opened anew, for a minute, and what was under way on it is done again,
unless it was kept after all: the server may end in the very moment of a commit. Changes are made in
the order of advisory locks: one after the other of a run, while a change of all runs waits for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from textevolve.errors import StoreError
from textevolve.settings import StoreAddress
from textevolve.store.backend import CALL_COLUMNS, FoundAnswers, GroupRows, Spoiled
from textevolve.store.claims import Claims
from textevolve.store.documents import DAMAGES
from textevolve.store.postgres import LOCK, Patience, PostgresDatabase, error_state, is_lost

T = TypeVar("T")

TRIES = 5
"""How often a change is made that others' changes undo."""

_UNDONE = ("40001", "40P01")

_SHARED = f"SELECT pg_advisory_xact_lock_shared({LOCK}, 0)"
_ALONE = f"SELECT pg_advisory_xact_lock({LOCK}, 0)"
_OF_RUN = f"SELECT pg_advisory_xact_lock({LOCK + 1}, hashtext(%s))"
_SWEEPS = "SELECT value FROM counters WHERE name = 'sweeps'"
_NUMBER = "SELECT pg_current_xact_id_if_assigned()::text"

_TEXTS = """
INSERT INTO texts (hash, size, body) SELECT * FROM unnest(%b::bytea[], %b::int4[], %b::bytea[])
ON CONFLICT DO NOTHING
"""
_CALLS = f"COPY calls ({CALL_COLUMNS}) FROM STDIN (FORMAT BINARY)"
_TYPES = (
    *("text", "text", "text", "float8", "float8", "int4", "int4", "int4", "int4", "float8"),
    *("bytea", "bytea", "bytea", "bytea", "float8"),
)
_REUSES = """
INSERT INTO reuses (run_id, call_id) SELECT * FROM unnest(%b::text[], %b::int8[])
ON CONFLICT DO NOTHING
"""
_FIND = """
SELECT key, id, prompt_tokens, cached_tokens, completion_tokens, cost, saved, response,
    run_id = %(run)s OR EXISTS (
        SELECT 1 FROM reuses WHERE run_id = %(run)s AND call_id = calls.id)
FROM calls WHERE key = ANY(%(keys)s) AND error IS NULL ORDER BY run_id = %(run)s, id DESC
"""


class PostgresBackend:
    remote = True

    def __init__(self, address: StoreAddress) -> None:
        self.location = address
        self._database = PostgresDatabase(address)
        self._claims = Claims()
        self.errors = (SQLAlchemyError, self._database.driver_error, *DAMAGES)

    def open_reader(self) -> PostgresReader:
        return PostgresReader(self._database)

    def open_session(self) -> PostgresSession:
        return PostgresSession(self._database)

    def explain(self, error: Exception, run_id: str = "") -> StoreError:
        said = self._database.explain(error)
        return type(said)(f"run {run_id}: {said}") if run_id else said

    def judge(self, error: Exception) -> Spoiled:
        """A server that is gone may be back for the next group."""
        spoiled = error_state(error).startswith(("22", "23"))
        return "row" if spoiled or isinstance(error, (*DAMAGES, StoreError)) else "group"

    def find_answers(
        self, connection: Connection, run_id: str, keys: Sequence[str], done: Sequence[str]
    ) -> FoundAnswers:
        """They are claimed before they are looked up: an answer that came meanwhile is found."""
        raw = _raw(connection)
        claimed = self._claims.take(raw, run_id, keys, done)
        with raw.cursor(binary=True) as cursor:
            rows = cursor.execute(_FIND, {"run": run_id, "keys": keys}).fetchall()
        found = {row[0] for row in rows}
        self._claims.give_back(raw, found)
        return FoundAnswers(rows, claimed - found)

    def close(self) -> None:
        self._database.close()


class _Lasting:
    """A connection that is opened anew where it is lost. Where that was tried for too long, each
    further work tries it once, until there is one."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._patience = Patience()
        self.closed = False
        try:
            self._run(lambda _: None)
        except SQLAlchemyError as error:
            raise database.explain(error) from error

    def close(self) -> None:
        self.closed = True
        self._drop()

    def _run(self, work: Callable[[Connection], T]) -> T:
        """`work` is done again where the connection is lost, or others have undone it."""
        undone = 0
        while True:
            try:
                if self._connection is None:
                    self._connection = self._database.connect()
                done = work(self._connection)
            except (DBAPIError, self._database.driver_error) as error:
                undone += error_state(error) in _UNDONE
                if 0 < undone < TRIES and error_state(error) in _UNDONE:
                    continue
                if not _is_lost(error, self._connection):
                    raise
                self._drop()
                if not self._patience.wait():
                    raise
            else:
                self._patience.end()
                return done

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(SQLAlchemyError, self._database.driver_error):
                self._connection.invalidate()
            with suppress(SQLAlchemyError, self._database.driver_error):
                self._connection.close()
            self._connection = None


class PostgresReader(_Lasting):
    def read(self, query: Callable[[Connection], T]) -> T:
        return self._run(query)


class _Kept(Generic[T]):
    """What became of a change: its result and the number of its transaction, once it is about to be
    kept."""

    def __init__(self) -> None:
        self.result: T | None = None
        self.number: str | None = None


class PostgresSession(_Lasting):
    def change(self, change: Callable[[Connection], T], run_id: str | None) -> T:
        kept = _Kept[T]()

        def attempt(connection: Connection) -> T:
            if kept.number is not None and _was_kept(connection, kept.number):
                return kept.result  # pyright: ignore[reportReturnType]  it is there with the number
            kept.number = None
            with _Transaction(connection):
                if run_id is None:
                    connection.exec_driver_sql(_ALONE)
                else:
                    connection.exec_driver_sql(_SHARED)
                    connection.exec_driver_sql(_OF_RUN, (run_id,))
                kept.result = change(connection)
                kept.number = connection.exec_driver_sql(_NUMBER).scalar_one()
            return kept.result

        return self._run(attempt)

    def insert(self, fill: Callable[[int], GroupRows]) -> None:
        first: list[tuple[Any, ...]] = []

        def attempt(connection: Connection) -> None:
            raw = _raw(connection)
            if first and _is_there(raw, first[0]):
                return
            first.clear()
            with _Transaction(connection):
                raw.execute(_SHARED)
                (sweeps,) = raw.execute(_SWEEPS).fetchone()
                rows = fill(sweeps)
                _insert(raw, rows)
                first[:] = rows.calls[:1]

        self._run(attempt)


class _Transaction:
    """BEGIN and COMMIT, or ROLLBACK where there is still somebody to ask."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.exec_driver_sql("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.exec_driver_sql("COMMIT")
            return
        if not self._connection.invalidated and not _raw(self._connection).closed:
            with suppress(SQLAlchemyError):
                self._connection.exec_driver_sql("ROLLBACK")


def _insert(raw: Any, rows: GroupRows) -> None:
    with raw.cursor() as cursor:
        if rows.texts:
            # In one order, so that two who write the same texts do not wait for each other.
            hashes, sizes, bodies = zip(*sorted(rows.texts), strict=True)
            cursor.execute(_TEXTS, (list(hashes), list(sizes), list(bodies)))
        if rows.calls:
            with cursor.copy(_CALLS) as copy:
                copy.set_types(_TYPES)
                for row in rows.calls:
                    copy.write_row(row)
        if rows.reuses:
            runs, calls = zip(*rows.reuses, strict=True)
            cursor.execute(_REUSES, (list(runs), list(calls)))


def _is_there(raw: Any, call: tuple[Any, ...]) -> bool:
    """Whether the group was kept that this call was in: all of it is, or nothing."""
    asked = "SELECT 1 FROM calls WHERE run_id = %s AND key = %s AND started = %s AND seconds = %s"
    run_id, key, _, started, seconds, *_ = call
    return raw.execute(asked, (run_id, key, started, seconds)).fetchone() is not None


def _was_kept(connection: Connection, number: str) -> bool:
    """Whether a transaction was committed that lost its connection."""
    while True:
        try:
            asked = "SELECT pg_xact_status(%s::xid8)"
            status = connection.exec_driver_sql(asked, (number,)).scalar_one()
        except DBAPIError as error:
            if error_state(error).startswith("22"):  # the server does not know it any more
                return False
            raise
        if status != "in progress":
            return status == "committed"
        time.sleep(0.1)


def _is_lost(error: Exception, connected: Connection | None) -> bool:
    if connected is None:
        return is_lost(error, connected=False, gone=True)
    gone = connected.invalidated or _raw(connected).closed
    return is_lost(error, connected=True, gone=gone)


def _raw(connection: Connection) -> Any:
    return connection.connection.driver_connection
