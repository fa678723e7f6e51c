"""Open the database of a store: an SQLite file, or a database of a PostgreSQL server.

A database calls functions of a connection, each in one transaction, and converts errors into
messages of one line. The other modules of this package implement these functions.
"""

from __future__ import annotations

from typing import TypeAlias

from textevolve.errors import StoreError
from textevolve.settings import StoreAddress, StoreLocation, store_location
from textevolve.store.postgres import PostgresDatabase
from textevolve.store.sqlite import SQLiteDatabase

Database: TypeAlias = SQLiteDatabase | PostgresDatabase


def open_database(
    location: StoreLocation | str, *, patient: bool = False, vectors_mb: int | None = None
) -> Database:
    """Open the database at a path, where a missing file is created, or at a postgresql:// address.

    Args:
        location: The path or address.
        patient: Wait up to a minute for a PostgreSQL server that cannot be reached, instead of
            failing at once.
        vectors_mb: The most megabytes of embeddings that searches in SQLite keep in memory; None:
            the default.

    Raises:
        StoreError: the store cannot be used; the message says why and what to do.
    """
    try:
        place = store_location(location)
    except ValueError as error:
        raise StoreError(str(error)) from None

    if isinstance(place, StoreAddress):
        return PostgresDatabase(place, patient=patient)

    return SQLiteDatabase(place.expanduser().absolute(), vectors_mb)
