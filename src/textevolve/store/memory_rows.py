"""Read memories from rows: the memories in a version or at a time, and records built from rows.
This module writes nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import time
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Row, and_, or_, select
from sqlalchemy.engine import Connection

from textevolve.errors import InputError
from textevolve.loading import NDArray, np
from textevolve.memory.record import Collection, MemoryRecord, Origin, Relation, Vector
from textevolve.store.resource_rows import (
    ResourceTable,
    build,
    fetch_all,
    fetch_one,
    mapping_of,
    require_row,
)
from textevolve.store.tables import collections, memories, versions

T = TypeVar("T")
AT_ONCE = 500
"""The maximum number of values in a list of an SQL statement."""


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """The memories of a collection that a query covers: of a version, of a past time, or (neither)
    the current ones.

    Attributes:
        moment: The time at which they have to be valid.
        version: The version of the collection.
        changed: The time of that version.
        past: Whether the moment is in the past.
        least_trust: The least trust in their sources.
        user: The user whose memories are covered besides the common ones; None: those of all.
    """

    moment: float
    version: int | None = None
    changed: float = 0.0
    past: bool = False
    least_trust: float = 0.0
    user: str | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The entry of a memory in the search indexes. `seq`: the number of its row."""

    seq: int
    text: str
    embedding: Vector


class SearchIndex(Protocol):
    """The search index of one database. Its functions run within the transaction that writes the
    rows; searches return only memories of the given collection and `MemoryScope`."""

    def add(
        self, connection: Connection, collection: Collection, entries: Sequence[IndexEntry]
    ) -> None: ...

    def erase(self, connection: Connection, seqs: Sequence[int]) -> None:
        """Remove the entries of these memories."""
        ...

    def find_near(
        self,
        connection: Connection,
        collection: Collection,
        scope: MemoryScope,
        embedding: Vector,
        limit: int,
    ) -> Sequence[tuple[int, float]]:
        """Return `seq` and cosine of the most similar memories, at most `limit`, best first."""
        ...

    def find_words(
        self,
        connection: Connection,
        collection: Collection,
        scope: MemoryScope,
        text: str,
        limit: int,
    ) -> Sequence[int]:
        """Return `seq` of the memories with words of the text, at most `limit`, best first."""
        ...


def chunks(values: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, size)):
        yield chunk


COLLECTION = ResourceTable("collection", "collections", collections, "co")
"""The table of collections."""


def read_collection(connection: Connection, namespace: str, name: str) -> Collection:
    """Return the collection of this name in a namespace.

    Raises:
        NotFoundError: there is no such namespace, or no such collection in it.
    """
    return collection_of(require_row(connection, COLLECTION, name, namespace), namespace)


def collection_of(row: Row[Any], namespace: str) -> Collection:
    return build(Collection, {**mapping_of(row), "namespace": namespace})


def choose_scope(
    connection: Connection,
    collection: Collection,
    version: int | None,
    moment: float | None = None,
    least_trust: float = 0.0,
) -> MemoryScope:
    """Return the scope of a version, of a past time, or of now. `moment`: the time at which
    memories must be valid; None: the time of the version, or now.

    Raises:
        InputError: the collection has no such version.
    """
    if version is None:
        past = moment is not None
        return MemoryScope(time() if moment is None else moment, past=past, least_trust=least_trust)
    changed = read_version_time(connection, collection, version)
    moment = changed if moment is None else moment

    return MemoryScope(moment, version, changed, least_trust=least_trust)


def read_version_time(connection: Connection, collection: Collection, version: int) -> float:
    if version == 0:
        return collection.created
    row = fetch_one(connection, versions, collection_id=collection.id, version=version)
    if row is None:
        raise InputError(
            f"collection {collection.full_name}: has no version {version}, its newest is"
            f" {collection.version}"
        )

    return row.changed


def in_scope(scope: MemoryScope) -> ColumnElement[bool]:
    """Return the SQL condition on a row of `memories`, without the one on its collection."""
    table = memories.c
    parts = [
        or_(table.valid_from.is_(None), table.valid_from <= scope.moment),
        or_(table.valid_to.is_(None), table.valid_to > scope.moment),
    ]

    if scope.version is not None:
        parts += [in_version(scope.version), table.text != ""]
    elif scope.past:
        parts += [
            ~table.forgotten,
            or_(table.superseded_at.is_(None), table.superseded_at > scope.moment),
        ]
    else:
        parts.append(table.closed.is_(None))

    if scope.least_trust > 0:
        parts.append(table.trust >= scope.least_trust)
    if scope.user is not None:
        parts.append(table.user.in_(("", scope.user)))

    return and_(*parts)


def read_in_scope(connection: Connection, scope: MemoryScope, seqs: Iterable[int]) -> set[int]:
    """Return those of the numbers `seqs` whose memories are in the scope."""
    query = select(memories.c.seq).where(in_scope(scope))
    return {
        seq
        for chunk in chunks(seqs)
        for seq in connection.execute(query.where(memories.c.seq.in_(chunk))).scalars()
    }


def in_version(version: int) -> ColumnElement[bool]:
    table = memories.c
    return and_(table.added <= version, or_(table.closed.is_(None), table.closed > version))


COPIED = (
    "id",
    "kind",
    "text",
    "importance",
    "created",
    "valid_from",
    "valid_to",
    "added",
    "reason",
    "user",
    "last_used",
    "times_used",
    "superseded_by",
    "superseded_at",
    "closed",
)
"""The fields of a record that are columns of its row."""


def read_memory_records(
    connection: Connection, rows: Sequence[Row[Any]], scope: MemoryScope | None = None
) -> list[MemoryRecord]:
    """Convert rows of `memories` to records, in their order. With a version in `scope` they are as
    they were in that version: that they were superseded, forgotten or used later is left out."""
    if not rows:
        return []
    seqs = [row.seq for row in rows]
    ids = list({row.collection_id for row in rows})
    names = {row.id: row.name for row in fetch_all(connection, collections, id=ids)}
    entities = _group(_read_listed(connection, _ENTITIES, seqs, "ORDER BY seq, position"))
    relations = _read_listed(connection, _RELATIONS, seqs, "ORDER BY seq, position")
    edges = _group((seq, Relation(*edge)) for seq, *edge in relations)
    replaced = _group(_read_listed(connection, _SUPERSEDED, seqs, "ORDER BY earlier.seq"))
    version = None if scope is None else scope.version
    used = None if scope is None or version is None else _read_uses(connection, seqs, scope.changed)
    records: list[MemoryRecord] = []
    columns = rows[0]._fields  # pyright: ignore[reportPrivateUsage]  it is public

    for row in rows:
        # Columns of rows are looked up slowly, and a search reads thousands of them.
        values: dict[str, Any] = dict(zip(columns, row, strict=True))
        if version is not None and values["closed"] is not None and values["closed"] > version:
            values |= dict.fromkeys(("superseded_by", "superseded_at", "closed", "forgotten"))
        if used is not None:
            values["last_used"], values["times_used"] = used.get(values["seq"], (None, 0))
        records.append(
            MemoryRecord(
                **{name: values[name] for name in COPIED},
                collection=names[values["collection_id"]],
                origin=Origin(values["source"], values["turn"], values["author"], values["trust"]),
                supersedes=tuple(replaced[values["id"]]),
                forgotten=bool(values["forgotten"]),
                entities=tuple(entities[values["seq"]]),
                relations=tuple(edges[values["seq"]]),
                cites=() if values["cites"] == "[]" else tuple(json.loads(values["cites"])),
            )
        )

    return records


def find_memories(connection: Connection, ids: Iterable[str], **owner: str) -> dict[str, Row[Any]]:
    """Return the rows of the memories with these ids, by id; ids that do not exist are left out.
    `owner`: the `namespace_id` or the `collection_id` to which the memories belong."""
    return {
        row.id: row
        for chunk in chunks(ids)
        for row in fetch_all(connection, memories, **owner, id=chunk)
    }


def fetch_memories(connection: Connection, seqs: Iterable[int]) -> list[Row[Any]]:
    """Return the rows of `memories` with these numbers, in no particular order."""
    return _read_listed(connection, "SELECT * FROM memories WHERE seq IN", seqs)


def _read_listed(
    connection: Connection, statement: str, seqs: Iterable[int], order: str = ""
) -> list[Any]:
    """Return the rows with these numbers, which are written into the statement: passing them as
    parameters takes most of the time of a search."""
    return [
        row
        for chunk in chunks(seqs)
        for row in connection.exec_driver_sql(
            f"{statement} ({', '.join(str(int(seq)) for seq in chunk)}) {order}"
        ).all()
    ]


_ENTITIES = "SELECT seq, name FROM mentions WHERE position IS NOT NULL AND seq IN"
_RELATIONS = "SELECT seq, subject, predicate, object FROM relations WHERE seq IN"
_SUPERSEDED = (
    "SELECT earlier.superseded_by, earlier.id FROM memories AS later"
    " JOIN memories AS earlier ON earlier.superseded_by = later.id WHERE later.seq IN"
)


def _group(pairs: Iterable[tuple[Any, Any]]) -> defaultdict[Any, list[Any]]:
    groups: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _read_uses(
    connection: Connection, seqs: list[int], until: float
) -> dict[int, tuple[float | None, int]]:
    query = f"SELECT seq, max(time), count(*) FROM uses WHERE time <= {until!r} AND seq IN"
    rows = _read_listed(connection, query, seqs, "GROUP BY seq")
    return {seq: (last, times) for seq, last, times in rows}


def read_cosines(
    connection: Connection, seqs: Iterable[int], embedding: Vector
) -> dict[int, float]:
    """Return the cosine similarity of memories and an embedding, by the memories' `seq`."""
    rows = _read_listed(connection, "SELECT seq, vector FROM embeddings WHERE seq IN", seqs)
    vectors = np.frombuffer(b"".join(bytes(row.vector) for row in rows), dtype="<f4")
    cosines = cosines_with(vectors.reshape(len(rows), -1), embedding) if rows else ()
    return {row.seq: float(cosine) for row, cosine in zip(rows, cosines, strict=True)}


def read_tokens(
    connection: Connection, seqs: Iterable[int], model: str
) -> dict[int, NDArray[np.uint8]]:
    """Return the packed token vectors of memories that were made by a model, by the memories'
    `seq`."""
    rows = _read_listed(
        connection, "SELECT seq, model, width, vectors FROM token_vectors WHERE seq IN", seqs
    )
    return {
        row.seq: np.frombuffer(row.vectors, dtype=np.uint8).reshape(-1, row.width)
        for row in rows
        if row.model == model
    }


def cosines_with(vectors: Vector, embedding: Vector) -> Vector:
    """Return the cosine of each row, shape (memories, dimension), with the embedding, independent
    of the other rows. It uses einsum, as the threads of a matrix product wait for each other: on a
    busy machine that took 6.7 ms for 5,000 rows, and einsum 0.36."""
    return np.einsum("ij,j->i", vectors, np.asarray(embedding, dtype=np.float32))
