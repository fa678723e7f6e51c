"""Memories as rows: which of them are held, and records made of them. Nothing is written here."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import time
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from sqlalchemy import ColumnElement, Row, and_, func, or_, select
from sqlalchemy.engine import Connection

from textevolve.errors import InputError, NotFoundError
from textevolve.memory.record import (
    Collection,
    MemoryKind,
    MemoryRecord,
    Origin,
    Relation,
    Vector,
)
from textevolve.store.tables import (
    collections,
    memories,
    namespaces,
    uses,
    versions,
)

T = TypeVar("T")
AT_ONCE = 500
"""How many values a statement's list has at most."""


@dataclass(frozen=True, slots=True)
class Held:
    """Which memories of a collection count: those of a version, those of a past time, or (neither)
    those of now. `moment`: when they have to be valid."""

    moment: float
    version: int | None = None
    past: bool = False
    least_trust: float = 0.0


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What search indexes keep of a memory, beside its row."""

    seq: int
    text: str
    embedding: Vector
    trust: float
    added: int
    valid_from: float | None
    valid_to: float | None


@dataclass(frozen=True, slots=True)
class Closing:
    """Memories that are not held any more from a version on."""

    seqs: tuple[int, ...]
    version: int
    superseded_at: float | None
    forgotten: bool


class SearchIndex(Protocol):
    """How a database finds memories: a module for each, whose functions run within the transaction
    of the rows. What is found is held, by `Held`, and of this collection alone."""

    def add(
        self, connection: Connection, collection: Collection, entries: Sequence[IndexEntry]
    ) -> None: ...

    def close(self, connection: Connection, collection: Collection, closing: Closing) -> None: ...

    def erase(
        self, connection: Connection, collection: Collection, seqs: Sequence[int]
    ) -> None: ...

    def erase_all(self, connection: Connection, collection: Collection) -> None:
        """Before the rows of the collection are deleted, or its embeddings replaced."""
        ...

    def find_near(
        self,
        connection: Connection,
        collection: Collection,
        held: Held,
        embedding: Vector,
        limit: int,
    ) -> Sequence[tuple[int, float]]:
        """`seq` and cosine of the most similar, best first."""
        ...

    def find_words(
        self, connection: Connection, collection: Collection, held: Held, text: str, limit: int
    ) -> Sequence[int]:
        """`seq` of those that have words of the text, best first."""
        ...


def chunks(values: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(islice(rest, size)):
        yield chunk


def read_collection(connection: Connection, namespace: str, name: str) -> Collection:
    """
    Raises:
        NotFoundError: there is no such namespace, or no such collection in it.
    """
    asked = (
        select(collections)
        .join(namespaces, namespaces.c.id == collections.c.namespace_id)
        .where(namespaces.c.name == namespace, collections.c.name == name)
    )
    row = connection.execute(asked).one_or_none()
    if row is None:
        read_namespace_id(connection, namespace)
        raise NotFoundError(
            f"no collection '{name}' in the namespace '{namespace}'; make it with: textevolve"
            f" collections create {namespace}/{name}"
        )
    return collection_of(row, namespace)


def collection_of(row: Row[Any], namespace: str) -> Collection:
    return Collection(
        row.id,
        namespace,
        row.name,
        cast(MemoryKind, row.kind),
        row.embedder,
        row.dimension,
        row.version,
        row.changed,
        row.created,
        row.description,
    )


def read_namespace_id(connection: Connection, namespace: str) -> str:
    asked = select(namespaces.c.id).where(namespaces.c.name == namespace)
    found = connection.execute(asked).scalar_one_or_none()
    if found is None:
        raise NotFoundError(
            f"no namespace '{namespace}'; make it with: textevolve namespaces create {namespace}"
        )
    return found


def choose_held(
    connection: Connection,
    collection: Collection,
    version: int | None = None,
    moment: float | None = None,
    least_trust: float = 0.0,
) -> Held:
    """
    Raises:
        InputError: the collection has no such version.
    """
    if version is None:
        return Held(time() if moment is None else moment, None, moment is not None, least_trust)
    changed = read_version_time(connection, collection, version)
    return Held(changed if moment is None else moment, version, False, least_trust)


def read_version_time(connection: Connection, collection: Collection, version: int) -> float:
    if version == 0:
        return collection.created
    asked = select(versions.c.changed).where(
        versions.c.collection_id == collection.id, versions.c.version == version
    )
    changed = connection.execute(asked).scalar_one_or_none()
    if changed is None:
        raise InputError(
            f"collection {collection.full_name}: has no version {version}, its newest is"
            f" {collection.version}"
        )
    return changed


def holds(held: Held) -> ColumnElement[bool]:
    """The condition on a row of `memories`, beside that of its collection."""
    table = memories.c
    parts = [
        or_(table.valid_from.is_(None), table.valid_from <= held.moment),
        or_(table.valid_to.is_(None), table.valid_to > held.moment),
    ]
    if held.version is not None:
        parts += [in_version(held.version), table.text != ""]
    elif held.past:
        parts += [
            ~table.forgotten,
            or_(table.superseded_at.is_(None), table.superseded_at > held.moment),
        ]
    else:
        parts.append(table.closed.is_(None))
    if held.least_trust > 0:
        parts.append(table.trust >= held.least_trust)
    return and_(*parts)


def in_version(version: int) -> ColumnElement[bool]:
    table = memories.c
    return and_(table.added <= version, or_(table.closed.is_(None), table.closed > version))


def read_memory_records(
    connection: Connection,
    names: dict[str, str],
    rows: Sequence[Row[Any]],
    as_of: tuple[int, float] | None = None,
) -> list[MemoryRecord]:
    """Rows of `memories` as records, in their order. `names`: of their collections by id. `as_of`:
    a version and its time; what became of the memories later is left out."""
    if not rows:
        return []
    seqs = [row.seq for row in rows]
    entities, edges = _read_entities(connection, seqs), _read_relations(connection, seqs)
    taken = _read_superseded(connection, seqs)
    used = None if as_of is None else _read_uses(connection, seqs, as_of[1])
    made: list[MemoryRecord] = []
    columns = rows[0]._fields  # pyright: ignore[reportPrivateUsage]  it is public
    for row in rows:
        # Columns of rows are looked up slowly, and a search reads thousands of them.
        of: dict[str, Any] = dict(zip(columns, row, strict=True))
        later = as_of is not None and of["closed"] is not None and of["closed"] > as_of[0]
        last_used, times_used = of["last_used"], of["times_used"]
        if used is not None:
            last_used, times_used = used.get(of["seq"], (None, 0))
        made.append(
            MemoryRecord(
                id=of["id"],
                collection=names[of["collection_id"]],
                kind=of["kind"],
                text=of["text"],
                importance=of["importance"],
                created=of["created"],
                origin=Origin(of["source"], of["turn"], of["author"], of["trust"]),
                last_used=last_used,
                times_used=times_used,
                valid_from=of["valid_from"],
                valid_to=of["valid_to"],
                supersedes=tuple(taken[of["id"]]),
                superseded_by=None if later else of["superseded_by"],
                superseded_at=None if later else of["superseded_at"],
                added=of["added"],
                closed=None if later else of["closed"],
                forgotten=False if later else bool(of["forgotten"]),
                entities=tuple(entities[of["seq"]]),
                relations=tuple(edges[of["seq"]]),
                cites=() if of["cites"] == "[]" else tuple(json.loads(of["cites"])),
                reason=of["reason"],
            )
        )
    return made


def read_rows(connection: Connection, seqs: Iterable[int]) -> list[Row[Any]]:
    """The rows of `memories` with these numbers, in no particular order."""
    return _read_listed(connection, "SELECT * FROM memories WHERE seq IN", seqs)


def _read_listed(
    connection: Connection, asked: str, seqs: Iterable[int], order: str = ""
) -> list[Any]:
    """Rows whose numbers are listed. The list is a part of the statement, which spares most of the
    time of a search: it need not be made into parameters."""
    return [
        row
        for chunk in chunks(seqs)
        for row in connection.exec_driver_sql(
            f"{asked} ({', '.join(str(int(seq)) for seq in chunk)}) {order}"
        ).all()
    ]


def _read_entities(connection: Connection, seqs: list[int]) -> defaultdict[int, list[str]]:
    found: defaultdict[int, list[str]] = defaultdict(list)
    asked = "SELECT seq, name FROM mentions WHERE position IS NOT NULL AND seq IN"
    for row in _read_listed(connection, asked, seqs, "ORDER BY seq, position"):
        found[row[0]].append(row[1])
    return found


def _read_relations(connection: Connection, seqs: list[int]) -> defaultdict[int, list[Relation]]:
    found: defaultdict[int, list[Relation]] = defaultdict(list)
    asked = "SELECT seq, subject, predicate, object FROM relations WHERE seq IN"
    for row in _read_listed(connection, asked, seqs, "ORDER BY seq, position"):
        found[row[0]].append(Relation(*row[1:]))
    return found


def _read_superseded(connection: Connection, seqs: list[int]) -> defaultdict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    asked = (
        "SELECT earlier.superseded_by, earlier.id FROM memories AS later"
        " JOIN memories AS earlier ON earlier.superseded_by = later.id WHERE later.seq IN"
    )
    for row in _read_listed(connection, asked, seqs, "ORDER BY earlier.seq"):
        found[row[0]].append(row[1])
    return found


def _read_uses(
    connection: Connection, seqs: list[int], until: float
) -> dict[int, tuple[float | None, int]]:
    found: dict[int, tuple[float | None, int]] = {}
    asked = select(uses.c.seq, func.max(uses.c.time), func.count()).where(uses.c.time <= until)
    for chunk in chunks(seqs):
        for seq, last, times in connection.execute(
            asked.where(uses.c.seq.in_(chunk)).group_by(uses.c.seq)
        ):
            found[seq] = last, times
    return found


def read_cosines(
    connection: Connection, seqs: Sequence[int], embedding: Vector
) -> dict[int, float]:
    """How similar these memories are to an embedding."""
    rows = _read_listed(connection, "SELECT seq, vector FROM embeddings WHERE seq IN", seqs)
    vectors = np.frombuffer(b"".join(bytes(row.vector) for row in rows), dtype="<f4")
    cosines = cosines_with(vectors.reshape(len(rows), -1), embedding) if rows else ()
    return {row.seq: float(cosine) for row, cosine in zip(rows, cosines, strict=True)}


def cosines_with(vectors: Vector, embedding: Vector) -> Vector:
    """Of each row, shape (memories, dimension), with the embedding; the same for a row whichever
    others stand beside it. einsum, as the threads of a matrix product wait for each other: on a
    busy machine it took 6.7 ms for 5,000 rows, and 0.36 this way."""
    return np.einsum("ij,j->i", vectors, np.asarray(embedding, dtype=np.float32))
