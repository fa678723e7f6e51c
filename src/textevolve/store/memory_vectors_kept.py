"""Vectors of collections that are asked again, kept in memory and searched exactly by numpy.

sqlite-vec reads every vector of a collection from its pages for each question, which is most of the
time of a search. A connection that is asked twice about a collection in the same state keeps the
vectors, with what decides which of them are held. Each change makes a new state, so that what is
kept is never out of date; where memories change with every question, nothing is loaded.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from textevolve.memory.record import Collection, Vector
from textevolve.store.memory_rows import Held, cosines_with
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
    for column, compared, value in list_conditions(held):
        among &= _COMPARE[compared](kept.columns[column], value)
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
