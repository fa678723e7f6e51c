"""How memories are found in SQLite: by words with FTS5, by meaning with numpy.

The words of a memory are indexed together with a mark of its collection, so that a search reads the
entries of this one collection alone.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Sequence

import numpy as np
from sqlalchemy import select
from sqlalchemy import text as sql
from sqlalchemy.engine import Connection

from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import Closing, Held, IndexEntry, holds
from textevolve.store.memory_tables import embeddings, memories

WORDS = "memory_words"
MOST_WORDS = 64
"""How many different words of a question are looked for."""

_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def add(connection: Connection, collection: Collection, entries: Sequence[IndexEntry]) -> None:
    connection.exec_driver_sql(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {WORDS} USING fts5(words, tokenize = 'ascii')"
    )
    rows = [(one.seq, " ".join(_mark(collection, one.text))) for one in entries]
    connection.exec_driver_sql(f"INSERT INTO {WORDS} (rowid, words) VALUES (?, ?)", rows)


def close(connection: Connection, collection: Collection, closing: Closing) -> None:
    """Whether a memory is held stands in its row alone."""


def erase(connection: Connection, collection: Collection, seqs: Sequence[int]) -> None:
    for seq in seqs:
        connection.exec_driver_sql(f"DELETE FROM {WORDS} WHERE rowid = ?", (seq,))


def erase_all(connection: Connection, collection: Collection) -> None:
    if _has_words(connection):
        connection.exec_driver_sql(
            f"DELETE FROM {WORDS} WHERE rowid IN"
            " (SELECT seq FROM memories WHERE collection_id = ?)",
            (collection.id,),
        )


def find_near(
    connection: Connection, collection: Collection, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]]:
    asked = (
        select(embeddings.c.seq, embeddings.c.vector)
        .join(memories, memories.c.seq == embeddings.c.seq)
        .where(memories.c.collection_id == collection.id, holds(held))
    )
    rows = connection.execute(asked).all()
    if not rows:
        return []
    vectors = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
    cosines = vectors.reshape(len(rows), -1) @ np.asarray(embedding, dtype=np.float32)
    best = np.argsort(-cosines, kind="stable")[:limit]
    return [(rows[int(n)].seq, float(cosines[n])) for n in best]


def find_words(
    connection: Connection, collection: Collection, held: Held, text: str, limit: int
) -> list[int]:
    words = list(dict.fromkeys(_mark(collection, text)))[:MOST_WORDS]
    if not words or not _has_words(connection):
        return []
    asked = (
        select(memories.c.seq)
        .select_from(sql(WORDS))
        .join(memories, sql(f"memories.seq = {WORDS}.rowid"))
        .where(sql(f"{WORDS} MATCH :words"), memories.c.collection_id == collection.id)
        .where(holds(held))
        .order_by(sql(f"bm25({WORDS})"), memories.c.seq)
        .limit(limit)
    )
    query = " OR ".join(f'"{word}"' for word in words)
    return list(connection.execute(asked, {"words": query}).scalars())


def _has_words(connection: Connection) -> bool:
    asked = "SELECT count(*) FROM sqlite_master WHERE name = ?"
    return bool(connection.exec_driver_sql(asked, (WORDS,)).scalar_one())


def split_words(said: str) -> list[str]:
    """Words without accents and case; where a script has no spaces, each letter is one."""
    plain = unicodedata.normalize("NFKD", said.casefold())
    return _WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))


def _mark(collection: Collection, said: str) -> list[str]:
    mark = f"{zlib.crc32(collection.id.encode()):08x}"
    return [mark + word for word in split_words(said)]
