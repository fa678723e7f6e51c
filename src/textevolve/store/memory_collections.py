"""A collection of memories as a whole: deleted, and moved to another embedder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import time

from sqlalchemy import delete, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import InputError
from textevolve.memory.record import Collection, Vector
from textevolve.store import memory_search_postgres, memory_search_sqlite
from textevolve.store.memory_changes import find_vector_fault, pack_vector
from textevolve.store.memory_rows import IndexEntry, SearchIndex, collection_of
from textevolve.store.tables import (
    collections,
    embeddings,
    memories,
    mentions,
    relations,
    sources,
    uses,
    versions,
)

SEARCHES: Mapping[str, SearchIndex] = {
    "sqlite": memory_search_sqlite,
    "postgresql": memory_search_postgres,
}
"""What finds memories, by the name of the database's dialect."""


def search_of(connection: Connection) -> SearchIndex:
    return SEARCHES[connection.dialect.name]


def erase_collection(connection: Connection, collection_id: str) -> None:
    """Delete a collection with all that belongs to it, index entries too."""
    asked = select(collections).where(collections.c.id == collection_id)
    found = collection_of(connection.execute(asked).one(), "")
    search_of(connection).erase_all(connection, found)
    own = select(memories.c.seq).where(memories.c.collection_id == collection_id)
    for table in (embeddings, relations, uses):
        connection.execute(delete(table).where(table.c.seq.in_(own)))
    for table in (mentions, sources, versions, memories):
        connection.execute(delete(table).where(table.c.collection_id == collection_id))
    connection.execute(delete(collections).where(collections.c.id == collection_id))


def move_collection(
    connection: Connection,
    found: Collection,
    embedder: str,
    dimension: int,
    vectors: Mapping[str, Vector],
) -> Collection:
    """Give the memories of a collection other embeddings, by id, and all of them.

    Raises:
        InputError: a vector is missing, or does not fit.
    """
    moved = replace(found, embedder=embedder, dimension=dimension)
    kept = (
        select(memories)
        .join(embeddings, embeddings.c.seq == memories.c.seq)
        .where(memories.c.collection_id == found.id)
    )
    rows = connection.execute(kept.order_by(memories.c.seq)).all()
    for row in rows:
        if row.id not in vectors:
            raise InputError(f"collection {found.full_name}: no vector for memory {row.id}")
        if fault := find_vector_fault(vectors[row.id], dimension):
            raise InputError(f"collection {found.full_name}: memory {row.id}: {fault}")
    index = search_of(connection)
    index.erase_all(connection, found)
    for row in rows:
        change = update(embeddings).where(embeddings.c.seq == row.seq)
        connection.execute(change.values(**pack_vector(vectors[row.id])))
    changed = update(collections).where(collections.c.id == found.id)
    connection.execute(changed.values(embedder=embedder, dimension=dimension, updated=time()))
    if not rows:
        return moved
    index.add(
        connection,
        moved,
        [
            IndexEntry(
                row.seq,
                row.text,
                vectors[row.id],
                row.trust,
                row.added,
                row.valid_from,
                row.valid_to,
            )
            for row in rows
        ],
    )
    return moved
