"""Copy a store into another one, whichever databases they are in: completely, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from sqlalchemy import Table, func, select, tuple_
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.memory.record import Collection
from textevolve.settings import StoreLocation
from textevolve.store import lease, tables
from textevolve.store.database import open_database
from textevolve.store.dialects import is_postgres
from textevolve.store.memory_changes import search_of
from textevolve.store.memory_rows import IndexEntry, chunks, collection_of
from textevolve.store.resource_rows import fetch_all, update_where

PAGE = 500
"""The number of rows that are inserted at once."""
UNCOPIED_TABLES = ("counters",)
"""The tables that are not copied, since each store has its own."""


def copied_tables() -> list[Table]:
    return [table for table in tables.metadata.sorted_tables if table.name not in UNCOPIED_TABLES]


def copy_store(source: StoreLocation, target: StoreLocation) -> dict[str, int]:
    """Copy a consistent snapshot of a store; return the target's number of rows by table.

    Raises:
        StoreError: a living process works on a run of the source, or the target is not empty.
    """
    if str(source) == str(target):
        raise StoreError(f"store {source}: cannot be copied into itself")

    def copy(reading: Connection, writing: Connection) -> dict[str, int]:
        if used := [name for name, number in count_rows(writing).items() if number]:
            raise StoreError(
                f"store {target}: is not empty ({', '.join(used)}); name a new file or an empty"
                " database"
            )
        for run in fetch_all(reading, tables.runs, status="running"):
            lease.require_free(reading, run, "wait for it or stop it first")
        for table in copied_tables():
            for page in chunks(read_rows(reading, table), PAGE):
                writing.execute(table.insert(), page)
        finish_copy(writing)
        return count_rows(writing)

    with (
        closing(open_database(source)) as source_database,
        closing(open_database(target)) as target_database,
    ):
        return target_database.write(
            lambda writing: source_database.read(lambda reading: copy(reading, writing))
        )


def row_keys(table: Table) -> list[Any]:
    """Return the columns that identify a row of a table."""
    if table is tables.cases:
        return [table.c.run_id, table.c.index]
    return list(table.primary_key.columns)


def read_rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in the order of its keys."""
    keys = row_keys(table)
    page = query = select(table).order_by(*keys).limit(PAGE)
    while rows := [dict(row) for row in connection.execute(page).mappings()]:
        yield from rows
        page = query.where(tuple_(*keys) > tuple_(*(rows[-1][key.name] for key in keys)))


def finish_copy(connection: Connection) -> None:
    """Turn copied tables into a complete store: build the search indexes, let PostgreSQL's
    sequences continue after the copied ids, release all leases, and mark running runs as
    interrupted."""
    for table in (tables.runs, tables.jobs):
        update_where(connection, table, lease.no_lease(table))
    update_where(connection, tables.runs, {"status": "interrupted"}, status="running")
    if is_postgres(connection):
        for table in (tables.calls, tables.memories, tables.uses, tables.job_runs):
            (key,) = table.primary_key.columns
            top = f"SELECT coalesce(max({key.name}), 0) + 1 FROM {table.name}"
            sequence = f"pg_get_serial_sequence('{table.name}', '{key.name}')"
            connection.execute(sql(f"SELECT setval({sequence}, ({top}), false)"))
    for row in connection.execute(select(tables.collections)).all():
        index_collection(connection, collection_of(row, ""))


def index_collection(connection: Connection, collection: Collection) -> None:
    """Index the memories of a collection that has no index, by their embeddings and texts. Erased
    memories, whose text is empty, are left out."""
    memories, embeddings = tables.memories, tables.embeddings
    lost = bytes(4 * collection.dimension)  # a salvaged store may lack an embedding
    query = (
        select(memories, embeddings.c.vector)
        .outerjoin(embeddings, embeddings.c.seq == memories.c.seq)
        .where(memories.c.collection_id == collection.id, memories.c.text != "")
        .order_by(memories.c.seq)
    )
    for chunk in chunks(connection.execute(query).all()):
        entries = [
            IndexEntry(row.seq, row.text, np.frombuffer(row.vector or lost, "<f4")) for row in chunk
        ]
        search_of(connection).add(connection, collection, entries)


def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each copied table, by its name."""
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in copied_tables()
    }
