"""How memories are found in SQLite: by words with FTS5, by meaning with sqlite-vec.

The words of a memory are indexed together with a mark of its collection, so that a search reads the
entries of this one collection alone.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from sqlalchemy import Integer, Text, column, func, select, table
from sqlalchemy.engine import Connection

from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import Closing, Held, IndexEntry, holds
from textevolve.store.memory_vectors_sqlite import (
    find_vectors,
    has_table,
    refresh_vectors,
    remove_vectors,
)
from textevolve.store.tables import memories

WORDS = "memory_words"
K1, B = 1.2, 0.75
MOST_READ = 500
"""In how many memories the words of a question may be, that all are looked at."""
MOST_WORDS = 64
"""How many different words of a question are looked for."""

_places = table(f"{WORDS}_places", column("term", Text), column("doc", Integer))
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def add(connection: Connection, collection: Collection, entries: Sequence[IndexEntry]) -> None:
    if not has_table(connection, WORDS):
        _make_tables(connection)
    rows = [(one.seq, " ".join(_mark(collection, one.text))) for one in entries]
    connection.exec_driver_sql(f"INSERT INTO {WORDS} (rowid, words) VALUES (?, ?)", rows)
    refresh_vectors(connection, collection, [one.seq for one in entries])


def _make_tables(connection: Connection) -> None:
    create = "CREATE VIRTUAL TABLE"
    connection.exec_driver_sql(f"{create} {WORDS} USING fts5(words, tokenize = 'ascii')")
    connection.exec_driver_sql(f"{create} {WORDS}_counts USING fts5vocab({WORDS}, row)")
    connection.exec_driver_sql(f"{create} {WORDS}_places USING fts5vocab({WORDS}, instance)")


def close(connection: Connection, collection: Collection, closing: Closing) -> None:
    refresh_vectors(connection, collection, closing.seqs)


def erase(connection: Connection, collection: Collection, seqs: Sequence[int]) -> None:
    if seqs:
        rows: list[Any] = [(seq,) for seq in seqs]
        connection.exec_driver_sql(f"DELETE FROM {WORDS} WHERE rowid = ?", rows)
        # Else the words stay in the index until it happens to be merged.
        connection.exec_driver_sql(f"INSERT INTO {WORDS} ({WORDS}) VALUES ('optimize')")
        remove_vectors(connection, collection, seqs)


def erase_all(connection: Connection, collection: Collection) -> None:
    own = select(memories.c.seq).where(memories.c.collection_id == collection.id)
    erase(connection, collection, list(connection.execute(own).scalars()))


def find_near(
    connection: Connection, collection: Collection, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]]:
    return find_vectors(connection, collection, held, embedding, limit)


def find_words(
    connection: Connection, collection: Collection, held: Held, text: str, limit: int
) -> list[int]:
    """By BM25 among the memories of the collection. Words that are in very many of them count only
    where nothing is found by those that are rarer."""
    words = list(dict.fromkeys(_mark(collection, text)))[:MOST_WORDS]
    if not words or not has_table(connection, WORDS):
        return []
    marks = ", ".join("?" * len(words))
    asked = f"SELECT term, doc FROM {WORDS}_counts WHERE term IN ({marks}) ORDER BY doc, term"
    rest = [(str(w), int(n)) for w, n in connection.exec_driver_sql(asked, tuple(words))]
    total = _count(connection, collection) if rest else 0
    while rest:
        sums = list(accumulate(n for _, n in rest))
        taken = max(1, bisect_right(sums, MOST_READ))
        scores = _score(connection, collection, held, rest[:taken], total)
        if scores:
            return sorted(scores, key=lambda seq: (-scores[seq], seq))[:limit]
        rest = rest[taken:]
    return []


def _count(connection: Connection, collection: Collection) -> int:
    """How many memories a collection has ever had, counted once a version: of 50,000 that takes
    longer than the rest of a search by words."""
    counted: dict[str, tuple[int, int]] = connection.info.setdefault("counted", {})
    version, number = counted.get(collection.id, (-1, 0))
    if version != collection.version:
        own = memories.c.collection_id == collection.id
        number = connection.execute(select(func.count()).where(own)).scalar_one()
        counted[collection.id] = collection.version, number
    return number


def _score(
    connection: Connection,
    collection: Collection,
    held: Held,
    words: Sequence[tuple[str, int]],
    total: int,
) -> dict[int, float]:
    """Robertson and Zaragoza (2009), with the mean length among the memories that have any of the
    words. `words`: each with the number of memories that have it."""
    weights = {word: math.log1p((total - number + 0.5) / (number + 0.5)) for word, number in words}
    asked = (
        select(_places.c.term, memories.c.seq, func.count(), func.length(memories.c.text))
        .join(memories, memories.c.seq == _places.c.doc)
        .where(
            _places.c.term.in_(list(weights)),
            memories.c.collection_id == collection.id,
            holds(held),
        )
        .group_by(_places.c.term, memories.c.seq)
    )
    found: list[Any] = list(connection.execute(asked).all())
    lengths: dict[int, int] = {seq: length for _, seq, _, length in found}
    mean = sum(lengths.values()) / max(1, len(lengths))
    scores: dict[int, float] = defaultdict(float)
    for word, seq, times, length in found:
        norm = K1 * (1 - B + B * length / mean)
        scores[seq] += weights[word] * times * (K1 + 1) / (times + norm)
    return scores


def words_to_find(said: str) -> list[str]:
    """Words without accents and case; where a script has no spaces, each letter is one."""
    if said.isascii():
        return _WORD.findall(said.lower())
    plain = unicodedata.normalize("NFKD", said.casefold())
    return _WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))


def _mark(collection: Collection, said: str) -> list[str]:
    mark = f"{zlib.crc32(collection.id.encode()):08x}"
    return [mark + word for word in words_to_find(said)]
