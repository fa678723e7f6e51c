"""Where namespaces, agents and memories are kept: an SQLite file, or a PostgreSQL server.

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

from textevolve.errors import StoreError
from textevolve.store.documents import DAMAGES
from textevolve.store.postgres import PostgresDatabase
from textevolve.store.schema import connect, explain, prepare
from textevolve.store.sqlite import load_vector_search, sqlite3

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


def open_database(location: str | Path) -> Database:
    """The database at a path, which is made where it is missing, or at a postgresql:// address.

    Raises:
        StoreError: it cannot be used; says why and what to do.
    """
    scheme, found, _ = str(location).partition("://")
    if isinstance(location, Path) or not found:
        return SQLiteDatabase(Path(location).expanduser().absolute())
    if scheme in ("postgresql", "postgres"):
        return PostgresDatabase(location)
    raise StoreError(
        f"there is no store at {scheme}:// addresses; give a path or a postgresql:// address"
    )


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

    def _explain(self, error: Exception) -> StoreError:
        if self._reader.closed:
            return StoreError(f"store {self.path}: is closed")
        return explain(error, self.path)


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert raw is not None
    return raw
