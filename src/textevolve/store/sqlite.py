"""A store in an SQLite file, which several processes may use at once. The queries of each call are
sent directly to the driver, since SQLAlchemy would take more time than the rows."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from textevolve.errors import InputError, StoreAwayError, StoreError, shorten_error
from textevolve.store import tables
from textevolve.store.dialects import (
    CALL_COLUMNS,
    SWEEPS,
    GroupRows,
    cause_of,
    create_tables,
    driver_of,
    explained,
    update_tables,
)
from textevolve.store.documents import CHECK, DAMAGES

P = ParamSpec("P")
T = TypeVar("T")

BUSY_SECONDS = 30.0
"""The seconds for which a connection waits while another process writes."""

ROWS_PER_STATEMENT = 64
"""The maximum number of rows that one statement inserts."""

ERRORS = (SQLAlchemyError, sqlite3.Error, *DAMAGES)
"""The exceptions that connections and damaged rows may raise."""

_FIND = """
SELECT key, id, prompt_tokens, cached_tokens, completion_tokens, cost, saved, response,
    run_id = :run OR EXISTS (SELECT 1 FROM reuses WHERE run_id = :run AND call_id = calls.id)
FROM calls WHERE key IN (SELECT value FROM json_each(:keys)) AND error IS NULL
ORDER BY run_id = :run, id DESC
"""
"""The query for the answers stored under some keys."""

LOG_BYTES = 8_000_000
"""The size to which the write-ahead log is cut once its content stands in the file."""

_ADVICE = {
    "SQLITE_FULL": "the disk is full: free some space and resume; rows that were stored before"
    " are intact",
    "SQLITE_IOERR": (
        "the disk refuses to read or write: check its free space and its health, then resume;"
        " rows that were stored before are intact"
    ),
    "SQLITE_BUSY": "another process keeps it locked; end that process and try again",
    "SQLITE_READONLY": "it cannot be written by this process; check the rights of file and"
    " folder, or use a copy",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists, that this process may"
    " write to it, and that it has not reached its limit of open files (ulimit -n)",
    "SQLITE_NOTADB": f"it is not a database; choose another file with --store ({CHECK})",
    "SQLITE_CORRUPT_VTAB": (
        "the index of the memories' words is damaged, the memories are not; textevolve config store"
        " check builds it anew"
    ),
    "SQLITE_CORRUPT": f"the file is damaged; {CHECK}",
}
"""The advice for an error by the beginning of SQLite's name of it; the first one that fits is
used."""


class SQLiteDatabase:
    """An SQLite database. Any thread may use it.

    Attributes:
        remote: Whether a query may take as long as a network request, so that event loops must not
            wait for it.
        errors: The exceptions that connections and damaged rows may raise.
    """

    remote = False
    errors = ERRORS

    def __init__(self, path: Path, vectors_mb: int | None = None) -> None:
        """Open the database in a file, which is created if it is missing. `vectors_mb`: the most
        megabytes of embeddings that searches keep in memory; None: the default.

        Raises:
            StoreError: the file cannot be used; the message says why and what to do.
        """
        self.location = path
        self._reading = threading.Lock()
        self._reading_thread: int | None = None
        self._writing = threading.Lock()
        _create_file(path)
        self._writer = connect(path, writing=True)
        try:
            # First, since a file that is refused must stay as it is.
            with self._writer.begin():
                _update_file(self._writer, path)
            _switch_to_wal(driver_of(self._writer), path)
            self._reader = connect(path, writing=False)
        except BaseException as error:
            self._writer.close()
            if isinstance(error, ERRORS):
                raise explain(error, path) from error
            raise

        if vectors_mb is not None:
            self._reader.info["vector_bytes"] = vectors_mb * 2**20

    def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function of a connection that reads one consistent snapshot.

        Raises:
            RuntimeError: the thread is within a read already, which would wait for itself.
        """
        if self._reading_thread == threading.get_ident():
            raise RuntimeError("a read of the store within a read: read both with one function")

        with self._reading, explained(self):
            self._reading_thread = threading.get_ident()
            self._reader.exec_driver_sql("BEGIN")
            try:
                return query(self._reader, *args, **kwargs)
            finally:
                self._reading_thread = None
                self._reader.exec_driver_sql("ROLLBACK")

    def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function of a connection in a transaction; if it raises, nothing is stored."""
        with explained(self), self._writing, self._writer.begin():
            return change(self._writer, *args, **kwargs)

    def change(
        self,
        run_id: str | None,
        change: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function that changes runs; changes are made one after another."""
        return self.write(change, *args, **kwargs)

    def insert(self, fill: Callable[[int], GroupRows]) -> None:
        """Insert the rows that `fill` returns, from the number of the last sweep, in one
        transaction."""
        with self._writing:
            raw: sqlite3.Connection = driver_of(self._writer)
            raw.execute("BEGIN IMMEDIATE")
            with raw:
                rows = fill(raw.execute(SWEEPS).fetchone()[0])
                _insert_rows(raw, "OR IGNORE INTO texts (hash, size, body)", rows.texts)
                _insert_rows(raw, f"INTO calls ({', '.join(CALL_COLUMNS)})", rows.calls)
                _insert_rows(raw, "OR IGNORE INTO reuses (run_id, call_id)", rows.reuses)

    def find_answers(self, run_id: str, keys: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Return the answers stored under the keys; of several under one key, the one for this run
        comes last: its own first answer, or else the oldest one of another run. Each row has the
        key, the id, the prompt, cached and completion tokens, the cost, the savings, the response,
        and whether the run made the call or has found it before. It is called before each model
        call."""
        values = {"run": run_id, "keys": json.dumps(keys)}
        with self._reading, explained(self):
            return driver_of(self._reader).execute(_FIND, values).fetchall()

    def vacuum(self, *, scrub: bool = False) -> None:
        """Rewrite the file. `scrub`: remove erased texts from free pages and the write-ahead log,
        too.

        Raises:
            StoreError: other processes prevent `scrub` from emptying the log.
        """
        with explained(self), closing(connect(self.location, writing=False)) as connection:
            connection.exec_driver_sql("PRAGMA query_only = OFF")
            connection.exec_driver_sql("VACUUM")
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()

        if busy and scrub:
            raise StoreError(
                f"store {self.location}: its write-ahead log, which may hold erased texts, cannot"
                " be emptied while other processes read it; end them and try again"
            )

    def explain(self, error: Exception) -> StoreError | InputError:
        if isinstance(error, OverflowError):
            return InputError(
                "a number has more than 64 bits, so the store can neither keep nor find it"
            )

        if self._reader.closed:
            return StoreAwayError(f"store {self.location}: is closed; open it again")
        return explain(error, self.location)

    def is_row_fault(self, error: Exception) -> bool:
        """Return whether an error concerns one row that cannot be stored, and not the whole group
        of writes, as a full disk does."""
        cause = cause_of(error)
        is_of_file = isinstance(cause, sqlite3.OperationalError)
        return not is_of_file and type(cause) is not sqlite3.DatabaseError

    def close(self) -> None:
        with self._writing:
            self._writer.close()
        with self._reading:
            self._reader.close()


def _insert_rows(raw: sqlite3.Connection, target: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for position in range(0, len(rows), ROWS_PER_STATEMENT):
        chunk = rows[position : position + ROWS_PER_STATEMENT]
        values = [value for row in chunk for value in row]
        raw.execute(_insert_statement(target, len(chunk[0]), len(chunk)), values)


@lru_cache(maxsize=3 * ROWS_PER_STATEMENT)
def _insert_statement(target: str, columns: int, count: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT {target} VALUES {', '.join([row] * count)}"


_OPENED: ContextVar[Path] = ContextVar("opened")
"""The file that `connect` opens."""


@cache
def _engine(writing: bool) -> Engine:
    """Return the engine of the connections to all files: it compiles a statement once for the whole
    process, which takes longer than most queries."""

    def create() -> sqlite3.Connection:
        raw = sqlite3.connect(
            f"{_OPENED.get().as_uri()}?mode=rw",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        raw.execute("PRAGMA synchronous = FULL")
        # Not all builds have it as their default, and what was deleted has to be gone.
        raw.execute("PRAGMA secure_delete = ON")
        # While a server keeps the store open, the log would stay as long as it ever was.
        raw.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        if not writing:
            raw.execute("PRAGMA query_only = ON")
        return raw

    def take_write_lock(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    engine = create_engine("sqlite://", creator=create, poolclass=NullPool, module=sqlite3)
    if writing:
        event.listen(engine, "begin", take_write_lock)
    return engine


def connect(path: Path, *, writing: bool) -> Connection:
    """Open a connection that any thread may use, one at a time. If it is for `writing`, `begin()`
    takes the write lock; otherwise it cannot write."""
    token = _OPENED.set(path)
    try:
        connection = _engine(writing).connect()
    except DBAPIError as error:
        raise explain(error, path) from error
    finally:
        _OPENED.reset(token)

    return connection if writing else connection.execution_options(isolation_level="AUTOCOMMIT")


def _create_file(path: Path) -> None:
    """Create the file so that only its owner can read it, since it holds the user's texts."""
    if path.is_dir():
        raise StoreError(f"store {path}: is a folder; name a file in it with --store")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # An existing file is never opened here: closing it would drop the locks that SQLite holds
        # for other connections of this process.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        if path.is_file():
            return
        if path.exists():
            raise StoreError(f"store {path}: is not a plain file; name one with --store") from None
        place = "cannot be created" if path.parent.is_dir() else "its folder cannot be made"
        raise StoreError(
            f"store {path}: {place} ({error.strerror}); choose another file with --store"
        ) from error


def _switch_to_wal(raw: sqlite3.Connection, path: Path) -> None:
    """Switch the file to WAL mode, waiting for other processes, which SQLite does not do here."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = raw.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if not _error_name(error).startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.02)

    if mode != "wal":
        raise StoreError(
            f"store {path}: this folder does not allow a write-ahead log (a network folder?); "
            "choose a local one with --store"
        )


def _update_file(connection: Connection, path: Path) -> None:
    mark = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
    if mark == tables.APPLICATION_ID:
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version")
        revision = str(version.scalar_one())
        if re.fullmatch(r"[0-9]{4}", revision) is None:
            raise ValueError(f"there is no schema {revision!r}")
        update_tables(connection, revision, path)
    elif connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one():
        raise StoreError(
            f"store {path}: is a database of another program, or damaged; choose another file with"
            f" --store ({CHECK})"
        )
    else:
        create_tables(connection)
        connection.exec_driver_sql(f"PRAGMA application_id = {tables.APPLICATION_ID}")


def explain(error: Exception, path: Path) -> StoreError:
    """Explain an error of the database to the user, and how to solve it."""
    cause = cause_of(error)
    text = shorten_error(cause)
    for name, advice in _ADVICE.items():
        if _error_name(error).startswith(name):
            return StoreAwayError(f"store {path}: {advice} ({text})")
    return StoreAwayError(f"store {path}: cannot be used ({type(cause).__name__}: {text}); {CHECK}")


def _error_name(error: Exception) -> str:
    cause = cause_of(error)
    return str(getattr(cause, "sqlite_errorname", ""))
