"""Where a store is: in an SQLite file, or in a database of a PostgreSQL server.

A `Database` runs functions of a connection, each in one transaction, and says in one line what an
error means. What they read and write is the business of the files beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from textevolve.errors import InputError, StoreAwayError, StoreError
from textevolve.settings import StoreAddress, StoreLocation, store_location
from textevolve.store.backend import Backend
from textevolve.store.documents import DAMAGES
from textevolve.store.postgres import PostgresDatabase
from textevolve.store.postgres_backend import PostgresBackend
from textevolve.store.schema import connect, explain, prepare
from textevolve.store.sqlite import load_vector_search, sqlite3
from textevolve.store.sqlite_backend import SQLiteBackend

T = TypeVar("T")


class Database(Protocol):
    """`vectors`: whether it can search by meaning itself. Any thread may use it."""

    @property
    def vectors(self) -> bool: ...

    def read(self, query: Callable[[Connection], T]) -> T:
        """Everything that the function reads is of one moment."""
        ...

    def write(self, change: Callable[[Connection], T]) -> T:
        """All that the function writes is kept when this returns, and nothing where it raises."""
        ...

    def close(self) -> None: ...


def open_database(location: StoreLocation | str) -> Database:
    """The database at a path, which is made where it is missing, or at a postgresql:// address.

    Raises:
        StoreError: it cannot be used; says why and what to do.
    """
    found = _locate(location)
    return PostgresDatabase(found) if isinstance(found, StoreAddress) else SQLiteDatabase(found)


def open_backend(location: StoreLocation | str) -> Backend:
    """What keeps runs and their calls at such a location.

    Raises:
        StoreError: it cannot be used; says why and what to do.
    """
    found = _locate(location)
    return PostgresBackend(found) if isinstance(found, StoreAddress) else SQLiteBackend(found)


def _locate(location: StoreLocation | str) -> StoreLocation:
    try:
        found = store_location(location)
    except ValueError as error:
        raise StoreError(str(error)) from None
    return found.expanduser().absolute() if isinstance(found, Path) else found


class SQLiteDatabase:
    """One file, which may be that of runs; several processes may use it at once."""

    def __init__(self, path: Path) -> None:
        prepare(path)
        self.path = path
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._reader = connect(path, writing=False)
        self._writer = connect(path, writing=True)
        loaded = [load_vector_search(_raw(one)) for one in (self._reader, self._writer)]
        self.vectors = all(loaded)
        for one in (self._reader, self._writer):
            one.info["vectors"] = self.vectors

    def read(self, query: Callable[[Connection], T]) -> T:
        with self._reading:
            try:
                self._reader.exec_driver_sql("BEGIN")
                try:
                    return query(self._reader)
                finally:
                    self._reader.exec_driver_sql("ROLLBACK")
            except (SQLAlchemyError, sqlite3.Error, *DAMAGES) as error:
                raise self._explain(error) from error

    def write(self, change: Callable[[Connection], T]) -> T:
        with self._writing:
            try:
                with self._writer.begin():
                    return change(self._writer)
            except (SQLAlchemyError, sqlite3.Error, *DAMAGES) as error:
                raise self._explain(error) from error

    def close(self) -> None:
        with self._reading, self._writing:
            self._reader.close()
            self._writer.close()

    def _explain(self, error: Exception) -> StoreError | InputError:
        if isinstance(error, OverflowError):
            return InputError("a number has more than 64 bits, and cannot be kept or looked for")
        if self._reader.closed:
            return StoreAwayError(f"store {self.path}: is closed")
        return explain(error, self.path)


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert raw is not None
    return raw
