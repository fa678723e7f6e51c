"""Memories in a database: the `MemoryStore` of one namespace, in SQLite or PostgreSQL.

Every question is one transaction in a thread of its own. What is written is in
`store/memory_changes.py`; the search of each database is a module of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any, TypeVar

from sqlalchemy import (
    Row,
    Select,
    and_,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError, InputError, NotFoundError
from textevolve.memory.index import MemoryMatch, MemoryQuery
from textevolve.memory.record import (
    Applied,
    Change,
    ChangeSource,
    Collection,
    MemoryRecord,
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
)
from textevolve.store.memory_rows import (
    choose_held,
    chunks,
    holds,
    in_version,
    read_collection,
    read_cosines,
    read_memory_records,
    read_namespace_id,
    read_rows,
    read_version_time,
)
from textevolve.store.tables import (
    collections,
    memories,
    mentions,
    sources,
    uses,
)

T = TypeVar("T")


class StoredMemories:
    """The collections and memories of one namespace. `database` is asked for with each question."""

    def __init__(self, database: Callable[[], Database], namespace: str) -> None:
        self._database = database
        self.namespace = namespace

    async def collection(self, name: str) -> Collection:
        return await self._read(lambda connection: self._collection(connection, name))

    async def search(self, query: MemoryQuery) -> Sequence[MemoryMatch]:
        if not query.text.strip() and query.embedding is None:
            raise InputError("a search for memories needs a text or an embedding")
        return await self._read(lambda connection: self._search(connection, query))

    async def associate(
        self, query: MemoryQuery, starts: Sequence[str], hops: int = 2
    ) -> Sequence[MemoryRecord]:
        return await self._read(
            lambda connection: self._associate(connection, query, tuple(starts), hops)
        )

    async def get(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        return await self._read(lambda connection: self._get(connection, tuple(ids)))

    async def find(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        """The memories with these ids, as far as they are there, in no particular order."""

        def read(connection: Connection) -> list[MemoryRecord]:
            return self._records(connection, list(self._known(connection, ids).values()))

        return await self._read(read)

    async def history(self, id: str) -> Sequence[MemoryRecord]:
        return await self._read(lambda connection: self._history(connection, id))

    async def page(
        self,
        collection: str,
        *,
        after: str | None = None,
        limit: int = 100,
        version: int | None = None,
        closed: bool = False,
    ) -> Sequence[MemoryRecord]:
        def read(connection: Connection) -> list[MemoryRecord]:
            found = self._collection(connection, collection)
            asked = select(memories).where(memories.c.collection_id == found.id)
            if after is not None:
                asked = asked.where(memories.c.seq > self._place(connection, found, after))
            if version is None:
                asked = asked if closed else asked.where(memories.c.closed.is_(None))
                return self._list(connection, asked.order_by(memories.c.seq).limit(limit))
            as_of = version, read_version_time(connection, found, version)
            asked = asked.where(memories.c.added <= version)
            if not closed:
                asked = asked.where(in_version(version), memories.c.text != "")
            return self._list(connection, asked.order_by(memories.c.seq).limit(limit), as_of)

        return await self._read(read)

    async def timeline(
        self,
        collection: str,
        *,
        before: str | None = None,
        limit: int = 50,
        moment: float | None = None,
        closed: bool = False,
    ) -> Sequence[MemoryRecord]:
        """Memories that were kept before the one with the id `before`, the newest first. `moment`:
        those that held then; else those that are held now, with `closed` the others, too.

        Raises:
            InputError: there is no such collection, or no memory `before` in it.
        """

        def read(connection: Connection) -> list[MemoryRecord]:
            found = self._collection(connection, collection)
            asked = select(memories).where(memories.c.collection_id == found.id)
            if before is not None:
                asked = asked.where(memories.c.seq < self._place(connection, found, before))
            if moment is not None:
                asked = asked.where(holds(choose_held(connection, found, moment=moment)))
            elif not closed:
                asked = asked.where(memories.c.closed.is_(None))
            return self._list(connection, asked.order_by(memories.c.seq.desc()).limit(limit))

        return await self._read(read)

    async def apply(
        self, collection: str, changes: Sequence[Change], source: ChangeSource | None = None
    ) -> Applied:
        made = tuple(changes)
        return await self._write(
            lambda connection: self._apply(connection, collection, made, source)
        )

    async def applied(self, collection: str, key: str) -> Applied | None:
        return await self._read(
            lambda connection: read_applied(
                connection, self._collection(connection, collection), key
            )
        )

    async def use(self, ids: Sequence[str], time: float) -> None:
        if not math.isfinite(time):
            raise InputError(f"{time} is no time at which memories can be used")
        wanted = tuple(dict.fromkeys(ids))
        await self._write(lambda connection: self._use(connection, wanted, time))

    async def replace_embeddings(
        self,
        collection: str,
        base: int,
        embedder: str,
        dimension: int,
        vectors: Mapping[str, Vector],
    ) -> Collection:
        """Move a collection to another embedder, all or nothing. `base`: the version that was read;
        `vectors`: an embedding for each of its memories by id, whether it is held still or not,
        except for those that were erased.

        Raises:
            ConflictError: the collection has changed since.
            InputError: a vector is missing, or does not fit.
        """

        def replace(connection: Connection) -> Collection:
            found = self._collection(connection, collection)
            if found.version != base:
                raise ConflictError(
                    f"collection {found.full_name}: has version {found.version} by now, not"
                    f" {base}; embed what was added and try again"
                )
            return move_collection(connection, found, embedder, dimension, vectors)

        return await self._write(replace)

    async def _read(self, query: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(lambda: self._database().read(query))

    async def _write(self, change: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(lambda: self._database().write(change))

    def _collection(self, connection: Connection, name: str) -> Collection:
        return read_collection(connection, self.namespace, name)

    def _place(self, connection: Connection, collection: Collection, id: str) -> int:
        own = memories.c.collection_id == collection.id, memories.c.id == id
        seq = connection.execute(select(memories.c.seq).where(*own)).scalar_one_or_none()
        if seq is None:
            raise NotFoundError(f"no memory '{id}' in collection {collection.full_name}")
        return seq

    def _list(
        self,
        connection: Connection,
        asked: Select[Any],
        as_of: tuple[int, float] | None = None,
    ) -> list[MemoryRecord]:
        return self._records(connection, connection.execute(asked).all(), as_of)

    def _records(
        self,
        connection: Connection,
        rows: Sequence[Row[Any]],
        as_of: tuple[int, float] | None = None,
    ) -> list[MemoryRecord]:
        ids = {row.collection_id for row in rows}
        named = select(collections).where(collections.c.id.in_(ids))
        names = {row.id: row.name for row in connection.execute(named)} if ids else {}
        return read_memory_records(connection, names, rows, as_of)

    def _search(self, connection: Connection, query: MemoryQuery) -> list[MemoryMatch]:
        found = self._collection(connection, query.collection)
        held = choose_held(connection, found, query.version, query.time, query.least_trust)
        index = search_of(connection)
        near: Sequence[tuple[int, float]] = ()
        if query.embedding is not None:
            if fault := find_vector_fault(query.embedding, found.dimension):
                raise InputError(f"collection {found.full_name}: the search: {fault}")
            near = index.find_near(connection, found, held, query.embedding, query.limit)
        worded: Sequence[int] = ()
        if query.text.strip():
            worded = index.find_words(connection, found, held, query.text, query.limit)
        dense = {seq: (rank, cosine) for rank, (seq, cosine) in enumerate(near, 1)}
        keyword = {seq: rank for rank, seq in enumerate(worded, 1)}
        rows = read_rows(connection, dict.fromkeys([*dense, *keyword]))
        as_of = _as_of(connection, found, query)
        records = read_memory_records(connection, {found.id: found.name}, rows, as_of)
        others = [seq for seq in keyword if seq not in dense]
        cosines = {seq: cosine for seq, (_, cosine) in dense.items()}
        if query.embedding is not None:
            cosines |= read_cosines(connection, others, query.embedding)
        return [
            MemoryMatch(
                record,
                dense[row.seq][0] if row.seq in dense else None,
                keyword.get(row.seq),
                cosines.get(row.seq),
            )
            for row, record in zip(rows, records, strict=True)
        ]

    def _associate(
        self, connection: Connection, query: MemoryQuery, starts: tuple[str, ...], hops: int
    ) -> list[MemoryRecord]:
        found = self._collection(connection, query.collection)
        held = choose_held(connection, found, query.version, query.time, query.least_trust)
        own = and_(memories.c.collection_id == found.id, holds(held))
        first = select(memories.c.seq.label("seq"), literal(0).label("hop")).where(
            own, memories.c.id.in_(starts[:32])
        )
        reached = first.cte("reached", recursive=True)
        of, shared = mentions.alias(), mentions.alias()
        step = (
            select(memories.c.seq, reached.c.hop + 1)
            .select_from(reached)
            .join(of, of.c.seq == reached.c.seq)
            .join(shared, and_(shared.c.collection_id == found.id, shared.c.entity == of.c.entity))
            .join(memories, memories.c.seq == shared.c.seq)
            .where(own, reached.c.hop < hops)
        )
        reached = reached.union(step)
        nearest = (
            select(reached.c.seq, func.min(reached.c.hop).label("hop"))
            .group_by(reached.c.seq)
            .having(func.min(reached.c.hop) > 0)
            .subquery()
        )
        asked = (
            select(memories)
            .join(nearest, nearest.c.seq == memories.c.seq)
            .order_by(nearest.c.hop, memories.c.seq)
            .limit(query.limit)
        )
        return self._list(connection, asked, _as_of(connection, found, query))

    def _known(self, connection: Connection, ids: Sequence[str]) -> dict[str, Row[Any]]:
        namespace_id = read_namespace_id(connection, self.namespace)
        return {
            row.id: row
            for chunk in chunks(ids)
            for row in connection.execute(
                select(memories).where(
                    memories.c.namespace_id == namespace_id, memories.c.id.in_(chunk)
                )
            )
        }

    def _rows(self, connection: Connection, ids: Sequence[str]) -> list[Row[Any]]:
        found = self._known(connection, ids)
        for id in ids:
            if id not in found:
                raise NotFoundError(f"no memory '{id}' in the namespace '{self.namespace}'")
        return [found[id] for id in ids]

    def _get(self, connection: Connection, ids: Sequence[str]) -> list[MemoryRecord]:
        return self._records(connection, self._rows(connection, ids))

    def _history(self, connection: Connection, id: str) -> list[MemoryRecord]:
        (row,) = self._rows(connection, [id])
        chain = (select(literal(row.id).label("id"), literal(row.superseded_by).label("by"))).cte(
            "chain", recursive=True
        )
        near = or_(
            memories.c.superseded_by == chain.c.id,
            memories.c.id == chain.c.by,
        )
        step = select(memories.c.id, memories.c.superseded_by).join(chain, near)
        chain = chain.union(step)
        asked = select(memories).where(memories.c.id.in_(select(chain.c.id)))
        return self._list(connection, asked.order_by(memories.c.seq))

    def _apply(
        self,
        connection: Connection,
        name: str,
        changes: Sequence[Change],
        source: ChangeSource | None,
    ) -> Applied:
        found = self._collection(connection, name)
        if source is not None and (known := read_applied(connection, found, source.key)):
            return replace(known, repeated=True)
        check_changes(found, changes)
        namespace_id = read_namespace_id(connection, self.namespace)
        # A clock that was set back must not make versions go back.
        now = max(time(), found.changed)
        writing = Transaction(
            connection, search_of(connection), namespace_id, found, found.version + 1, now
        )
        return writing.apply(changes, source)

    def _use(self, connection: Connection, ids: Sequence[str], when: float) -> None:
        rows = self._rows(connection, ids)
        if not rows:
            return
        connection.execute(insert(uses), [{"seq": row.seq, "time": when} for row in rows])
        for row in rows:
            last = when if row.last_used is None else max(when, row.last_used)
            change = update(memories).where(memories.c.seq == row.seq)
            connection.execute(change.values(last_used=last, times_used=row.times_used + 1))


def _as_of(
    connection: Connection, collection: Collection, query: MemoryQuery
) -> tuple[int, float] | None:
    """The version that is asked for, and its time."""
    if query.version is None:
        return None
    return query.version, read_version_time(connection, collection, query.version)


def list_source_labels(
    connection: Connection, collection: Collection, prefix: str
) -> list[tuple[str, int]]:
    """The labels that begin so of what a collection took in, newest first, each with the version of
    the collection that it made."""
    asked = (
        select(sources.c.label, sources.c.version)
        .where(
            sources.c.collection_id == collection.id,
            sources.c.label.startswith(prefix, autoescape=True),
        )
        .order_by(sources.c.created.desc(), sources.c.version.desc())
    )
    return [(row.label, row.version) for row in connection.execute(asked)]
