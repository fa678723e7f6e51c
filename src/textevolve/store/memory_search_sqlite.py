"""How memories are found in SQLite: by words with FTS5, by meaning with sqlite-vec or numpy.

The words of a memory are indexed together with a mark of its collection, so that a search reads the
entries of this one collection alone.

The rows of embeddings are what counts. The tables of sqlite-vec are an index of them, one for each
dimension, made when it is first needed. Embeddings have length 1, so their order by Euclidean
distance is that by cosine, and sqlite-vec has it in two thirds of the time. A process that cannot
load the extension notes which entries are stale; they are compared one by one until a process that
can changes any memory.

sqlite-vec reads every vector of a collection from its pages for each question, which is most of the
time of a search. A connection that is asked twice about a collection in the same state keeps the
vectors in memory, with what decides which of them are held, and searches them exactly. Each change
makes a new state, so that cached vectors are never out of date; where memories change with every
question, nothing is loaded.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
import zlib
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Integer, Text, column, func, select, table
from sqlalchemy.engine import Connection

from textevolve.errors import SettingsError
from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import (
    Closing,
    Held,
    IndexEntry,
    chunks,
    cosines_with,
    holds,
    read_cosines,
)
from textevolve.store.sqlite import load_vector_search
from textevolve.store.tables import collections, embeddings, memories

MOST_BYTES = 256 * 2**20
"""Of vectors that one connection keeps: 170,000 of 384 numbers."""
MOST_NOTED = 1000
"""Of how many collections a connection notes that they were asked."""

OPEN, FAR = 2**62, 1e300
INDEXED = (
    memories.c.trust.label("trust"),
    memories.c.added.label("added"),
    func.coalesce(memories.c.closed, OPEN).label("closed"),
    func.coalesce(memories.c.valid_from, -FAR).label("valid_from"),
    func.coalesce(memories.c.valid_to, FAR).label("valid_to"),
    func.iif(memories.c.forgotten, -FAR, func.coalesce(memories.c.superseded_at, FAR)).label(
        "gone"
    ),
)
"""What decides whether a memory is held, without gaps. `gone`: when it was superseded, or,
forgotten, before all times."""

CollectionState: TypeAlias = tuple[int, float]
"""The version of a collection, and when it was given other embeddings or another description."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class KeptVectors:
    """Those of a collection in one state, by `seq`. `vectors`: float32, (memories, dimension).
    `columns`: the values of `INDEXED`, by name."""

    state: CollectionState
    seqs: npt.NDArray[np.int64]
    vectors: Vector
    columns: dict[str, npt.NDArray[Any]]


def list_conditions(held: Held) -> list[tuple[str, str, float]]:
    """What `memory_rows.holds` says, of the columns in `INDEXED`: column, operator, value."""
    found: list[tuple[str, str, float]] = [
        ("valid_from", "<=", held.moment),
        ("valid_to", ">", held.moment),
    ]
    if held.version is not None:
        found += [("added", "<=", held.version), ("closed", ">", held.version)]
    elif held.past:
        found.append(("gone", ">", held.moment))
    else:
        found.append(("closed", "=", OPEN))
    if held.least_trust > 0:
        found.append(("trust", ">=", held.least_trust))
    return found


def find_kept(
    connection: Connection, collection: Collection, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]] | None:
    """`seq` and cosine of the memories that are nearest, best first; None where the vectors of the
    collection are not kept."""
    noted: OrderedDict[str, KeptVectors | CollectionState] = connection.info.setdefault(
        "kept", OrderedDict()
    )
    updated = select(collections.c.updated).where(collections.c.id == collection.id)
    state = collection.version, connection.execute(updated).scalar_one()
    kept = noted.get(collection.id)
    if kept == state:
        kept = _load(connection, collection, state)
    if isinstance(kept, KeptVectors) and kept.state == state:
        _note(noted, collection.id, kept)
        return _search(kept, held, embedding, limit)
    _note(noted, collection.id, state)
    return None


def _search(
    kept: KeptVectors, held: Held, embedding: Vector, limit: int
) -> list[tuple[int, float]]:
    among = np.ones(len(kept.seqs), dtype=bool)
    for name, compared, value in list_conditions(held):
        among &= _COMPARE[compared](kept.columns[name], value)
    cosines = cosines_with(kept.vectors, embedding)
    rows = np.flatnonzero(among)
    if limit < len(rows):
        least = -np.partition(-cosines[rows], limit - 1)[limit - 1]
        rows = rows[cosines[rows] >= least]
    best = rows[np.lexsort((kept.seqs[rows], -cosines[rows]))][:limit]
    return list(zip(kept.seqs[best].tolist(), cosines[best].tolist(), strict=True))


def _load(
    connection: Connection, collection: Collection, state: CollectionState
) -> KeptVectors | None:
    """None where they would take too much room."""
    own = memories.c.collection_id == collection.id
    number = connection.execute(select(func.count()).where(own)).scalar_one()
    if number * collection.dimension * 4 > MOST_BYTES:
        return None
    vectors = np.empty((number, collection.dimension), dtype="<f4")
    asked = select(embeddings.c.vector, memories.c.seq, *INDEXED)
    joined = asked.join(memories, memories.c.seq == embeddings.c.seq).where(own)
    rows: list[tuple[Any, ...]] = []
    for n, (vector, *row) in enumerate(connection.execute(joined.order_by(memories.c.seq))):
        vectors[n] = np.frombuffer(vector, dtype="<f4")
        rows.append(tuple(row))
    seqs, *columns = zip(*rows, strict=True) if rows else ((), *((),) * len(INDEXED))
    return KeptVectors(
        state,
        np.array(seqs, dtype=np.int64),
        vectors[: len(rows)],
        {
            of.name: np.array(column, dtype=np.int64 if of.name in ("added", "closed") else float)
            for of, column in zip(INDEXED, columns, strict=True)
        },
    )


def _note(
    noted: OrderedDict[str, KeptVectors | CollectionState],
    id: str,
    kept: KeptVectors | CollectionState,
) -> None:
    """Those that were asked longest ago make room."""
    noted[id] = kept
    noted.move_to_end(id)
    loaded = [one for one in noted.values() if isinstance(one, KeptVectors)]
    room = sum(one.vectors.nbytes for one in loaded)
    while room > MOST_BYTES or len(noted) > MOST_NOTED:
        _, oldest = noted.popitem(last=False)
        room -= oldest.vectors.nbytes if isinstance(oldest, KeptVectors) else 0


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


def find_near(
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
