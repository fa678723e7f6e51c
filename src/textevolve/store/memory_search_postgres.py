"""How memories are found in PostgreSQL: by words with a tsvector, by meaning with pgvector.

A search by meaning is exact: it compares all memories of a collection. The words of a memory are
indexed together with a mark of its collection, as in SQLite.
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


def erase(connection: Connection, collection: Collection, seqs: Sequence[int]) -> None:
    for name in ("memory_vectors", "memory_words"):
        connection.execute(sql(f"DELETE FROM {name} WHERE seq = ANY(:seqs)"), {"seqs": list(seqs)})


def erase_all(connection: Connection, collection: Collection) -> None:
    own = {"id": collection.id}
    connection.execute(sql("DELETE FROM memory_vectors WHERE collection_id = :id"), own)
    seqs = "SELECT seq FROM memories WHERE collection_id = :id"
    connection.execute(sql(f"DELETE FROM memory_words WHERE seq IN ({seqs})"), own)


_NEAREST = """
    SELECT seq, embedding <#> CAST(:asked AS vector) AS distance
    FROM memory_vectors WHERE collection_id = :id ORDER BY distance, seq LIMIT {most}
"""
"""Of vectors of length 1 the product is the cosine, and `<#>` is that, negative."""


def find_near(
    connection: Connection, collection: Collection, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]]:
    numbers = np.asarray(embedding, dtype=np.float32).tolist()
    asked = "[" + ",".join(map(str, numbers)) + "]"
    found: list[tuple[int, float]] = []
    # Most memories are held, so that the nearest of all do; else all of them are gone through.
    for most in (str(4 * limit), "ALL"):
        nearest = sql(_NEAREST.format(most=most)).columns(
            column("seq", BigInteger), column("distance", Float)
        )
        near = nearest.subquery()
        chosen = (
            select(near.c.seq, near.c.distance)
            .where(_is_held(near.c.seq, held))
            .order_by(near.c.distance, near.c.seq)
            .limit(limit)
        )
        rows = connection.execute(chosen, {"asked": asked, "id": collection.id})
        found = [(seq, -float(distance)) for seq, distance in rows]
        if len(found) == limit:
            break
    return found


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
