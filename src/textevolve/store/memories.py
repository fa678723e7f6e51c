"""The `MemoryStore` of one namespace in a database, SQLite or PostgreSQL.

Each query or change is one transaction in a separate thread. `store/memory_changes.py` writes
changes; each database has a separate module for searches.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from time import time
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Row, Select, and_, func, literal, or_, select
from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError, InputError, NotFoundError
from textevolve.loading import NDArray, np
from textevolve.memory.record import (
    Applied,
    Change,
    ChangeSource,
    Collection,
    Entity,
    MemoryMatch,
    MemoryQuery,
    MemoryRecord,
    TokenVectors,
    Vector,
)
from textevolve.store.database import Database
from textevolve.store.memory_changes import (
    Transaction,
    check_changes,
    find_vector_fault,
    move_collection,
    read_applied,
    search_of,
    select_user_memories,
)
from textevolve.store.memory_rows import (
    MemoryScope,
    choose_scope,
    fetch_memories,
    find_memories,
    in_scope,
    in_version,
    read_collection,
    read_cosines,
    read_memory_records,
    read_tokens,
)
from textevolve.store.resource_rows import fetch_one, insert_rows, namespace_id, update_where
from textevolve.store.tables import memories, mentions, sources, uses

P = ParamSpec("P")
T = TypeVar("T")

SHORTEST_ID = 6
"""The least number of characters of an id's beginning, such as me_0f3."""
MOST_STARTS = 32
"""The maximum number of memories from which an association starts."""


def _reads(
    query: Callable[Concatenate[StoredMemories, Connection, P], T],
) -> Callable[Concatenate[StoredMemories, P], CoroutineType[Any, Any, T]]:
    """Return a query as an async method, which reads one snapshot of the database."""

    @wraps(query)
    async def ask(store: StoredMemories, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(
            lambda: store.database().read(partial(query, store), *args, **kwargs)
        )

    return ask


def _writes(
    change: Callable[Concatenate[StoredMemories, Connection, P], T],
) -> Callable[Concatenate[StoredMemories, P], CoroutineType[Any, Any, T]]:
    """Return a change as an async method, which is written atomically."""

    @wraps(change)
    async def write(store: StoredMemories, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(
            lambda: store.database().write(partial(change, store), *args, **kwargs)
        )

    return write


class StoredMemories:
    """The collections and memories of one namespace. `database` is called for each query, since the
    database opens on first use."""

    def __init__(self, database: Callable[[], Database], namespace: str) -> None:
        self.database = database
        self.namespace = namespace

    @_reads
    def collection(self, connection: Connection, name: str) -> Collection:
        return read_collection(connection, self.namespace, name)

    @_reads
    def search(self, connection: Connection, query: MemoryQuery) -> Sequence[MemoryMatch]:
        if not query.text.strip() and query.embedding is None:
            raise InputError("a search for memories needs a text or an embedding")
        collection, scope = self._choose(connection, query)
        index = search_of(connection)
        near: Sequence[tuple[int, float]] = ()
        if query.embedding is not None:
            if fault := find_vector_fault(query.embedding, collection.dimension):
                raise InputError(f"collection {collection.full_name}: the search: {fault}")
            near = index.find_near(connection, collection, scope, query.embedding, query.limit)

        worded: Sequence[int] = ()
        if query.text.strip():
            worded = index.find_words(connection, collection, scope, query.text, query.limit)
        dense = {seq: rank for rank, (seq, _) in enumerate(near, 1)}
        keyword = {seq: rank for rank, seq in enumerate(worded, 1)}
        rows = fetch_memories(connection, dict.fromkeys([*dense, *keyword]))
        cosines = dict(near)
        if query.embedding is not None:
            cosines |= read_cosines(connection, keyword.keys() - dense, query.embedding)

        tokens: dict[int, NDArray[np.uint8]] = {}
        if query.token_model:
            tokens = read_tokens(connection, [row.seq for row in rows], query.token_model)

        return [
            MemoryMatch(
                record,
                dense.get(row.seq),
                keyword.get(row.seq),
                cosines.get(row.seq),
                tokens.get(row.seq),
            )
            for row, record in zip(rows, read_memory_records(connection, rows, scope), strict=True)
        ]

    @_reads
    def associate(
        self, connection: Connection, query: MemoryQuery, starts: Sequence[str], hops: int = 2
    ) -> Sequence[MemoryRecord]:
        collection, scope = self._choose(connection, query)
        near = self._reach(connection, collection, scope, starts[:MOST_STARTS], hops)[: query.limit]
        rows = {row.seq: row for row in fetch_memories(connection, near)}
        return read_memory_records(connection, [rows[seq] for seq in near], scope)

    @_reads
    def graph(self, connection: Connection, collection: str) -> Sequence[Entity]:
        """Return the entities that the current memories mention, the most frequent first."""
        stored = read_collection(connection, self.namespace, collection)
        query = select(mentions.c.entity, mentions.c.name, memories.c.id)
        query = query.join(memories, memories.c.seq == mentions.c.seq)
        conditions = mentions.c.collection_id == stored.id, memories.c.closed.is_(None)
        names: dict[str, str] = {}
        ids: defaultdict[str, list[str]] = defaultdict(list)
        entities: defaultdict[str, list[str]] = defaultdict(list)

        for entity, name, id in connection.execute(
            query.where(*conditions).order_by(memories.c.seq)
        ):
            names.setdefault(entity, name)
            ids[entity].append(id)
            entities[id].append(entity)

        graph: list[Entity] = []

        for entity in sorted(ids, key=lambda each: (-len(ids[each]), each)):
            shared = Counter(other for id in ids[entity] for other in entities[id])
            del shared[entity]
            neighbours = {names[other]: number for other, number in shared.most_common()}
            graph.append(Entity(names[entity], tuple(ids[entity]), neighbours))

        return graph

    @_reads
    def get(self, connection: Connection, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        return read_memory_records(connection, self._require(connection, ids))

    @_reads
    def find(self, connection: Connection, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        """Return the memories with these ids, in no particular order; ids that do not exist in the
        namespace are left out."""
        return read_memory_records(connection, list(self._find(connection, ids).values()))

    @_reads
    def of_user(self, connection: Connection, user: str) -> Sequence[MemoryRecord]:
        """Return the memories of a user in all collections, closed ones included."""
        space = namespace_id(connection, self.namespace)
        return self._list(connection, select_user_memories(space, user))

    @_reads
    def history(self, connection: Connection, id: str) -> Sequence[MemoryRecord]:
        (row,) = self._require(connection, [id])
        start = select(literal(row.id).label("id"), literal(row.superseded_by).label("by"))
        chain = start.cte("chain", recursive=True)
        near = or_(memories.c.superseded_by == chain.c.id, memories.c.id == chain.c.by)
        chain = chain.union(select(memories.c.id, memories.c.superseded_by).join(chain, near))
        query = select(memories).where(memories.c.id.in_(select(chain.c.id)))
        return self._list(connection, query.order_by(memories.c.seq))

    @_reads
    def page(
        self,
        connection: Connection,
        collection: str,
        *,
        after: str | None = None,
        limit: int = 100,
        version: int | None = None,
        closed: bool = False,
        newest_first: bool = False,
    ) -> Sequence[MemoryRecord]:
        stored = read_collection(connection, self.namespace, collection)
        query = select(memories).where(memories.c.collection_id == stored.id)
        seq = memories.c.seq
        query = query.order_by(seq.desc() if newest_first else seq).limit(limit)
        if after is not None:
            place = self._place(connection, stored, after)
            query = query.where(seq < place if newest_first else seq > place)
        if version is None:
            query = query if closed else query.where(memories.c.closed.is_(None))
            return self._list(connection, query)
        query = query.where(memories.c.added <= version)
        if not closed:
            query = query.where(in_version(version), memories.c.text != "")

        return self._list(connection, query, choose_scope(connection, stored, version))

    @_writes
    def apply(
        self,
        connection: Connection,
        collection: str,
        changes: Sequence[Change],
        source: ChangeSource | None = None,
    ) -> Applied:
        stored = read_collection(connection, self.namespace, collection)
        if source is not None and (applied := read_applied(connection, stored, source.key)):
            return replace(applied, repeated=True)
        if source is not None:
            _check_version(stored, source.base)
        check_changes(stored, changes)
        space = namespace_id(connection, self.namespace)
        # A clock that was set back must not make versions go back.
        now = max(time(), stored.changed)

        return Transaction(connection, space, stored, stored.version + 1, now).apply(
            changes, source
        )

    @_reads
    def applied(self, connection: Connection, collection: str, key: str) -> Applied | None:
        stored = read_collection(connection, self.namespace, collection)
        return read_applied(connection, stored, key)

    @_writes
    def use(self, connection: Connection, ids: Sequence[str], time: float) -> None:
        if not math.isfinite(time):
            raise InputError(f"{time} is not a time at which memories can be used")
        rows = self._require(connection, tuple(dict.fromkeys(ids)))
        insert_rows(connection, uses, [{"seq": row.seq, "time": time} for row in rows])
        for row in rows:
            last = time if row.last_used is None else max(time, row.last_used)
            values = {"last_used": last, "times_used": row.times_used + 1}
            update_where(connection, memories, values, seq=row.seq)

    @_writes
    def replace_embeddings(
        self,
        connection: Connection,
        collection: str,
        base: int,
        embedder: str,
        dimension: int,
        vectors: Mapping[str, Vector],
        tokens: Mapping[str, TokenVectors] = {},
    ) -> Collection:
        """Move a collection to another embedder atomically. `base`: the version that was read;
        `vectors`: an embedding for each of its memories by id, also superseded and forgotten ones,
        except for erased ones; `tokens`: the vectors of their tokens.

        Raises:
            ConflictError: the collection has changed since.
            InputError: a vector is missing, or does not fit.
        """
        stored = read_collection(connection, self.namespace, collection)
        _check_version(stored, base)
        return move_collection(connection, stored, embedder, dimension, vectors, tokens)

    def _choose(self, connection: Connection, query: MemoryQuery) -> tuple[Collection, MemoryScope]:
        collection = read_collection(connection, self.namespace, query.collection)
        scope = choose_scope(connection, collection, query.version, query.time, query.least_trust)
        return collection, replace(scope, user=query.user)

    def _reach(
        self,
        connection: Connection,
        collection: Collection,
        scope: MemoryScope,
        starts: Sequence[str],
        hops: int,
    ) -> list[int]:
        """Return the numbers (`seq`) of the memories that share entities with those whose ids are
        in `starts`, directly or over up to `hops` steps, the nearest first. The starts themselves
        are left out."""
        visible = and_(memories.c.collection_id == collection.id, in_scope(scope))
        starting = select(memories.c.seq.label("seq"), literal(0).label("hop"))
        reached = starting.where(visible, memories.c.id.in_(starts)).cte("reached", recursive=True)
        of = mentions.alias()
        shared = mentions.alias()
        same = and_(shared.c.collection_id == collection.id, shared.c.entity == of.c.entity)
        step = (
            select(memories.c.seq, reached.c.hop + 1)
            .select_from(reached)
            .join(of, of.c.seq == reached.c.seq)
            .join(shared, same)
            .join(memories, memories.c.seq == shared.c.seq)
            .where(visible, reached.c.hop < hops)
        )
        reached = reached.union(step)
        hop = func.min(reached.c.hop)
        nearest = select(reached.c.seq).group_by(reached.c.seq).having(hop > 0)

        return list(connection.execute(nearest.order_by(hop, reached.c.seq)).scalars())

    def _place(self, connection: Connection, collection: Collection, id: str) -> int:
        row = fetch_one(connection, memories, collection_id=collection.id, id=id)
        if row is None:
            raise NotFoundError(
                f"no memory '{id}' (`memories list` shows the ids) in collection"
                f" {collection.full_name}"
            )

        return row.seq

    def _list(
        self, connection: Connection, query: Select[Any], scope: MemoryScope | None = None
    ) -> list[MemoryRecord]:
        return read_memory_records(connection, connection.execute(query).all(), scope)

    def _find(self, connection: Connection, ids: Sequence[str]) -> dict[str, Row[Any]]:
        space = namespace_id(connection, self.namespace)
        return find_memories(connection, ids, namespace_id=space)

    def _require(self, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
        """Return the rows of memories by their ids, or by the beginnings of ids that fit one."""
        rows = self._find(connection, ids)
        owned = memories.c.namespace_id == namespace_id(connection, self.namespace)
        for id in ids:
            if id not in rows and len(id) >= SHORTEST_ID:
                begins = memories.c.id.startswith(id, autoescape=True)
                matches = connection.execute(select(memories).where(owned, begins).limit(2)).all()
                if len(matches) > 1:
                    raise InputError(f"several memories have ids that begin with '{id}'")
                rows.update((id, row) for row in matches)
            if id not in rows:
                raise NotFoundError(
                    f"no memory '{id}' in the namespace '{self.namespace}'; `memories list` shows"
                    " the ids, and --namespace names another namespace"
                )

        return [rows[id] for id in ids]


def _check_version(stored: Collection, base: int | None) -> None:
    """Check that a collection still has the version for which changes were made; None: any.

    Raises:
        ConflictError: it has another one.
    """
    if base not in (None, stored.version):
        raise ConflictError(
            f"collection {stored.full_name}: has version {stored.version} now, not {base},"
            " since memories were added meanwhile; start the command again"
        )


def list_source_labels(
    connection: Connection, collection: Collection, prefix: str
) -> list[tuple[str, int]]:
    """List the labels with this prefix of a collection's sources, newest first, each with the
    version of the collection that it created."""
    query = (
        select(sources.c.label, sources.c.version)
        .where(
            sources.c.collection_id == collection.id,
            sources.c.label.startswith(prefix, autoescape=True),
        )
        .order_by(sources.c.created.desc(), sources.c.version.desc())
    )

    return [(row.label, row.version) for row in connection.execute(query)]
