"""How memories are found in PostgreSQL: by words with a tsvector, by meaning with pgvector.

A collection is searched exactly, all of it, until it is large; then an HNSW index of its own
answers, which holds nothing of other collections, so that none of what it finds is lost to a
filter. The words of a memory are indexed together with a mark of its collection, as in SQLite.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import BigInteger, ColumnElement, Float, column, select
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import Held, IndexEntry, holds
from textevolve.store.memory_search_sqlite import MOST_WORDS, words_to_find
from textevolve.store.tables import memories

LARGE = 20_000
"""From about so many memories on a collection has an index of its own."""
LOOK_EVERY = 512
"""About every so manieth memory it is looked whether its collection has become large."""
MOST_DIMENSIONS = 2_000
"""An index takes no longer vectors: their collections are always searched exactly."""
LONGEST_WORD = 200
MOST_INDEXED = 20_000
"""Different words of one memory; a tsvector has at most a megabyte."""


def add(connection: Connection, collection: Collection, entries: Sequence[IndexEntry]) -> None:
    raw: Any = connection.connection.driver_connection
    with raw.cursor() as cursor:
        with cursor.copy("COPY memory_vectors FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.write(_pack_vectors(collection, entries))
        with cursor.copy("COPY memory_words FROM STDIN") as copy:
            for one in entries:
                words = _list_words(collection, one.text)[:MOST_INDEXED]
                copy.write_row((one.seq, len(words), " ".join(words)))
    first, last = entries[0].seq, entries[-1].seq
    if first // LOOK_EVERY != last // LOOK_EVERY or last % LOOK_EVERY == 0:
        _index_if_large(connection, collection)


def _pack_vectors(collection: Collection, entries: Sequence[IndexEntry]) -> bytes:
    """Rows in the binary format of COPY; a vector: its dimension, a zero, big-endian floats."""
    id = collection.id.encode()
    size = 4 + 4 * collection.dimension
    rows = [b"PGCOPY\n\xff\r\n\0", bytes(8)]
    for one in entries:
        rows.append(struct.pack(">hiqi", 3, 8, one.seq, len(id)) + id)
        rows.append(struct.pack(">ihh", size, collection.dimension, 0))
        rows.append(np.asarray(one.embedding, dtype=">f4").tobytes())
    return b"".join([*rows, struct.pack(">h", -1)])


def _index_if_large(connection: Connection, collection: Collection) -> None:
    """Until it is kept, nobody else can write memories of any collection, which takes seconds."""
    if collection.dimension > MOST_DIMENSIONS or _has_index(connection, collection):
        return
    own = f"SELECT FROM memory_vectors WHERE collection_id = '{collection.id}' LIMIT {LARGE}"
    asked = f"SELECT count(*) FROM ({own}) AS own"
    if connection.exec_driver_sql(asked).scalar_one() == LARGE:
        connection.exec_driver_sql(
            f"CREATE INDEX {_name_index(collection)} ON memory_vectors"
            f" USING hnsw ((embedding::vector({collection.dimension})) vector_ip_ops)"
            f" WITH (ef_construction = 128) WHERE collection_id = '{collection.id}'"
        )


def _name_index(collection: Collection) -> str:
    return f"near_{collection.id}_{collection.dimension}"


def _has_index(connection: Connection, collection: Collection) -> bool:
    asked = f"SELECT to_regclass('{_name_index(collection)}') IS NOT NULL"
    return bool(connection.exec_driver_sql(asked).scalar_one())


def erase(connection: Connection, collection: Collection, seqs: Sequence[int]) -> None:
    for name in ("memory_vectors", "memory_words"):
        gone = sql(f"DELETE FROM {name} WHERE seq = ANY(:seqs)")
        connection.execute(gone, {"seqs": list(seqs)})


def erase_all(connection: Connection, collection: Collection) -> None:
    connection.exec_driver_sql(f"DROP INDEX IF EXISTS {_name_index(collection)}")
    own = {"id": collection.id}
    connection.execute(sql("DELETE FROM memory_vectors WHERE collection_id = :id"), own)
    seqs = "SELECT seq FROM memories WHERE collection_id = :id"
    connection.execute(sql(f"DELETE FROM memory_words WHERE seq IN ({seqs})"), own)


_NEAREST = """
    SELECT seq, {stored} <#> CAST(:asked AS vector) AS distance
    FROM memory_vectors WHERE collection_id = '{id}' ORDER BY distance{then} LIMIT {most}
"""
"""Of vectors of length 1 the product is the cosine, and `<#>` is that, negative. The id is written
into the statement so that the planner sees which index is meant."""


def find_near(
    connection: Connection, collection: Collection, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]]:
    numbers = np.asarray(embedding, dtype=np.float32).tolist()
    asked = "[" + ",".join(map(str, numbers)) + "]"
    # What an index finds may change with each memory, and a version reads the same for ever.
    if held.version is None and _has_index(connection, collection):
        found = _find_indexed(connection, collection, held, asked, limit)
        if len(found) == limit:
            return found
    found: list[tuple[int, float]] = []
    # Most memories are held, so that the nearest of all do; else all of them are gone through.
    for most in (str(4 * limit), "ALL"):
        nearest = _NEAREST.format(stored="embedding", id=collection.id, then=", seq", most=most)
        found = _choose(connection, nearest, held, asked, limit)
        if len(found) == limit:
            break
    return found


def _find_indexed(
    connection: Connection, collection: Collection, held: Held, asked: str, limit: int
) -> list[tuple[int, float]]:
    """The index is read on until enough of what it gives are held."""
    wide = min(1000, max(200, 2 * limit))
    connection.exec_driver_sql(
        "SELECT set_config('hnsw.iterative_scan', 'strict_order', true),"
        " set_config('hnsw.max_scan_tuples', '1000000', true),"
        f" set_config('hnsw.ef_search', '{wide}', true), set_config('enable_sort', 'off', true)"
    )
    stored = f"(embedding::vector({collection.dimension}))"
    nearest = _NEAREST.format(stored=stored, id=collection.id, then="", most="ALL")
    found = _choose(connection, nearest, held, asked, limit, tied=False)
    connection.exec_driver_sql("SELECT set_config('enable_sort', 'on', true)")
    return found


def _choose(
    connection: Connection, nearest: str, held: Held, asked: str, limit: int, *, tied: bool = True
) -> list[tuple[int, float]]:
    """The first that are held; `tied`: those that are equally near in the order of their `seq`."""
    near = sql(nearest).columns(column("seq", BigInteger), column("distance", Float)).subquery()
    chosen = (
        select(near.c.seq, near.c.distance)
        .where(_is_held(near.c.seq, held))
        .order_by(near.c.distance, *([near.c.seq] if tied else []))
        .limit(limit)
    )
    rows = connection.execute(chosen, {"asked": asked})
    return [(seq, -float(distance)) for seq, distance in rows]


def _is_held(
    seq: ColumnElement[int], held: Held, *more: ColumnElement[bool]
) -> ColumnElement[bool]:
    """Looked up row by row until enough are found. Without OFFSET the planner may make a join of
    it, and until it knows how many rows new tables have, a slow one."""
    row = select(memories.c.seq).where(memories.c.seq == seq, holds(held), *more)
    return row.offset(0).correlate_except(memories).exists()


_SCORED = """
    WITH hits AS MATERIALIZED (
        SELECT asked.word, found.seq, found.length
        FROM unnest(CAST(:words AS tsquery[])) WITH ORDINALITY AS asked(said, word)
        JOIN memory_words AS found ON found.words @@ asked.said
    ), weights AS (
        SELECT word, ln(CAST(1 + ((SELECT count(DISTINCT seq) FROM hits) - count(*) + 0.5)
            / (count(*) + 0.5) AS double precision)) AS weight
        FROM hits GROUP BY word
    )
    SELECT seq, sum(weight) / (1.3 + 0.9 * CAST(max(length) AS double precision) /
        (SELECT CAST(avg(length) AS double precision) FROM hits)) AS score
    FROM hits JOIN weights USING (word) GROUP BY seq ORDER BY score DESC, seq
"""
"""BM25, where a word counts once a memory, and among the memories that have any of the words."""


def find_words(
    connection: Connection, collection: Collection, held: Held, text: str, limit: int
) -> list[int]:
    words = _list_words(collection, text)[:MOST_WORDS]
    if not words:
        return []
    scored = sql(_SCORED).columns(column("seq", BigInteger), column("score")).subquery("scored")
    own = memories.c.collection_id == collection.id
    asked = (
        select(scored.c.seq)
        .where(_is_held(scored.c.seq, held, own))
        .order_by(scored.c.score.desc(), scored.c.seq)
        .limit(limit)
    )
    return list(connection.execute(asked, {"words": words}).scalars())


def _list_words(collection: Collection, said: str) -> list[str]:
    """Each word once, quoted, and with a mark of the collection before it."""
    mark = collection.id[-8:]
    return [f"'{mark}{word[:LONGEST_WORD]}'" for word in dict.fromkeys(words_to_find(said))]
