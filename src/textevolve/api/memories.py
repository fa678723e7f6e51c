"""The memories of one collection in Python: kept, found, looked at and forgotten."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from textevolve.errors import InputError, NotFoundError
from textevolve.memory.memory_spec import MemorySpec, digest_of, digests_of, take_time
from textevolve.memory.recall import Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import (
    Add,
    ChangeSource,
    Collection,
    Entity,
    Forget,
    MemoryRecord,
    Vector,
)
from textevolve.studies.memory_desk import MemoryDesk
from textevolve.studies.memory_work import stream_memories

AT_ONCE = 128
"""How many memories of a file are embedded and kept together."""


@dataclass(frozen=True, slots=True)
class Imported:
    """How many memories of a file were kept, and how many were there before."""

    added: int = 0
    known: int = 0


class AsyncMemories:
    """A collection of a namespace. Every method may raise InputError where there is no such
    collection or memory, and StoreError; where texts are embedded, SettingsError and ModelError."""

    def __init__(self, desk: MemoryDesk, name: str) -> None:
        self._desk, self.name = desk, name

    async def collection(self) -> Collection:
        return await self._desk.memories.collection(self.name)

    async def add(self, text: str, **fields: Any) -> MemoryRecord:
        """Keep a memory; `fields` are those of `MemorySpec`, such as importance, source or
        valid_from."""
        spec = MemorySpec(text=text, **fields)
        vector = await self._desk.embed(await self.collection(), spec.text)
        store = self._desk.memories
        applied = await store.apply(self.name, [Add(spec.embedded(vector))])
        return (await store.get(applied.ids))[0]

    async def add_all(self, memories: Iterable[MemorySpec], *, label: str = "Python") -> Imported:
        """Keep many, batch by batch. What the collection has, or had, already is left out, so that
        the same again adds nothing. `label`: where they are from. What was kept stays kept where
        this ends early."""
        collection = await self.collection()
        known = {each async for one in self.stream(closed=True) for each in digests_of(one)}
        done, rest = Imported(), iter(memories)
        while batch := list(islice(rest, AT_ONCE)):
            new: dict[bytes, MemorySpec] = {}
            for spec in batch:
                if (own := digest_of(spec)) not in known:
                    new.setdefault(own, spec)
            added = await self._keep(collection, new, label) if new else 0
            known |= new.keys()
            done = Imported(done.added + added, done.known + len(batch) - added)
        return done

    async def _keep(
        self, collection: Collection, new: Mapping[bytes, MemorySpec], label: str
    ) -> int:
        """Keep a batch; how many were added. One that was kept before, also by somebody else
        meanwhile, adds nothing."""
        specs = list(new.values())
        vectors = await self._desk.embed_all(collection, [spec.text for spec in specs])
        changes = [Add(spec.embedded(vector)) for spec, vector in zip(specs, vectors, strict=True)]
        key = hashlib.sha256(b"".join(new)).hexdigest()
        source = ChangeSource(f"import {key}", label)
        applied = await self._desk.memories.apply(self.name, changes, source)
        return 0 if applied.repeated else len(specs)

    async def search(
        self, query: str, *, as_of: str | float | None = None, **settings: Any
    ) -> Recalled:
        """Find memories relevant to a text, best first, with the parts of each score. `as_of`: as
        it held at that time. `settings`: fields of `RecallSettings`, such as limit or min_score."""
        fields: dict[str, Any] = {**settings, "collections": (self.name,)}
        wanted = RecallSettings(**fields)
        return await recall_memories(
            self._desk.memories, self._desk.embed, wanted, query, now=_time(as_of)
        )

    async def get(self, *ids: str) -> Sequence[MemoryRecord]:
        """The memories with these ids."""
        return [self._own(one) for one in await self._desk.memories.get(ids)]

    async def history(self, id: str) -> Sequence[MemoryRecord]:
        """A memory with what it took the place of, and what took its own, oldest first."""
        return [self._own(one) for one in await self._desk.memories.history(id)]

    async def graph(self) -> Sequence[Entity]:
        """Return the entities that the current memories mention, the most frequent first."""
        return await self._desk.memories.graph(self.name)

    async def list(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        closed: bool = False,
        version: int | None = None,
    ) -> Sequence[MemoryRecord]:
        """List memories in the order in which they were stored, after the memory with the id
        `after`. `closed`: include memories that are no longer valid. `version`: as of this version
        of the collection."""
        store = self._desk.memories
        return await store.page(self.name, after=after, limit=limit, closed=closed, version=version)

    def stream(
        self, *, closed: bool = False, version: int | None = None
    ) -> AsyncGenerator[MemoryRecord]:
        """All memories in the order in which they were kept, as many as there are."""
        return stream_memories(self._desk.memories, self.name, version, closed=closed)

    async def forget(self, *ids: str, erase: bool = False) -> None:
        """Close memories: they are found no more, and stay in the history. `erase`: their texts are
        deleted, too, from the journal and from what runs and chats kept."""
        texts = [one.text for one in await self.get(*ids) if erase and one.text]
        changes = [Forget(id, erase) for id in dict.fromkeys(ids)]
        async with self._desk.erasing(texts):
            await self._desk.memories.apply(self.name, changes)

    async def re_embed(
        self,
        embedder: str,
        *,
        dimension: int | None = None,
    ) -> Collection:
        """Move the collection to another embedder: all its memories are embedded anew, and nothing
        changes until all are. ConflictError: somebody changed it meanwhile."""
        collection = await self.collection()
        embedder, numbers = await self._desk.settle(embedder, dimension)
        moved = replace(collection, embedder=embedder, dimension=numbers)
        texts = {one.id: one.text async for one in self.stream(closed=True) if one.text}
        vectors: dict[str, Vector] = {}
        rest = iter(texts)
        while batch := list(islice(rest, AT_ONCE)):
            found = await self._desk.embed_all(moved, [texts[id] for id in batch])
            vectors |= zip(batch, found, strict=True)
        return await self._desk.memories.replace_embeddings(
            self.name, collection.version, moved.embedder, moved.dimension, vectors
        )

    def _own(self, memory: MemoryRecord) -> MemoryRecord:
        if memory.collection != self.name:
            raise NotFoundError(f"no memory '{memory.id}' in the collection '{self.name}'")
        return memory


def _time(given: str | float | None) -> float | None:
    try:
        return take_time(given)
    except ValueError as error:
        raise InputError(f"as_of: {error}") from None
