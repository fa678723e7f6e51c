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
from sqlalchemy import Table, delete, func, inspect, null, select, tuple_, update
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
from textevolve.store.schema import version_of_persona

PAGE = 500
GROWING = ("texts", "calls")
"""Tables whose rows are never changed and are copied in the order of their keys, so that those that
are there already are passed over; of others all rows are written again."""
OWN = ("counters",)
"""What is each store's own."""
MARK = "copy of "
LEASES = (tables.runs, tables.jobs)


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
        copied = first.read(lambda c: _copy(c, source, second))
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


def _copy(
    connection: Connection, source: StoreLocation, target: Database
) -> dict[str, tuple[int, int]]:
    _refuse_used(connection, source)
    for table in copied_tables():
        for page in read_pages(connection, table, _start(table, target)):
            target.write(lambda c, page=page, table=table: _put(c, table, page))
    return _hash_all(connection)


def _refuse_used(connection: Connection, source: StoreLocation) -> None:
    for row in connection.execute(select(tables.runs).where(tables.runs.c.status == "running")):
        holder = (row.lease_host, row.lease_pid, row.lease_process, row.lease_heartbeat)
        if lease.is_held(connection, *holder):
            raise StoreError(
                f"store {source}: run {row.id} is in work by process {row.lease_pid} on"
                f" {row.lease_host}; wait for it or stop it first"
            )


def row_keys(table: Table) -> list[Any]:
    """The columns that tell the rows of a table apart."""
    if table is tables.cases:
        return [table.c.run_id, table.c.index]
    return list(table.primary_key.columns)


def _start(table: Table, target: Database) -> tuple[Any, ...] | None:
    if table.name not in GROWING:
        return None
    (key,) = row_keys(table)
    # bytea has no max() before PostgreSQL 18
    newest = select(key).order_by(key.desc()).limit(1)
    found = target.read(lambda c: c.execute(newest).scalar_one_or_none())
    return None if found is None else (found,)


def read_pages(
    connection: Connection, table: Table, after: tuple[Any, ...] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a table in the order of its keys, from behind those of `after` on. An older
    store may lack the table, or some of its columns."""
    inspector, keys = inspect(connection), row_keys(table)
    if not inspector.has_table(table.name):
        if table is tables.resource_versions and inspector.has_table("personas"):
            query = sql("SELECT * FROM personas ORDER BY agent_id, version")
            rows = connection.execute(query).mappings()
            if versions := [version_of_persona(dict(row)) for row in rows]:
                yield versions
        return
    present = {column["name"] for column in inspector.get_columns(table.name)}
    columns = [
        column if column.name in present else null().label(column.name) for column in table.c
    ]
    while True:
        query = select(*columns).order_by(*keys).limit(PAGE)
        if after is not None:
            query = query.where(tuple_(*keys) > tuple_(*after))
        rows = [dict(row) for row in connection.execute(query).mappings()]
        if not rows:
            return
        yield rows
        after = tuple(rows[-1][key.name] for key in keys)


def read_rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """The same, row by row."""
    return (row for page in read_pages(connection, table) for row in page)


def _put(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    made = insert_into(connection, table)
    keys = [key.name for key in row_keys(table)]
    others = {name: made.excluded[name] for name in rows[0] if name not in keys}
    if table.name in GROWING or not others:
        connection.execute(made.on_conflict_do_nothing(), rows)
    else:
        connection.execute(made.on_conflict_do_update(index_elements=keys, set_=others), rows)


def _hash_all(connection: Connection) -> dict[str, tuple[int, int]]:
    """For each table the number of its rows, and the sum of their hashes. Who holds a run is left
    out: nobody holds the copy's."""
    found: dict[str, tuple[int, int]] = {}
    for table in copied_tables():
        count = total = 0
        for page in read_pages(connection, table):
            count += len(page)
            total += sum(_hash(table, row) for row in page)
        found[table.name] = count, total % 2**256
    return found


def _hash(table: Table, row: dict[str, Any]) -> int:
    said = [(name, one) for name, one in row.items() if not name.startswith("lease_")]
    if table is tables.runs and row["status"] == "running":
        said = [(name, "interrupted" if name == "status" else one) for name, one in said]
    written = repr((table.name, said))
    return int.from_bytes(hashlib.sha256(written.encode("utf-8", "surrogatepass")).digest())


def finish_copy(connection: Connection) -> None:
    """What makes a copy a store of its own: search indexes, the next numbers, and no mark."""
    for table in LEASES:
        free = {one.name: None for one in table.c if one.name.startswith("lease_")}
        connection.execute(update(table).values(**free))
    dead = update(tables.runs).where(tables.runs.c.status == "running")
    connection.execute(dead.values(status="interrupted"))
    if is_postgres(connection):
        for table, name in _numbered():
            top = f"SELECT coalesce(max({name}), 0) + 1 FROM {table.name}"
            sequence = f"pg_get_serial_sequence('{table.name}', '{name}')"
            connection.execute(sql(f"SELECT setval({sequence}, ({top}), false)"))
    _index_memories(connection)
    counters = tables.counters
    connection.execute(delete(counters).where(counters.c.name.startswith(MARK)))


def _numbered() -> list[tuple[Table, str]]:
    numbered = (tables.calls, tables.memories, tables.uses, tables.job_runs)
    return [(one, next(iter(one.primary_key.columns)).name) for one in numbered]


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
