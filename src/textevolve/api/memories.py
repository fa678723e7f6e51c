"""The memories of one collection in Python: add, import, search, list, re-embed and forget them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from textevolve.desk.memories import MemoryDesk
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
from textevolve.studies.memories.base import stream_memories

AT_ONCE = 128
"""The number of memories that are embedded and stored together when many are added."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of adding many memories. `added`: how many were stored; `known`: how many were
    skipped, because the collection had them already."""

    added: int = 0
    known: int = 0


class AsyncMemories:
    """The memories of one collection, with async methods. Every method may raise InputError if the
    collection or a memory does not exist, and StoreError; methods that embed texts may also raise
    SettingsError and ModelError."""

    def __init__(self, desk: MemoryDesk, name: str) -> None:
        self._desk, self.name = desk, name

    async def collection(self) -> Collection:
        return await self._desk.memories.collection(self.name)

    async def add(self, text: str, **fields: Any) -> MemoryRecord:
        """Store a memory, and return it. `fields`: those of `MemorySpec`, such as importance,
        source or valid_from."""
        spec = MemorySpec(text=text, **fields)
        vector = await self._desk.embed(await self.collection(), spec.text)
        store = self._desk.memories
        applied = await store.apply(self.name, [Add(spec.embedded(vector))])
        return (await store.get(applied.ids))[0]

    async def add_all(self, memories: Iterable[MemorySpec], *, label: str = "Python") -> Imported:
        """Store many memories, in batches. Memories that the collection has, or once had, are
        skipped, so that a repeated call adds nothing. `label`: their origin. If the call ends
        early, the finished batches stay stored."""
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
        """Store a batch of memories, and return their number; 0 if the same batch was stored
        before, also by another process meanwhile."""
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
        """Find memories relevant to a text, best first, each with the components of its score.
        `as_of`: search the memories that were valid at this time; None: those valid now.
        `settings`: fields of `RecallSettings`, such as limit or min_score."""
        fields: dict[str, Any] = {**settings, "collections": (self.name,)}
        wanted = RecallSettings(**fields)
        return await recall_memories(
            self._desk.memories, self._desk.embed, wanted, query, now=_time(as_of)
        )

    async def get(self, *ids: str) -> Sequence[MemoryRecord]:
        """Return the memories with these ids; NotFoundError is raised if one is in another
        collection."""
        return [self._own(one) for one in await self._desk.memories.get(ids)]

    async def history(self, id: str) -> Sequence[MemoryRecord]:
        """Return a memory together with its earlier and later versions, oldest first: the memories
        that it replaced, and the memories that replaced it."""
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
        """List memories in the order in which they were stored, from the one after the memory with
        the id `after`. `closed`: include memories that are no longer valid. `version`: list this
        version of the collection."""
        store = self._desk.memories
        return await store.page(self.name, after=after, limit=limit, closed=closed, version=version)

    def stream(
        self, *, closed: bool = False, version: int | None = None
    ) -> AsyncGenerator[MemoryRecord]:
        """Yield all memories in the order in which they were stored. `closed`: include memories
        that are no longer valid. `version`: read this version of the collection."""
        return stream_memories(self._desk.memories, self.name, version, closed=closed)

    async def forget(self, *ids: str, erase: bool = False) -> None:
        """Close memories: searches no longer find them, but the history keeps them. `erase`: also
        delete their texts, from the journal, runs and chats, too."""
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
        """Embed all memories of the collection with another embedder. The new vectors replace the
        old ones only when all are complete. `dimension`: of the vectors; None: measure it.

        Raises:
            ConflictError: somebody changed the collection meanwhile.
        """
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
            raise NotFoundError(
                f"no memory '{memory.id}' in the collection '{self.name}': another collection has"
                " it"
            )
        return memory


def _time(given: str | float | None) -> float | None:
    try:
        return take_time(given)
    except ValueError as error:
        raise InputError(f"as_of: {error}") from None
