"""Search memories in SQLite: by keywords with FTS5, by embedding with vectors in memory.

The words of a memory are indexed together with a mark of its collection, so a search only reads the
entries of this collection.

Searches by embedding are exact. A connection caches the vectors of the collections that it
searched, up to `MOST_BYTES`, and only reads vectors added since its last search; a larger
collection is read at each search. The scope of the nearest memories is then checked in their rows.
"""

from __future__ import annotations

import math
import sqlite3
import unicodedata
import zlib
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sqlalchemy import Integer, Text, column, func, select, table
from sqlalchemy.engine import Connection

from textevolve.loading import NDArray, late_re, late_regex, np
from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import (
    IndexEntry,
    MemoryScope,
    cosines_with,
    in_scope,
    read_in_scope,
)
from textevolve.store.tables import collections, embeddings, memories
from textevolve.texts.prose import split_words

WORDS = "memory_words"
"""The name of the full-text index."""
STRUCTURE_ID = 10
"""The id of the row in which FTS5 describes the levels of its index."""
LONGEST_STRUCTURE = 1000
"""The bytes of that row from which the index is built anew: about 600 levels of the 2,000 that FTS5
can read. An index that has not been merged so often needs less than 100."""
K1 = 1.2
B = 0.75
"""The parameters of BM25."""
MOST_READ = 500
"""The most matches that one search scores at a time: words are taken from the rarest on, while the
numbers of memories that have them sum up to at most this (but at least one word)."""
MOST_WORDS = 64
"""The maximum number of different words of a query that are searched for."""

_places = table(f"{WORDS}_places", column("term", Text), column("doc", Integer))
_ACCENTS = late_regex(r"(?<=[\p{Latin}\p{Greek}\p{Cyrillic}\p{Hebrew}\p{Arabic}]\p{M}*)\p{M}")
"""The marks without which a word is still found: accents, Hebrew points and Arabic vowels. Vowel
signs of Indian scripts distinguish words."""
_FORMER = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_FORMER_WORD = late_re(rf"[{_FORMER}]|[^\W_{_FORMER}]+")
"""The words as earlier versions put them into the index, in pieces between vowel signs."""

_HAS_WORDS = "SELECT count(*) FROM sqlite_master WHERE name = ?"

WIDEST = 20
"""A search of the nearest vectors looks up the rows of one in so many; beyond, it reads all rows of
the collection at once. One row takes 4 times as long when it is looked up by its number."""

MOST_BYTES = 1024 * 2**20
"""The maximum size in bytes of the vectors that one connection caches, unless its `info` has
another as `vector_bytes`: 700,000 of 384 numbers."""
VECTORS_A_PAGE = 4096
"""The number of vectors that are read at once."""


@dataclass(frozen=True, slots=True)
class KeptVectors:
    """The cached vectors of a collection in the order of `seqs`: float32, shape (memories,
    dimension). `updated`: when the collection's row was last changed, as by a move to another
    embedder; its memories do not change it. `version`: of the collection."""

    updated: float
    version: int
    seqs: NDArray[np.int64]
    vectors: Vector


def find_near(
    connection: Connection,
    collection: Collection,
    scope: MemoryScope,
    embedding: Vector,
    limit: int,
) -> list[tuple[int, float]]:
    seqs, cosines = _compare(connection, collection, embedding)
    most = 2 * limit

    # Where most memories are in scope, the nearest of all suffice; else the search widens by the
    # share that passes, as long as reading the rows one by one is cheaper than reading all.
    while most < len(seqs) / WIDEST:
        near = _rank(seqs, cosines, most)
        current = read_in_scope(connection, scope, [seq for seq, _ in near])
        if len(current) >= limit:
            return [each for each in near if each[0] in current][:limit]
        most *= 2 * math.ceil(limit / max(1, len(current)))

    query = select(memories.c.seq).where(memories.c.collection_id == collection.id)
    passing = connection.execute(query.where(in_scope(scope))).scalars().all()
    is_passing = np.isin(seqs, np.array(passing, dtype=np.int64))

    return _rank(seqs[is_passing], cosines[is_passing], limit)


def _compare(
    connection: Connection, collection: Collection, embedding: Vector
) -> tuple[NDArray[np.int64], Vector]:
    """Return the numbers of all memories of a collection, and the cosines of their vectors with the
    embedding. A collection that is too large for the cache is read in pages."""
    size = _count(connection, collection) * collection.dimension * 4
    if size <= connection.info.get("vector_bytes", MOST_BYTES):
        stored = _load(connection, collection)
        return stored.seqs, cosines_with(stored.vectors, embedding)

    seqs = [np.empty(0, dtype=np.int64)]
    cosines = [np.empty(0, dtype=np.float32)]
    for page_seqs, vectors in _read_pages(connection, collection, after=0):
        seqs.append(page_seqs)
        cosines.append(cosines_with(vectors, embedding))

    return np.concatenate(seqs), np.concatenate(cosines)


def _read_pages(
    connection: Connection, collection: Collection, after: int
) -> Iterator[tuple[NDArray[np.int64], Vector]]:
    """Yield the numbers and the vectors of the memories after a number, a page at a time."""
    query = (
        select(memories.c.seq, embeddings.c.vector)
        .join(embeddings, embeddings.c.seq == memories.c.seq)
        .where(memories.c.collection_id == collection.id, memories.c.seq > after)
        .order_by(memories.c.seq)
    )
    result = connection.execute(query)
    while rows := result.fetchmany(VECTORS_A_PAGE):
        vectors = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
        yield np.array([row.seq for row in rows]), vectors.reshape(len(rows), -1)


def _load(connection: Connection, collection: Collection) -> KeptVectors:
    """Return the vectors of a collection from the connection's cache, after reading the missing
    ones."""
    cache: OrderedDict[str, KeptVectors] = connection.info.setdefault("vectors", OrderedDict())
    query = select(collections.c.updated).where(collections.c.id == collection.id)
    updated = connection.execute(query).scalar_one()
    stored = cache.pop(collection.id, None)
    if stored is None or stored.updated != updated:
        empty = np.empty((0, collection.dimension), dtype="<f4")
        stored = KeptVectors(updated, -1, np.empty(0, dtype=np.int64), empty)
    if stored.version == collection.version:
        cache[collection.id] = stored
        return stored
    newest = int(stored.seqs[-1]) if len(stored.seqs) else 0
    seqs = stored.seqs
    vectors = stored.vectors

    for page_seqs, page_vectors in _read_pages(connection, collection, newest):
        if vectors is stored.vectors:  # room for all, since copies of many vectors take their size
            room = max(_count(connection, collection), len(seqs) + len(page_seqs))
            vectors = np.empty((room, collection.dimension), dtype="<f4")
            vectors[: len(seqs)] = stored.vectors
        vectors[len(seqs) : len(seqs) + len(page_seqs)] = page_vectors
        seqs = np.append(seqs, page_seqs)

    stored = KeptVectors(updated, collection.version, seqs, vectors[: len(seqs)])
    cache[collection.id] = stored
    most = connection.info.get("vector_bytes", MOST_BYTES)
    while len(cache) > 1 and sum(each.vectors.nbytes for each in cache.values()) > most:
        cache.popitem(last=False)  # the collection that was asked longest ago

    return stored


def _rank(seqs: NDArray[np.int64], cosines: Vector, most: int) -> list[tuple[int, float]]:
    """Return the numbers and cosines of the nearest memories; equally near ones in the order of
    `seqs`."""
    rows = np.arange(len(seqs))
    if most < len(seqs):
        rows = np.flatnonzero(cosines >= -np.partition(-cosines, most - 1)[most - 1])
    nearest = rows[np.lexsort((seqs[rows], -cosines[rows]))][:most]
    return list(zip(seqs[nearest].tolist(), cosines[nearest].tolist(), strict=True))


def has_words(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql(_HAS_WORDS, (WORDS,)).scalar_one())


def add(connection: Connection, collection: Collection, entries: Sequence[IndexEntry]) -> None:
    if not has_words(connection):
        create = "CREATE VIRTUAL TABLE"
        connection.exec_driver_sql(f"{create} {WORDS} USING fts5(words, tokenize = 'ascii')")
        connection.exec_driver_sql(f"{create} {WORDS}_counts USING fts5vocab({WORDS}, row)")
        connection.exec_driver_sql(f"{create} {WORDS}_places USING fts5vocab({WORDS}, instance)")

    rows = [
        (entry.seq, " ".join(_mark(collection, words_to_find(entry.text)))) for entry in entries
    ]
    connection.exec_driver_sql(f"INSERT INTO {WORDS} (rowid, words) VALUES (?, ?)", rows)


def erase(connection: Connection, seqs: Sequence[int]) -> None:
    if not seqs:
        return
    rows: list[Any] = [(seq,) for seq in seqs]
    connection.exec_driver_sql(f"DELETE FROM {WORDS} WHERE rowid = ?", rows)

    # Else the words stay in the index until it happens to be merged. `optimize` merges it, but
    # before SQLite 3.44 each one adds a level to the structure record, and after about 1,100 of
    # them every write fails. A long record is therefore replaced by a new index, which has one.
    levels = f"SELECT length(block) FROM {WORDS}_data WHERE id = {STRUCTURE_ID}"
    length = connection.exec_driver_sql(levels).scalar() or 0
    merge = "optimize" if length < LONGEST_STRUCTURE else "rebuild"
    connection.exec_driver_sql(f"INSERT INTO {WORDS} ({WORDS}) VALUES ('{merge}')")


def find_index_fault(connection: sqlite3.Connection) -> str:
    """Return what is wrong with the full-text index; empty if nothing is, or there is none. The
    rows of memories are not looked at."""
    if not connection.execute(_HAS_WORDS, (WORDS,)).fetchone()[0]:
        return ""
    indexed = f"SELECT count(*) FROM {WORDS}_content"
    try:
        connection.execute(f"INSERT INTO {WORDS} ({WORDS}) VALUES ('integrity-check')")
        (missing,) = connection.execute(
            f"SELECT (SELECT count(*) FROM memories WHERE text != '') - ({indexed})"
        ).fetchone()
    except sqlite3.DatabaseError as error:
        return str(error)

    return "" if missing == 0 else f"it differs from the memories by {missing} entries"


def drop_index(connection: Connection) -> None:
    """Delete the full-text index, damaged or not; `add` creates it anew."""
    if not has_words(connection):
        return

    # SQLite drops no index whose structure it cannot read: an empty one takes its place.
    empty = f"REPLACE INTO {WORDS}_data (id, block) VALUES ({STRUCTURE_ID}, x'00000000000000')"
    connection.exec_driver_sql(empty)
    for suffix in ("_places", "_counts", ""):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {WORDS}{suffix}")


def find_words(
    connection: Connection, collection: Collection, scope: MemoryScope, text: str, limit: int
) -> list[int]:
    """Rank the memories of the collection by BM25. Very frequent words are used only if rarer ones
    match nothing."""
    words = list(dict.fromkeys(_mark(collection, query_words(text))))[:MOST_WORDS]
    if not words or not has_words(connection):
        return []
    marks = ", ".join("?" * len(words))
    statement = f"SELECT term, doc FROM {WORDS}_counts WHERE term IN ({marks}) ORDER BY doc, term"
    remaining = [(str(w), int(n)) for w, n in connection.exec_driver_sql(statement, tuple(words))]
    total = _count(connection, collection) if remaining else 0

    while remaining:
        sums = list(accumulate(n for _, n in remaining))
        number = max(1, bisect_right(sums, MOST_READ))
        scores = _score(connection, collection, scope, remaining[:number], total)
        if scores:
            return sorted(scores, key=lambda seq: (-scores[seq], seq))[:limit]
        remaining = remaining[number:]

    return []


def _count(connection: Connection, collection: Collection) -> int:
    """Count all memories that a collection ever had, once for each version, since for 50,000
    memories counting takes longer than the rest of a keyword search."""
    counted: dict[str, tuple[int, int]] = connection.info.setdefault("counted", {})
    version, number = counted.get(collection.id, (-1, 0))
    if version != collection.version:
        in_collection = memories.c.collection_id == collection.id
        number = connection.execute(select(func.count()).where(in_collection)).scalar_one()
        counted[collection.id] = collection.version, number

    return number


def _score(
    connection: Connection,
    collection: Collection,
    scope: MemoryScope,
    words: Sequence[tuple[str, int]],
    total: int,
) -> dict[int, float]:
    """Compute BM25 (Robertson and Zaragoza, 2009), with the mean length of the memories that have
    any of the words. `words`: each with the number of memories that have it."""
    weights = {word: math.log1p((total - number + 0.5) / (number + 0.5)) for word, number in words}
    query = (
        select(_places.c.term, memories.c.seq, func.count(), func.length(memories.c.text))
        .join(memories, memories.c.seq == _places.c.doc)
        .where(
            _places.c.term.in_(list(weights)),
            memories.c.collection_id == collection.id,
            in_scope(scope),
        )
        .group_by(_places.c.term, memories.c.seq)
    )
    rows: list[Any] = list(connection.execute(query).all())
    lengths: dict[int, int] = {seq: length for _, seq, _, length in rows}
    mean = sum(lengths.values()) / max(1, len(lengths))
    scores: dict[int, float] = defaultdict(float)
    for word, seq, times, length in rows:
        norm = K1 * (1 - B + B * length / mean)
        scores[seq] += weights[word] * times * (K1 + 1) / (times + norm)

    return scores


def words_to_find(text: str) -> list[str]:
    """Split a text into words without accents and case; in scripts without spaces each sign is a
    word."""
    if text.isascii():
        return split_words(text.lower(), "parts")
    plain = unicodedata.normalize("NFKD", text.casefold())
    return split_words(_ACCENTS.sub("", plain), "parts")


def query_words(text: str) -> list[str]:
    """Return the words of a query, and the pieces in which memories of earlier versions have
    them."""
    words = words_to_find(text)
    if text.isascii():
        return words
    plain = unicodedata.normalize("NFKD", text.casefold())
    former = _FORMER_WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))

    return list(dict.fromkeys([*words, *former]))


def _mark(collection: Collection, words: Sequence[str]) -> list[str]:
    mark = f"{zlib.crc32(collection.id.encode()):08x}"
    return [mark + word for word in words]
