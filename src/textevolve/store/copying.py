"""A store copied into another one, whichever databases they are in; what is in both is the same.

The copy is of one moment of the first store. One that was broken off is gone on with: until it is
whole, a mark in the second store says whose copy it is. In the end both are read and compared, row
by row, by hashes that do not depend on the order in which databases give rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Table, delete, func, inspect, null, select, tuple_
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.errors import StoreError
from textevolve.memory.record import Collection
from textevolve.settings import StoreLocation
from textevolve.store import lease, tables
from textevolve.store.database import Database, open_database
from textevolve.store.dialects import insert_into, is_postgres
from textevolve.store.memory_changes import search_of
from textevolve.store.memory_rows import IndexEntry, chunks, collection_of
from textevolve.store.resource_rows import fetch_all, update_where
from textevolve.store.schema import version_of_persona

PAGE = 500
OWN = ("counters",)
"""What is each store's own."""
MARK = "copy of "


@dataclass(frozen=True, slots=True)
class Copied:
    """`rows`: by table. `hash`: of all that is in both stores."""

    rows: dict[str, int]
    hash: str


def copied_tables() -> list[Table]:
    return [one for one in tables.metadata.sorted_tables if one.name not in OWN]


def copy_store(source: StoreLocation, target: StoreLocation) -> Copied:
    """Copy everything, and compare.

    Raises:
        StoreError: the first is in use, the second holds something else, or they differ in the end.
    """
    if str(source) == str(target):
        raise StoreError(f"store {source}: cannot be copied into itself")
    older = open_database(source, accept_older=True)
    with closing(older) as first, closing(open_database(target)) as second:
        second.write(lambda c: _begin(c, source, target))
        copied = first.read(lambda c: _copy(c, second))
        found = second.read(_hash_all)
        if found != copied:
            differing = [name for name, sums in copied.items() if found[name] != sums]
            raise StoreError(
                f"store {target}: differs from {source} in {', '.join(differing)}; that was changed"
                " since the copy was begun: copy it into a new store"
            )
        second.write(finish_copy)
        total = sum(number for _, number in copied.values()) % 2**256
        return Copied({name: rows for name, (rows, _) in copied.items()}, f"{total:064x}")


def _begin(connection: Connection, source: StoreLocation, target: StoreLocation) -> None:
    counters, mark = tables.counters, f"{MARK}{source}"
    marks = set(connection.execute(select(counters.c.name)).scalars())
    if mark in marks:
        return
    used = [one.name for one in copied_tables() if connection.execute(select(one).limit(1)).first()]
    if used or any(one.startswith(MARK) for one in marks):
        raise StoreError(
            f"store {target}: holds something already ({', '.join(used) or 'another copy'}); name a"
            " new file or an empty database"
        )
    connection.execute(counters.insert().values(name=mark, value=1))


def _copy(connection: Connection, target: Database) -> dict[str, tuple[int, int]]:
    for run in fetch_all(connection, tables.runs, status="running"):
        lease.require_free(connection, run, "wait for it or stop it first")
    for table in copied_tables():
        for page in chunks(read_rows(connection, table), PAGE):
            target.write(lambda c, page=page, table=table: _put(c, table, page))
    return _hash_all(connection)


def row_keys(table: Table) -> list[Any]:
    """The columns that tell the rows of a table apart."""
    if table is tables.cases:
        return [table.c.run_id, table.c.index]
    return list(table.primary_key.columns)


def read_rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in the order of its keys. An older store may lack the table, or
    some of its columns."""
    inspector, keys = inspect(connection), row_keys(table)
    if not inspector.has_table(table.name):
        if table is tables.resource_versions and inspector.has_table("personas"):
            query = sql("SELECT * FROM personas ORDER BY agent_id, version")
            rows = connection.execute(query).mappings()
            yield from [version_of_persona(dict(row)) for row in rows]
        return
    present = {column["name"] for column in inspector.get_columns(table.name)}
    columns = [
        column if column.name in present else null().label(column.name) for column in table.c
    ]
    page = query = select(*columns).order_by(*keys).limit(PAGE)
    while rows := [dict(row) for row in connection.execute(page).mappings()]:
        yield from rows
        page = query.where(tuple_(*keys) > tuple_(*(rows[-1][key.name] for key in keys)))


def _put(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Write rows, in place of those that a copy which was broken off has written."""
    insertion = insert_into(connection, table)
    keys = [key.name for key in row_keys(table)]
    others = {name: insertion.excluded[name] for name in rows[0] if name not in keys}
    if others:
        upsert = insertion.on_conflict_do_update(index_elements=keys, set_=others)
    else:
        upsert = insertion.on_conflict_do_nothing()
    connection.execute(upsert, rows)


def _hash_all(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return for each table the number of its rows, and the sum of their hashes. Who holds a run is
    left out: nobody holds the copy's."""
    sums: dict[str, tuple[int, int]] = {}
    for table in copied_tables():
        count = total = 0
        for row in read_rows(connection, table):
            values = [each for each in row.items() if not each[0].startswith("lease_")]
            if table is tables.runs and row["status"] == "running":
                values = [(k, "interrupted" if k == "status" else v) for k, v in values]
            text = repr((table.name, values)).encode("utf-8", "surrogatepass")
            count, total = count + 1, total + int.from_bytes(hashlib.sha256(text).digest())
        sums[table.name] = count, total % 2**256
    return sums


def finish_copy(connection: Connection) -> None:
    """What makes a copy a store of its own: search indexes, the next numbers, and no mark."""
    for table in (tables.runs, tables.jobs):
        free = {column.name: None for column in table.c if column.name.startswith("lease_")}
        update_where(connection, table, free)
    update_where(connection, tables.runs, {"status": "interrupted"}, status="running")
    if is_postgres(connection):
        for table in (tables.calls, tables.memories, tables.uses, tables.job_runs):
            (key,) = table.primary_key.columns
            top = f"SELECT coalesce(max({key.name}), 0) + 1 FROM {table.name}"
            sequence = f"pg_get_serial_sequence('{table.name}', '{key.name}')"
            connection.execute(sql(f"SELECT setval({sequence}, ({top}), false)"))
    _index_memories(connection)
    counters = tables.counters
    connection.execute(delete(counters).where(counters.c.name.startswith(MARK)))


def _index_memories(connection: Connection) -> None:
    for row in connection.execute(select(tables.collections)).all():
        index_collection(connection, collection_of(row, ""))


def index_collection(connection: Connection, collection: Collection) -> None:
    """Index the memories of a collection that has no index, by their embeddings and texts."""
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
    """How many rows each table has."""
    return {
        one.name: connection.execute(select(func.count()).select_from(one)).scalar_one()
        for one in copied_tables()
    }
