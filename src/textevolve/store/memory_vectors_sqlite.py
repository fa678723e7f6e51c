"""How memories are found by meaning in SQLite: with sqlite-vec, or by numpy where it is not there.

The rows of embeddings are what counts. The tables of sqlite-vec are an index of them, one for each
dimension, made when it is first needed. Embeddings have length 1, so their order by Euclidean
distance is that by cosine, and sqlite-vec has it in two thirds of the time. A process that cannot
load the extension notes which entries are stale; they are compared one by one until a process that
can changes any memory. A collection that is asked again is searched in memory
(`store/memory_vectors_kept.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Integer, column, func, select, table
from sqlalchemy.engine import Connection

from textevolve.errors import SettingsError
from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import Held, chunks, cosines_with, holds, read_cosines
from textevolve.store.memory_vectors_kept import INDEXED, find_kept, list_conditions
from textevolve.store.sqlite import load_vector_search
from textevolve.store.tables import collections, embeddings, memories

MOST_COMPARED = 50_000
"""How many memories of a collection are searched without sqlite-vec."""
MOST_FOUND = 4096
"""The most that sqlite-vec finds at once."""
EQUALLY_NEAR = 16
"""How many more are asked for, as sqlite-vec may take any of those that are equally near."""
CAUGHT_UP = 5000
"""How many stale entries one change renews at most."""
CHUNK = 128
"""How many vectors stand together. A collection takes the room of so many at least."""

STALE = "memory_vectors_stale"
_stale = table(STALE, column("seq", Integer))
_ADVICE = "it needs sqlite-vec: install textevolve[memory]"
_COLUMNS = (
    "collection text partition key, vector float[{}] distance_metric=L2, trust float,"
    " added integer, closed integer, valid_from float, valid_to float, gone float,"
    f" chunk_size={CHUNK}"
)
"""`gone`: when a memory was superseded, or, forgotten, before all times."""


def refresh_vectors(connection: Connection, collection: Collection, seqs: Sequence[int]) -> None:
    """Bring the entries of these memories up to date with their rows."""
    if not load_vector_search(connection):
        _note_stale(connection, seqs)
        return
    if has_table(connection, STALE):
        _catch_up(connection)
    index = _make_table(connection, collection.dimension)
    for chunk in chunks(seqs):
        _renew(connection, index, chunk)


def remove_vectors(connection: Connection, collection: Collection, seqs: Sequence[int]) -> None:
    """
    Raises:
        SettingsError: they are in an index that this process cannot write.
    """
    index = f"memory_vectors_{collection.dimension}"
    if has_table(connection, STALE):
        _execute(connection, f"DELETE FROM {STALE} WHERE seq = ?", seqs)
    if not has_table(connection, index):
        return
    if not load_vector_search(connection):
        raise SettingsError(f"embeddings cannot be deleted from the index of this store: {_ADVICE}")
    _execute(connection, f"DELETE FROM {index} WHERE rowid = ?", seqs)


def find_vectors(
    connection: Connection, collection: Collection, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]]:
    """`seq` and cosine of the memories that are nearest, best first.

    Raises:
        SettingsError: there are too many of them to be compared without sqlite-vec.
    """
    kept = find_kept(connection, collection, held, embedding, limit)
    if kept is not None:
        return kept
    index = f"memory_vectors_{collection.dimension}"
    if limit > MOST_FOUND or not (load_vector_search(connection) and has_table(connection, index)):
        return _compare(connection, collection, held, embedding)[:limit]
    if not has_table(connection, STALE):
        return _find(connection, index, collection, held, embedding, limit)
    stale = set(
        connection.execute(
            select(memories.c.seq)
            .join(_stale, _stale.c.seq == memories.c.seq)
            .where(memories.c.collection_id == collection.id)
        ).scalars()
    )
    if limit + len(stale) > MOST_FOUND:
        return _compare(connection, collection, held, embedding)[:limit]
    found = _find(connection, index, collection, held, embedding, limit + len(stale))
    fresh = [(seq, cosine) for seq, cosine in found if seq not in stale]
    if stale:
        among = memories.c.seq.in_(select(_stale.c.seq))
        fresh += _compare(connection, collection, held, embedding, among)
    return sorted(fresh, key=lambda each: (-each[1], each[0]))[:limit]


def _find(
    connection: Connection,
    index: str,
    collection: Collection,
    held: Held,
    embedding: Vector,
    limit: int,
) -> list[tuple[int, float]]:
    conditions = list_conditions(held)
    asked = (
        f"SELECT rowid FROM {index} WHERE vector MATCH ? AND k = ? AND collection = ?"
        + "".join(f" AND {column} {operator} ?" for column, operator, _ in conditions)
    )
    sought = np.asarray(embedding, dtype="<f4").tobytes()
    most = min(limit + EQUALLY_NEAR, MOST_FOUND)
    values = (sought, most, collection.id, *(value for *_, value in conditions))
    seqs = [int(seq) for seq in connection.exec_driver_sql(asked, values).scalars()]
    # Computed as everywhere else, so that whoever finds a memory gives it the same cosine.
    cosines = read_cosines(connection, seqs, embedding)
    found = sorted(cosines.items(), key=lambda each: (-each[1], each[0]))
    if len(found) == most > limit and found[-1][1] == found[limit - 1][1]:
        return _compare(connection, collection, held, embedding)[:limit]
    return found[:limit]


def _compare(
    connection: Connection,
    collection: Collection,
    held: Held,
    embedding: Vector,
    among: ColumnElement[bool] | None = None,
) -> list[tuple[int, float]]:
    """All that are held, or those among them, by their cosine."""
    own = memories.c.collection_id == collection.id
    if among is None and not load_vector_search(connection):
        number = connection.execute(select(func.count()).where(own)).scalar_one()
        if number > MOST_COMPARED:
            raise SettingsError(
                f"collection {collection.full_name}: to search {number:,} memories by meaning,"
                f" {_ADVICE}"
            )
    asked = (
        select(embeddings.c.seq, embeddings.c.vector)
        .join(memories, memories.c.seq == embeddings.c.seq)
        .where(own, holds(held))
    )
    rows = connection.execute(asked if among is None else asked.where(among)).all()
    if not rows:
        return []
    vectors = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
    cosines = cosines_with(vectors.reshape(len(rows), -1), embedding)
    found = [(int(row.seq), float(one)) for row, one in zip(rows, cosines, strict=True)]
    return sorted(found, key=lambda each: (-each[1], each[0]))


def _renew(connection: Connection, index: str, seqs: Sequence[int]) -> None:
    asked = (
        select(memories.c.collection_id, embeddings.c.vector, *INDEXED, memories.c.seq)
        .join(embeddings, embeddings.c.seq == memories.c.seq)
        .where(memories.c.seq.in_(seqs))
    )
    rows = {row.seq: tuple(row) for row in connection.execute(asked)}
    marks = ", ".join("?" * len(seqs))
    there = f"SELECT rowid FROM {index} WHERE rowid IN ({marks})"
    known = set(connection.exec_driver_sql(there, tuple(seqs)).scalars())
    new = [row for seq, row in rows.items() if seq not in known]
    if new:
        connection.exec_driver_sql(
            f"INSERT INTO {index} (collection, vector, trust, added, closed, valid_from, valid_to,"
            " gone, rowid) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            new,
        )
    changed = [row[4:5] + row[7:] for seq, row in rows.items() if seq in known]
    if changed:
        connection.exec_driver_sql(
            f"UPDATE {index} SET closed = ?, gone = ? WHERE rowid = ?", changed
        )


def _catch_up(connection: Connection) -> None:
    asked = (
        select(memories.c.seq, collections.c.dimension)
        .join(collections, collections.c.id == memories.c.collection_id)
        .join(_stale, _stale.c.seq == memories.c.seq)
        .limit(CAUGHT_UP)
    )
    for chunk in chunks(connection.execute(asked).all()):
        for dimension in {row.dimension for row in chunk}:
            seqs = [row.seq for row in chunk if row.dimension == dimension]
            _renew(connection, _make_table(connection, dimension), seqs)
            _execute(connection, f"DELETE FROM {STALE} WHERE seq = ?", seqs)


def _note_stale(connection: Connection, seqs: Sequence[int]) -> None:
    connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {STALE} (seq INTEGER PRIMARY KEY)")
    _execute(connection, f"INSERT OR IGNORE INTO {STALE} VALUES (?)", seqs)


def _make_table(connection: Connection, dimension: int) -> str:
    index = f"memory_vectors_{dimension}"
    if not has_table(connection, index):
        columns = _COLUMNS.format(dimension)
        connection.exec_driver_sql(f"CREATE VIRTUAL TABLE {index} USING vec0({columns})")
    return index


def has_table(connection: Connection, name: str) -> bool:
    asked = "SELECT count(*) FROM sqlite_master WHERE name = ?"
    return bool(connection.exec_driver_sql(asked, (name,)).scalar_one())


def _execute(connection: Connection, statement: str, seqs: Sequence[int]) -> None:
    rows: list[Any] = [(seq,) for seq in seqs]
    if rows:
        connection.exec_driver_sql(statement, rows)
