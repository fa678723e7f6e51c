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
from dataclasses import asdict, astuple, dataclass, replace
from itertools import chain
from time import time
from typing import Any

from sqlalchemy import Row, Select, insert, select
from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError, InputError
from textevolve.evaluation import mend_text
from textevolve.loading import np
from textevolve.mappings import read_fields
from textevolve.memory.record import (
    Add,
    Applied,
    Change,
    ChangeSource,
    Collection,
    Forget,
    NewMemory,
    Supersede,
    TokenVectors,
    Vector,
)
from textevolve.store import memory_search_postgres, memory_search_sqlite
from textevolve.store.dialects import is_postgres
from textevolve.store.memory_rows import (
    IndexEntry,
    SearchIndex,
    chunks,
    collection_of,
    find_memories,
)
from textevolve.store.resource_rows import (
    delete_where,
    fetch_all,
    fetch_one,
    insert_rows,
    namespace_id,
    update_where,
)
from textevolve.store.tables import (
    collections,
    embeddings,
    memories,
    mentions,
    relations,
    sources,
    token_vectors,
    uses,
    versions,
)
from textevolve.texts.prose import join_lines

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
    if any(
        isinstance(change, Supersede) and not (change.memories or change.positions)
        for change in changes
    ):
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
    texts = {
        "text": memory.text,
        "source": memory.origin.source,
        "author": memory.origin.author,
        "reason": memory.reason,
        "user": memory.user,
        "entities": " ".join(memory.entities),
        "relations": " ".join(chain.from_iterable(map(astuple, memory.relations))),
    }
    for name, text in texts.items():
        if mend_text(text) != text:
            return f"its {name} holds a NUL or half of a surrogate pair, which is not valid text"
    for name, share in (("importance", memory.importance), ("trust", memory.origin.trust)):
        if not 0 <= share <= 1:
            return f"its {name} is {share}, and must be from 0 to 1"
    for name in ("created", "valid_from", "valid_to"):
        moment = getattr(memory, name)
        if moment is not None and not np.isfinite(moment):
            return f"its {name} is {moment}, which is not a time"

    if memory.created is not None and memory.created > time() + CLOCKS_DIFFER:
        return "it was created in the future"
    begins = memory.valid_from
    ends = memory.valid_to
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
    row = fetch_one(connection, sources, collection_id=collection.id, key=key)
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
        rows: list[dict[str, Any]] = []

        for change in changes:
            if isinstance(change, Forget):
                self._forget(targets[change.memory], change.erase)
                continue
            row = self._make_row(change)
            rows.append(row)
            if isinstance(change, Supersede):
                values: dict[str, Any] = {"superseded_by": row["id"]}
                values["superseded_at"] = row["valid_from"]
                values["closed"] = self.version
                self._update([targets[id].seq for id in change.memories], **values)
                # A memory of this very change: no version shows it, a search of its time does.
                for position in change.positions:
                    rows[position].update(values)

        # Once for all, since merging the index takes as long for a thousand memories as for one.
        erased = [targets[c.memory].seq for c in changes if isinstance(c, Forget) and c.erase]
        search_of(self.connection).erase(self.connection, erased)
        self._keep(_list_new(changes), rows)
        base = self.collection.version
        version = self.version if changes else self.version - 1
        applied = Applied(tuple(row["id"] for row in rows), base, version)
        self._note(applied, source)

        return applied

    def _find_targets(self, changes: Sequence[Change]) -> dict[str, Row[Any]]:
        erased = {
            change.memory for change in changes if isinstance(change, Forget) and change.erase
        }
        ids = [id for change in changes for id in _list_closed(change)]
        rows = find_memories(self.connection, ids, collection_id=self.collection.id)

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
        existing = find_memories(self.connection, cited, namespace_id=self.namespace_id)
        if missing := [id for id in cited if id not in existing]:
            name = self.collection.namespace
            raise InputError(
                f"no memory '{missing[0]}' to cite in the namespace '{name}'; `memories list` shows"
                " the ids"
            )

    def _keep(self, new: Sequence[NewMemory], rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows of new memories, and what belongs to them: embeddings, index entries, and
        the graph, which has the entities that they mention and their relations."""
        if not new:
            return
        put = insert(memories).returning(memories.c.seq, sort_by_parameter_order=True)
        seqs = self.connection.execute(put, rows).scalars()
        numbered = list(zip(seqs, new, strict=True))
        packed = [{"seq": seq, **pack_vector(memory.embedding)} for seq, memory in numbered]
        tokens = [
            {"seq": seq, **pack_tokens_row(memory.tokens)}
            for seq, memory in numbered
            if memory.tokens is not None
        ]
        edges = [
            {"seq": seq, "position": position, **asdict(edge)}
            for seq, memory in numbered
            for position, edge in enumerate(memory.relations)
        ]
        mentioned = [
            {"collection_id": self.collection.id, "entity": entity, "seq": seq, **mention}
            for seq, memory in numbered
            for entity, mention in _list_mentions(memory).items()
        ]
        insert_rows(self.connection, embeddings, packed)
        insert_rows(self.connection, token_vectors, tokens)
        insert_rows(self.connection, relations, edges)
        insert_rows(self.connection, mentions, mentioned)
        entries = [IndexEntry(seq, memory.text, memory.embedding) for seq, memory in numbered]
        search_of(self.connection).add(self.connection, self.collection, entries)

    def _make_row(self, change: Add | Supersede) -> dict[str, Any]:
        """Return the row of a new memory. One that supersedes others is valid by default from the
        time when it was created, but not later than now, as the others held until then."""
        memory = change.memory
        created = self.now if memory.created is None else memory.created
        valid_from = memory.valid_from
        if valid_from is None and isinstance(change, Supersede):
            valid_from = min(created, self.now)

        return {
            **read_fields(memory, "importance", "valid_to", "reason", "text", "user"),
            **read_fields(memory.origin, "source", "turn", "author", "trust"),
            "id": f"me_{secrets.token_hex(16)}",
            "namespace_id": self.namespace_id,
            "collection_id": self.collection.id,
            "kind": memory.kind or self.collection.kind,
            "created": created,
            "valid_from": valid_from,
            "times_used": 0,
            "added": self.version,
            "forgotten": False,
            "superseded_by": None,
            "superseded_at": None,
            "closed": None,
            "cites": json.dumps(memory.cites),
        }

    def _update(self, seqs: Sequence[int], **values: Any) -> None:
        for chunk in chunks(seqs):
            update_where(self.connection, memories, values, seq=chunk)

    def _forget(self, row: Row[Any], erase: bool) -> None:
        values: dict[str, Any] = {"forgotten": True}
        if row.closed is None:
            values["closed"] = self.version
        if erase:
            values |= {"text": "", "source": "", "author": "", "reason": "", "cites": "[]"}
            values["user"] = ""
            values |= {"turn": None, "trust": 1.0, "last_used": None, "times_used": 0}
            for table in (embeddings, token_vectors, mentions, relations, uses):
                delete_where(self.connection, table, seq=row.seq)

        self._update([row.seq], **values)

    def _note(self, applied: Applied, source: ChangeSource | None) -> None:
        """Store the new version and its source."""
        id = self.collection.id
        if applied.version != applied.base:
            moved = {"version": applied.version, "changed": self.now}
            update_where(self.connection, collections, moved, id=id)
            insert_rows(self.connection, versions, [{"collection_id": id, **moved}])

        if source is not None:
            row = {"collection_id": id, "key": source.key, "label": source.label}
            row |= {"base": applied.base, "version": applied.version, "created": self.now}
            insert_rows(self.connection, sources, [{**row, "ids": json.dumps(applied.ids)}])


def _list_mentions(memory: NewMemory) -> dict[str, dict[str, Any]]:
    """Return the row of each entity that a memory mentions, by the compared form of its name
    (`entity_of`). The position of an entity that only relations name is None."""
    names: list[tuple[int | None, str]] = list(enumerate(memory.entities))
    names += [(None, name) for edge in memory.relations for name in (edge.subject, edge.object)]
    by_entity: dict[str, dict[str, Any]] = {}
    for position, name in names:
        by_entity.setdefault(entity_of(name), {"position": position, "name": name})
    return {entity: mention for entity, mention in by_entity.items() if entity}


def entity_of(name: str) -> str:
    """Return an entity's name in the form in which names are compared: NFKC, without differences of
    case and spaces."""
    return join_lines(unicodedata.normalize("NFKC", name).casefold())


def pack_vector(embedding: Vector) -> dict[str, Any]:
    """Return the stored form of a vector, normalised to length 1, which the searches rely on."""
    wide = np.asarray(embedding, dtype=np.float64)
    unit = (wide / np.linalg.norm(wide)).astype("<f4")
    return {"dimension": len(unit), "vector": unit.tobytes()}


def pack_tokens_row(tokens: TokenVectors) -> dict[str, Any]:
    """Return the stored form of a memory's token vectors."""
    packed = np.ascontiguousarray(tokens.packed, dtype=np.uint8)
    return {"model": tokens.model, "width": packed.shape[1], "vectors": packed.tobytes()}


def search_of(connection: Connection) -> SearchIndex:
    return memory_search_postgres if is_postgres(connection) else memory_search_sqlite


def _select_seqs(collection_id: str) -> Select[Any]:
    return select(memories.c.seq).where(memories.c.collection_id == collection_id)


def erase_user_memories(connection: Connection, namespace: str, user: str) -> None:
    """Erase all memories of a user in the collections of a namespace."""
    space = namespace_id(connection, namespace)
    rows = connection.execute(select_user_memories(space, user)).all()
    ids = list({row.collection_id for row in rows})

    for stored in fetch_all(connection, collections, id=ids):
        collection = collection_of(stored, namespace)
        changes = [Forget(row.id, True) for row in rows if row.collection_id == stored.id]
        now = max(time(), collection.changed)
        Transaction(connection, space, collection, collection.version + 1, now).apply(changes, None)


def select_user_memories(space: str, user: str) -> Select[Any]:
    """Return the query for the memories of a user, closed ones included. `space`: the id of their
    namespace."""
    owned = (memories.c.namespace_id == space, memories.c.user == user, memories.c.user != "")
    return select(memories).where(*owned).order_by(memories.c.seq)


def erase_collection(connection: Connection, row: Row[Any]) -> None:
    """Delete everything that belongs to the collection of a row, with its index entries."""
    seqs = _select_seqs(row.id)
    search_of(connection).erase(connection, connection.execute(seqs).scalars().all())
    for table in (embeddings, token_vectors, relations, uses):
        delete_where(connection, table, seq=seqs)
    for table in (mentions, sources, versions, memories):
        delete_where(connection, table, collection_id=row.id)


def move_collection(
    connection: Connection,
    collection: Collection,
    embedder: str,
    dimension: int,
    vectors: Mapping[str, Vector],
    tokens: Mapping[str, TokenVectors],
) -> Collection:
    """Replace the embeddings of all memories of a collection, except erased ones, by `vectors`,
    and the vectors of their tokens by `tokens`, which have them by the memories' ids. Return the
    collection with its new embedder.

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

    seqs = connection.execute(_select_seqs(collection.id)).scalars().all()
    search_of(connection).erase(connection, seqs)
    for chunk in chunks(seqs):
        delete_where(connection, token_vectors, seq=chunk)
    new_tokens = [
        {"seq": row.seq, **pack_tokens_row(tokens[row.id])} for row in rows if row.id in tokens
    ]
    insert_rows(connection, token_vectors, new_tokens)
    for row in rows:
        update_where(connection, embeddings, pack_vector(vectors[row.id]), seq=row.seq)
    values = {"embedder": embedder, "dimension": dimension, "updated": time()}
    update_where(connection, collections, values, id=collection.id)
    if rows:
        entries = [IndexEntry(row.seq, row.text, vectors[row.id]) for row in rows]
        search_of(connection).add(connection, moved, entries)

    return moved
