"""Search memories in PostgreSQL: by keywords with a tsvector, by embedding with pgvector.

A search by embedding is exact: it compares all memories of a collection. The words of a memory are
indexed together with a mark of its collection, as in SQLite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Float, column, select
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.loading import np
from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import IndexEntry, MemoryScope, in_scope
from textevolve.store.memory_search_sqlite import MOST_WORDS, query_words, words_to_find
from textevolve.store.tables import memories

LONGEST_WORD = 200
"""The maximum number of characters of a word in the index."""
MOST_INDEXED = 20_000
"""The maximum number of different words of a memory in the index, since a tsvector has at most a
megabyte."""


def add(connection: Connection, collection: Collection, entries: Sequence[IndexEntry]) -> None:
    raw: Any = connection.connection.driver_connection
    with raw.cursor() as cursor:
        with cursor.copy("COPY memory_vectors FROM STDIN") as copy:
            for entry in entries:
                copy.write_row((entry.seq, collection.id, _write_vector(entry.embedding)))
        with cursor.copy("COPY memory_words FROM STDIN") as copy:
            for entry in entries:
                words = _list_words(collection, words_to_find(entry.text))[:MOST_INDEXED]
                copy.write_row((entry.seq, len(words), " ".join(words)))


def _write_vector(embedding: Vector) -> str:
    """Write a vector as a literal of pgvector."""
    return str(np.asarray(embedding, dtype=np.float32).tolist())


def erase(connection: Connection, seqs: Sequence[int]) -> None:
    for name in ("memory_vectors", "memory_words"):
        connection.execute(sql(f"DELETE FROM {name} WHERE seq = ANY(:seqs)"), {"seqs": list(seqs)})


_NEAREST = """
    SELECT seq, embedding <#> CAST(:asked AS vector) AS distance
    FROM memory_vectors WHERE collection_id = :id ORDER BY distance, seq LIMIT {most}
"""
"""The query for the nearest vectors. For vectors of length 1 the inner product is the cosine; `<#>`
is its negative."""


def find_near(
    connection: Connection,
    collection: Collection,
    scope: MemoryScope,
    embedding: Vector,
    limit: int,
) -> list[tuple[int, float]]:
    matches: list[tuple[int, float]] = []
    # Most memories are in scope, so the nearest of all suffice; otherwise all are read.
    for most in (str(4 * limit), "ALL"):
        nearest = sql(_NEAREST.format(most=most)).columns(
            column("seq", BigInteger), column("distance", Float)
        )
        near = nearest.subquery()
        chosen = (
            select(near.c.seq, near.c.distance)
            .where(_is_in_scope(near.c.seq, scope))
            .order_by(near.c.distance, near.c.seq)
            .limit(limit)
        )
        rows = connection.execute(chosen, {"asked": _write_vector(embedding), "id": collection.id})
        matches = [(seq, -float(distance)) for seq, distance in rows]
        if len(matches) == limit:
            break

    return matches


def _is_in_scope(
    seq: ColumnElement[int], scope: MemoryScope, *more: ColumnElement[bool]
) -> ColumnElement[bool]:
    """Return the condition that the memory with the number `seq` is in the scope and meets the
    conditions `more`, checked row by row. Without OFFSET the planner may turn it into a join, which
    is slow until it knows the sizes of new tables."""
    row = select(memories.c.seq).where(memories.c.seq == seq, in_scope(scope), *more)
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
"""The query for BM25 scores. A word counts once per memory, and the statistics are those of the
memories that have any of the words."""


def find_words(
    connection: Connection, collection: Collection, scope: MemoryScope, text: str, limit: int
) -> list[int]:
    words = _list_words(collection, query_words(text))[:MOST_WORDS]
    if not words:
        return []
    scored = sql(_SCORED).columns(column("seq", BigInteger), column("score")).subquery("scored")
    in_collection = memories.c.collection_id == collection.id
    query = (
        select(scored.c.seq)
        .where(_is_in_scope(scored.c.seq, scope, in_collection))
        .order_by(scored.c.score.desc(), scored.c.seq)
        .limit(limit)
    )

    return list(connection.execute(query, {"words": words}).scalars())


def _list_words(collection: Collection, words: Sequence[str]) -> list[str]:
    """Return each word once, quoted, with the mark of the collection as a prefix."""
    mark = collection.id[-8:]
    return [f"'{mark}{word[:LONGEST_WORD]}'" for word in dict.fromkeys(words)]
