"""Check the changes of a collection of memories, and write all their rows.

Supersession has no cycles: a superseding memory is always new, and a closed one is never closed
again, so each `superseded_by` refers to a memory that was stored later.
"""

from __future__ import annotations

import json
import secrets
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import time
from typing import Any

import numpy as np
from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError, InputError
from textevolve.memory.record import (
    Applied,
    Change,
    ChangeSource,
    Collection,
    Forget,
    MemoryRecord,
    NewMemory,
    Supersede,
    Vector,
)
from textevolve.store import memory_search_postgres, memory_search_sqlite
from textevolve.store.dialects import is_postgres
from textevolve.store.memory_rows import IndexEntry, SearchIndex, chunks, collection_of
from textevolve.store.tables import (
    collections,
    embeddings,
    memories,
    mentions,
    relations,
    sources,
    uses,
    versions,
)

LONGEST_TEXT = 100_000
"""The maximum number of characters of a memory."""
CLOCKS_DIFFER = 60.0
"""The seconds by which a memory's time of creation may be ahead of this machine's clock."""


def check_changes(collection: Collection, changes: Sequence[Change]) -> None:
    """Check everything that does not depend on other memories.

    Raises:
        InputError: a memory cannot be stored; names it and the reason.
    """
    place = f"collection {collection.full_name}"
    if any(isinstance(change, Supersede) and not change.memories for change in changes):
        raise InputError(f"{place}: a memory that replaces no other must be added, not superseded")
    for number, memory in enumerate(_list_new(changes), 1):
        fault = _find_fault(memory) or find_vector_fault(memory.embedding, collection.dimension)
        if fault:
            raise InputError(f"{place}: memory {number}: {fault}")
    closing = Counter(id for change in changes for id in _list_closed(change))
    for id, times in closing.items():
        if times > 1:
            raise InputError(f"{place}: {id} is superseded or forgotten twice at once")


def _find_fault(memory: NewMemory) -> str:
    """Return the fault of a memory; empty if it has none."""
    if not memory.text.strip():
        return "its text is blank"
    if len(memory.text) > LONGEST_TEXT:
        return f"its text has {len(memory.text):,} characters, the most is {LONGEST_TEXT:,}"
    edges = " ".join(f"{edge.subject}{edge.predicate}{edge.object}" for edge in memory.relations)
    texts = {
        "text": memory.text,
        "source": memory.origin.source,
        "author": memory.origin.author,
        "reason": memory.reason,
        "entities": " ".join(memory.entities),
        "relations": edges,
    }
    for name, text in texts.items():
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            return f"its {name} holds a NUL or half of a surrogate pair, which is not valid text"
    for name, share in (("importance", memory.importance), ("trust", memory.origin.trust)):
        if not 0 <= share <= 1:
            return f"its {name} is {share}, and must be from 0 to 1"
    times = {name: getattr(memory, name) for name in ("created", "valid_from", "valid_to")}
    for name, moment in times.items():
        if moment is not None and not np.isfinite(moment):
            return f"its {name} is {moment}, which is not a time"
    if memory.created is not None and memory.created > time() + CLOCKS_DIFFER:
        return "it was created in the future"
    begins, ends = memory.valid_from, memory.valid_to
    if begins is not None and ends is not None and ends < begins:
        return "its valid_to is before its valid_from"
    return ""


def find_vector_fault(embedding: Vector, dimension: int) -> str:
    shape = np.shape(embedding)
    if shape != (dimension,):
        return f"its embedding has {shape} numbers, and the collection's have {dimension}"
    size = float(np.linalg.norm(np.asarray(embedding, dtype=np.float64)))
    if not np.isfinite(size) or abs(size - 1) > 0.01:
        return f"its embedding has the length {size:.3g}, and must have 1"
    return ""


def _list_new(changes: Iterable[Change]) -> list[NewMemory]:
    return [change.memory for change in changes if not isinstance(change, Forget)]


def _list_closed(change: Change) -> tuple[str, ...]:
    if isinstance(change, Forget):
        return (change.memory,)
    return change.memories if isinstance(change, Supersede) else ()


def read_applied(connection: Connection, collection: Collection, key: str) -> Applied | None:
    query = select(sources).where(sources.c.collection_id == collection.id, sources.c.key == key)
    row = connection.execute(query).one_or_none()
    return None if row is None else Applied(tuple(json.loads(row.ids)), row.base, row.version)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The writing of a new version of a collection. `version`: its number. `now`: the time of the
    change."""

    connection: Connection
    namespace_id: str
    collection: Collection
    version: int
    now: float

    def apply(self, changes: Sequence[Change], source: ChangeSource | None) -> Applied:
        """Apply all changes to the collection, as its next version; without changes the version
        stays.

        Raises:
            InputError: a memory that a change names does not exist.
            ConflictError: a memory to supersede or forget is superseded or forgotten already;
                only an erasure may name such a memory.
        """
        targets = self._find_targets(changes)
        self._check_cited(changes)
        changes = [self._date(change) for change in changes]
        ids = self._keep(_list_new(changes))
        new = iter(ids)
        for change in changes:
            if isinstance(change, Forget):
                self._forget(targets[change.memory], change.erase)
                continue
            id = next(new)
            if isinstance(change, Supersede):
                seqs = [targets[each].seq for each in change.memories]
                values = {"superseded_by": id, "superseded_at": change.memory.valid_from}
                self._update(seqs, closed=self.version, **values)
        base, version = self.collection.version, self.version if changes else self.version - 1
        applied = Applied(tuple(ids), base, version)
        self._note(applied, source)
        return applied

    def _date(self, change: Change) -> Change:
        """Return a change whose memory has a start of validity if it supersedes others: by default
        the time when it was created, but not later than now, as the others held until then."""
        if not isinstance(change, Supersede) or change.memory.valid_from is not None:
            return change
        created = change.memory.created
        since = self.now if created is None else min(created, self.now)
        return replace(change, memory=replace(change.memory, valid_from=since))

    def _find_targets(self, changes: Sequence[Change]) -> dict[str, Row[Any]]:
        erased = {
            change.memory for change in changes if isinstance(change, Forget) and change.erase
        }
        ids = [id for change in changes for id in _list_closed(change)]
        table, rows = memories.c, dict[str, Row[Any]]()
        for chunk in chunks(ids):
            query = select(table.id, table.seq, table.closed).where(
                table.collection_id == self.collection.id, table.id.in_(chunk)
            )
            rows |= {row.id: row for row in self.connection.execute(query)}
        for id in ids:
            if id not in rows:
                raise InputError(
                    f"no memory '{id}' (`memories list` shows the ids) in collection"
                    f" {self.collection.full_name}"
                )
            if rows[id].closed is not None and id not in erased:
                raise ConflictError(
                    f"memory {id} is superseded or forgotten by now in collection"
                    f" {self.collection.full_name}; read the collection again"
                )
        return rows

    def _check_cited(self, changes: Sequence[Change]) -> None:
        cited = list(dict.fromkeys(id for new in _list_new(changes) for id in new.cites))
        existing: set[str] = set()
        for chunk in chunks(cited):
            query = select(memories.c.id).where(
                memories.c.namespace_id == self.namespace_id, memories.c.id.in_(chunk)
            )
            existing.update(self.connection.execute(query).scalars())
        if missing := [id for id in cited if id not in existing]:
            name = self.collection.namespace
            raise InputError(
                f"no memory '{missing[0]}' to cite in the namespace '{name}'; `memories list` shows"
                " the ids"
            )

    def _keep(self, new: Sequence[NewMemory]) -> list[str]:
        """Insert rows and index entries of new memories; return their ids."""
        if not new:
            return []
        rows = [self._make_row(memory) for memory in new]
        put = insert(memories).returning(memories.c.seq, sort_by_parameter_order=True)
        seqs = list(self.connection.execute(put, rows).scalars())
        numbered = list(zip(seqs, new, strict=True))
        self.connect(numbered)
        packed = [{"seq": seq, **pack_vector(memory.embedding)} for seq, memory in numbered]
        self.connection.execute(insert(embeddings), packed)
        entries = [IndexEntry(seq, memory.text, memory.embedding) for seq, memory in numbered]
        search_of(self.connection).add(self.connection, self.collection, entries)
        return [row["id"] for row in rows]

    def _make_row(self, memory: NewMemory) -> dict[str, Any]:
        copied = ("importance", "valid_from", "valid_to", "reason", "text")
        return {
            **{name: getattr(memory, name) for name in copied},
            **asdict(memory.origin),
            "id": f"me_{secrets.token_hex(16)}",
            "namespace_id": self.namespace_id,
            "collection_id": self.collection.id,
            "kind": memory.kind or self.collection.kind,
            "created": self.now if memory.created is None else memory.created,
            "times_used": 0,
            "added": self.version,
            "forgotten": False,
            "cites": json.dumps(memory.cites),
        }

    def connect(self, new: Sequence[tuple[int, NewMemory | MemoryRecord]]) -> None:
        """Store the graph: the entities that memories mention, and their relations."""
        edges = [
            {"seq": seq, "position": position, **asdict(edge)}
            for seq, memory in new
            for position, edge in enumerate(memory.relations)
        ]
        if edges:
            self.connection.execute(insert(relations), edges)
        mention_rows = [
            {"collection_id": self.collection.id, "entity": entity, "seq": seq, **mention}
            for seq, memory in new
            for entity, mention in _list_mentions(memory).items()
        ]
        if mention_rows:
            self.connection.execute(insert(mentions), mention_rows)

    def _update(self, seqs: Sequence[int], **values: Any) -> None:
        for chunk in chunks(seqs):
            change = update(memories).where(memories.c.seq.in_(chunk))
            self.connection.execute(change.values(**values))

    def _forget(self, row: Row[Any], erase: bool) -> None:
        values: dict[str, Any] = {"forgotten": True}
        if row.closed is None:
            values["closed"] = self.version
        if erase:
            values |= {"text": "", "source": "", "author": "", "reason": "", "cites": "[]"}
            values |= {"turn": None, "trust": 1.0, "last_used": None, "times_used": 0}
            search_of(self.connection).erase(self.connection, self.collection, [row.seq])
            for table in (embeddings, mentions, relations, uses):
                self.connection.execute(delete(table).where(table.c.seq == row.seq))
        self._update([row.seq], **values)

    def _note(self, applied: Applied, source: ChangeSource | None) -> None:
        """Store the new version and its source."""
        id = self.collection.id
        if applied.version != applied.base:
            moved = update(collections).where(collections.c.id == id)
            self.connection.execute(moved.values(version=applied.version, changed=self.now))
            version_row = {"collection_id": id, "version": applied.version, "changed": self.now}
            self.connection.execute(insert(versions).values(version_row))
        if source is not None:
            row = {"collection_id": id, "key": source.key, "label": source.label}
            row |= {"base": applied.base, "version": applied.version, "created": self.now}
            self.connection.execute(insert(sources).values(**row, ids=json.dumps(applied.ids)))


def _list_mentions(memory: NewMemory | MemoryRecord) -> dict[str, dict[str, Any]]:
    """Return the row of each entity that a memory mentions, by the compared form of its name
    (`entity_of`). The position of an entity that only relations name is None."""
    by_entity: dict[str, dict[str, Any]] = {}
    for position, name in enumerate(memory.entities):
        by_entity.setdefault(entity_of(name), {"position": position, "name": name})
    for edge in memory.relations:
        for name in (edge.subject, edge.object):
            by_entity.setdefault(entity_of(name), {"position": None, "name": name})
    return {entity: mention for entity, mention in by_entity.items() if entity}


def entity_of(name: str) -> str:
    """Return an entity's name in the form in which names are compared: NFKC, without differences of
    case and spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def pack_vector(embedding: Vector) -> dict[str, Any]:
    """Return the stored form of a vector, normalised to length 1, which the searches rely on."""
    wide = np.asarray(embedding, dtype=np.float64)
    unit = (wide / np.linalg.norm(wide)).astype("<f4")
    return {"dimension": len(unit), "vector": unit.tobytes()}


def search_of(connection: Connection) -> SearchIndex:
    return memory_search_postgres if is_postgres(connection) else memory_search_sqlite


def erase_collection(connection: Connection, collection_id: str) -> None:
    """Delete a collection with all its rows and index entries."""
    query = select(collections).where(collections.c.id == collection_id)
    search_of(connection).erase_all(connection, collection_of(connection.execute(query).one(), ""))
    seqs = select(memories.c.seq).where(memories.c.collection_id == collection_id)
    for table in (embeddings, relations, uses):
        connection.execute(delete(table).where(table.c.seq.in_(seqs)))
    for table in (mentions, sources, versions, memories):
        connection.execute(delete(table).where(table.c.collection_id == collection_id))
    connection.execute(delete(collections).where(collections.c.id == collection_id))


def move_collection(
    connection: Connection,
    collection: Collection,
    embedder: str,
    dimension: int,
    vectors: Mapping[str, Vector],
) -> Collection:
    """Replace the embeddings of all memories of a collection, except erased ones, by `vectors`,
    which has them by the memories' ids. Return the collection with its new embedder.

    Raises:
        InputError: a vector is missing, or does not fit.
    """
    moved = replace(collection, embedder=embedder, dimension=dimension)
    query = (
        select(memories)
        .join(embeddings, embeddings.c.seq == memories.c.seq)
        .where(memories.c.collection_id == collection.id)
    )
    rows = connection.execute(query.order_by(memories.c.seq)).all()
    for row in rows:
        if row.id not in vectors:
            raise InputError(f"collection {collection.full_name}: no vector for memory {row.id}")
        if fault := find_vector_fault(vectors[row.id], dimension):
            raise InputError(f"collection {collection.full_name}: memory {row.id}: {fault}")
    search_of(connection).erase_all(connection, collection)
    for row in rows:
        change = update(embeddings).where(embeddings.c.seq == row.seq)
        connection.execute(change.values(**pack_vector(vectors[row.id])))
    changed = update(collections).where(collections.c.id == collection.id)
    connection.execute(changed.values(embedder=embedder, dimension=dimension, updated=time()))
    if rows:
        entries = [IndexEntry(row.seq, row.text, vectors[row.id]) for row in rows]
        search_of(connection).add(connection, moved, entries)
    return moved
