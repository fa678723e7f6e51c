"""A namespace (an isolated workspace) in Python: its agents, collections, users and memories.

    with client.namespace("acme", create=True) as space:
        space.collections.create("notes")
        notes = space.memories("notes")
        notes.add("Ann drinks green tea.")
        notes.search("What does Ann drink?")

Each plain class, such as `Namespace`, has the methods of an async class, and waits for their
results.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import time
from typing import Any, Generic, Self, TypeAlias, TypeVar

from textevolve.agents.resources import (
    AgentSpec,
    CollectionSpec,
    NamespaceSpec,
    SpecVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    UserSpec,
)
from textevolve.desk.exchange import export_lines, import_content, read_content
from textevolve.desk.memories import MemoryDesk, SourceMessage
from textevolve.engine.sync import KeptOpen, StaysOpen, SyncView, waited
from textevolve.errors import ConflictError, InputError, NotFoundError
from textevolve.json_texts import write_text
from textevolve.memory.audit import NEIGHBOURS, AuditFinding, audit_memory
from textevolve.memory.ranking import token_vectors, with_tokens
from textevolve.memory.recall import Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import (
    Add,
    Change,
    ChangeSource,
    Collection,
    Entity,
    Forget,
    MemoryQuery,
    MemoryRecord,
    MemorySpec,
    TokenVectors,
    Vector,
    digest_of,
    digests_of,
    stream_memories,
    take_time,
)
from textevolve.report.files import open_target
from textevolve.spec import Frozen, suggest
from textevolve.store import kinds
from textevolve.store.kinds import Kind
from textevolve.store.resource_rows import NameRange

# The memories of one collection in Python: add, import, search, list, re-embed and forget them.

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
        self._desk = desk
        self.name = name

    async def collection(self) -> Collection:
        return await self._desk.memories.collection(self.name)

    async def add(self, text: str, **fields: Any) -> MemoryRecord:
        """Store a memory, and return it. `fields`: those of `MemorySpec`, such as importance,
        source or valid_from."""
        spec = MemorySpec(text=text, **fields)
        store = self._desk.memories
        applied = await store.apply(self.name, await self._embed([spec]))
        return (await store.get(applied.ids))[0]

    async def add_all(self, memories: Iterable[MemorySpec], *, label: str = "Python") -> Imported:
        """Store many memories, in batches. Memories that the collection has, or once had, are
        skipped, so that a repeated call adds nothing. `label`: their origin. If the call ends
        early, the finished batches stay stored."""
        await self.collection()
        known: dict[bytes, str] = {}
        done = Imported()
        remaining_memories = iter(memories)

        while batch := list(islice(remaining_memories, AT_ONCE)):
            await self._read_on(known)
            new: dict[bytes, MemorySpec] = {}
            for spec in batch:
                if (digest := digest_of(spec)) not in known:
                    new.setdefault(digest, spec)
            added = await self._keep(new, known, label) if new else 0
            done = Imported(done.added + added, done.known + len(batch) - added)

        return done

    async def _read_on(self, known: dict[bytes, str]) -> int:
        """Add the memories that were stored since the last call to `known`, the ids of memories by
        digest. Return a version of the collection after which all others were stored."""
        collection = await self.collection()
        last = next(reversed(known.values()), None)
        newer = stream_memories(self._desk.memories, self.name, after=last, closed=True)
        async for memory in newer:
            known |= dict.fromkeys(digests_of(memory), memory.id)

        return collection.version

    async def _embed(self, specs: Sequence[MemorySpec]) -> Sequence[Change]:
        collection = await self.collection()
        vectors = await self._desk.embed_all(collection, [spec.text for spec in specs])
        additions = [
            Add(spec.embedded(vector)) for spec, vector in zip(specs, vectors, strict=True)
        ]
        return await with_tokens(self._desk.embed, collection, additions)

    async def _keep(
        self, new: Mapping[bytes, MemorySpec], known: dict[bytes, str], label: str
    ) -> int:
        """Store a batch of memories without those that another process has stored meanwhile, and
        return their number."""
        changes = dict(zip(new, await self._embed([*new.values()]), strict=True))

        while changes:
            version = await self._read_on(known)
            changes = {digest: changes[digest] for digest in changes if digest not in known}
            key = hashlib.sha256(b"".join(changes)).hexdigest()
            source = ChangeSource(f"import {key}", label, base=version)
            with suppress(ConflictError):  # the collection has changed once more
                applied = await self._desk.memories.apply(self.name, [*changes.values()], source)
                return 0 if applied.repeated else len(changes)

        return 0

    async def search(
        self, query: str, *, as_of: str | float | None = None, **settings: Any
    ) -> Recalled:
        """Find memories relevant to a text, best first, each with the components of its score.
        `as_of`: search the memories that were valid at this time; None: those valid now.
        `settings`: fields of `RecallSettings`, such as limit or min_score. The memories of all
        users are searched, unless `scope` is `user`."""
        fields: dict[str, Any] = {"scope": "agent", **settings, "collections": (self.name,)}
        recall_settings = RecallSettings(**fields)
        return await recall_memories(
            self._desk.memories, self._desk.embed, recall_settings, query, now=_time(as_of)
        )

    async def get(self, *ids: str) -> Sequence[MemoryRecord]:
        """Return the memories with these ids; NotFoundError is raised if one is in another
        collection."""
        return list(map(self._own, await self._desk.memories.get(ids)))

    async def history(self, id: str) -> Sequence[MemoryRecord]:
        """Return a memory together with its earlier and later versions, oldest first: the memories
        that it replaced, and the memories that replaced it."""
        return list(map(self._own, await self._desk.memories.history(id)))

    async def graph(self) -> Sequence[Entity]:
        """Return the entities that the current memories mention, the most frequent first."""
        return await self._desk.memories.graph(self.name)

    async def audit(self) -> Sequence[AuditFinding]:
        """Return the current memories that a person should look at, each with the reason:
        duplicates, other values, texts that are not understood alone, little trust, no use, and
        insights from memories that were superseded or forgotten."""
        collection = await self.collection()
        memories = [memory async for memory in self.stream()]
        vectors = await self._desk.embed_all(collection, [memory.text for memory in memories])
        recalls = any(memory.times_used for memory in memories)
        cited = await self._desk.memories.find([id for each in memories for id in each.cites])
        closed = {source.id: source for source in cited if source.closed}
        findings: list[AuditFinding] = []

        for memory, vector in zip(memories, vectors, strict=True):
            query = MemoryQuery(collection=self.name, embedding=vector, limit=NEIGHBOURS)
            matches = await self._desk.memories.search(query)
            near = [match for match in matches if match.memory.id != memory.id]
            findings += audit_memory(memory, near, recalls=recalls, now=time())
            for id in filter(closed.get, memory.cites):
                findings.append(AuditFinding(memory, "rests on a closed one", closed[id]))

        return findings

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

    async def forget(
        self, *ids: str, erase: bool = False, with_source: bool = False
    ) -> Sequence[SourceMessage]:
        """Close memories: searches no longer find them, but the history keeps them. `erase`: also
        delete their texts, from the journal, runs and chats, too. `with_source`: and the messages
        of stored chats from which they were made. Return those that stay after an erasure."""
        if with_source and not erase:
            raise InputError("a source can only be erased together with its memories: use erase")
        memories = {memory.id: memory for memory in await self.get(*ids)}
        sources = await self._desk.find_sources(memories.values()) if erase else []
        if with_source:
            await self._desk.erase_messages(sources)
            sources = [source for source in sources if source.position is None]
        texts = [memory.text for memory in memories.values() if erase and memory.text]
        changes = [Forget(id, erase) for id in memories]
        async with self._desk.erasing(texts):
            await self._desk.memories.apply(self.name, changes)

        return sources

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
        texts = {memory.id: memory.text async for memory in self.stream(closed=True) if memory.text}
        vectors: dict[str, Vector] = {}
        tokens: dict[str, TokenVectors] = {}
        waiting_ids = iter(texts)
        while batch := list(islice(waiting_ids, AT_ONCE)):
            batch_texts = [texts[id] for id in batch]
            new_vectors = await self._desk.embed_all(moved, batch_texts)
            vectors |= zip(batch, new_vectors, strict=True)
            new_tokens = await token_vectors(self._desk.embed, moved, batch_texts)
            tokens |= zip(batch, new_tokens, strict=bool(new_tokens))

        return await self._desk.memories.replace_embeddings(
            self.name, collection.version, moved.embedder, moved.dimension, vectors, tokens
        )

    def _own(self, memory: MemoryRecord) -> MemoryRecord:
        if memory.collection != self.name:
            raise NotFoundError(
                f"no memory '{memory.id}' in the collection '{self.name}': another collection has"
                " it"
            )

        return memory


def _time(moment: str | float | None) -> float | None:
    try:
        return take_time(moment)
    except ValueError as error:
        raise InputError(f"as_of: {error}") from None


# Namespaces, agents, collections and users in Python. One class manages all four, since all are
# created, listed, changed and deleted in the same way.

S = TypeVar("S", bound=Frozen)
R = TypeVar("R")
T = TypeVar("T")


class AsyncResources(Generic[S, R]):
    """The agents, collections, users or namespaces of a store, called resources, with async
    methods. The keyword arguments `fields` are the fields of the resource's specification. Every
    method may raise StoreError, and InputError if a name is unknown or a field is invalid."""

    def __init__(self, desk: MemoryDesk, kind: Kind[S, R]) -> None:
        self._desk = desk
        self._kind = kind

    async def create(self, name: str, **fields: Any) -> R:
        """Create a resource, and return it.

        Raises:
            InputError: the name is taken, or a field cannot be used.
        """
        spec = self._kind.spec(**{"name": name, **fields})
        return await self._write(kinds.create, await self._settle(spec))

    async def get(self, name: str) -> R:
        return await self._read(kinds.get, name)

    async def list(self, *, limit: int | None = None, after: str = "") -> Sequence[R]:
        """List resources sorted by name: at most `limit`, from the first name behind `after`."""
        return await self._read(kinds.list_all, NameRange(after, limit))

    async def update(self, name: str, **fields: Any) -> R:
        """Change these fields of a resource, and return it. Fields that contain fields themselves,
        such as `memory`, are merged."""
        for field in fields:
            if field not in self._kind.spec.model_fields:
                known_names = tuple(self._kind.spec.model_fields)
                raise InputError(f"unknown field '{field}'{suggest(field, known_names)}")

        return await self._write(kinds.update, name, fields)

    async def versions(self, name: str) -> Sequence[SpecVersion]:
        """List the versions of a resource's specification, oldest first."""
        return await self._read(kinds.list_versions, name)

    async def revert(self, name: str, version: int) -> R:
        """Store the content of an earlier version as a new version. Fields that cannot change
        stay."""
        return await self._write(kinds.revert, name, version)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a resource with everything that belongs to it. The texts of its memories are also
        erased from the journal, stored runs and chats. `force`: delete it even if agents refer to
        it."""
        if not force:
            await self._read(kinds.require_unnamed, name)
        async with self._desk.erasing(await self._read(kinds.list_memory_texts, name)):
            await self._write(partial(kinds.delete, force=force), name)

    async def export(self, name: str, path: str | Path) -> int:
        """Write a resource with everything that belongs to it to a file, and return the number of
        lines. Embeddings are left out, since they can be computed again."""
        number = 0
        with open_target(path) as target:
            async for line in export_lines(self._desk, self._kind, name):
                number += 1
                target.write(write_text(line).encode() + b"\n")

        return number

    async def import_file(self, path: str | Path, *, name: str | None = None) -> None:
        """Import the content of an exported file, in one transaction. `name`: the resource's new
        name in this namespace; None: the exported name."""
        content = await asyncio.to_thread(read_content, str(path), self._kind)
        await import_content(self._desk, content, name=name)

    async def _settle(self, spec: S) -> S:
        return spec

    async def _read(self, query: Callable[..., T], *args: Any) -> T:
        desk = self._desk
        return await asyncio.to_thread(
            desk.resources.read, query, self._kind, desk.namespace, *args
        )

    async def _write(self, change: Callable[..., T], *args: Any) -> T:
        desk = self._desk
        return await asyncio.to_thread(
            desk.resources.write, change, self._kind, desk.namespace, *args
        )


class AsyncCollections(AsyncResources[CollectionSpec, Collection]):
    """The collections of a namespace. For a new collection without a dimension the embedder is
    called once to measure it."""

    async def count(self) -> Mapping[str, int]:
        """Return the current number of memories in each collection, by its name."""
        desk = self._desk
        return await asyncio.to_thread(desk.resources.read, kinds.count_memories, desk.namespace)

    async def _settle(self, spec: CollectionSpec) -> CollectionSpec:
        if any(each.name == spec.name for each in await self.list()):
            return spec  # the store refuses it, so the embedder is not asked
        embedder, dimension = await self._desk.settle(spec.embedder, spec.dimension)
        return spec.model_copy(update={"embedder": embedder, "dimension": dimension})


class AsyncNamespace:
    """A namespace, whose `agents`, `collections` and `users` are managed by the attributes of these
    names. Its methods reach no other namespace; only `namespaces` manages all namespaces of the
    store."""

    def __init__(self, desk: MemoryDesk) -> None:
        self._desk = desk
        self.name = desk.namespace
        self.agents = AsyncResources[AgentSpec, StoredAgent](desk, kinds.AGENTS)
        self.collections = AsyncCollections(desk, kinds.COLLECTIONS)
        self.users = AsyncResources[UserSpec, StoredUser](desk, kinds.USERS)
        self.namespaces = AsyncResources[NamespaceSpec, StoredNamespace](desk, kinds.NAMESPACES)

    def memories(self, collection: str) -> AsyncMemories:
        """Return the memories of a collection of this namespace. The first use raises InputError if
        the collection does not exist."""
        return AsyncMemories(self._desk, collection)

    async def find_memories(self, *ids: str, user: str = "") -> Sequence[MemoryRecord]:
        """Return memories by their ids, and all of a user's, closed ones included, from any
        collections of the namespace.

        Raises:
            InputError: a memory is not in this namespace.
        """
        memories = list(await self._desk.memories.get(ids))
        owned = await self._desk.memories.of_user(user) if user else ()

        return [*memories, *(memory for memory in owned if memory.id not in ids)]


class Resources(SyncView[AsyncResources[Any, Any]]):
    """The agents, users or namespaces, with the methods of `AsyncResources` as blocking methods."""

    create = waited(AsyncResources[Any, Any].create)
    get = waited(AsyncResources[Any, Any].get)
    list = waited(AsyncResources[Any, Any].list)
    update = waited(AsyncResources[Any, Any].update)
    versions = waited(AsyncResources[Any, Any].versions)
    revert = waited(AsyncResources[Any, Any].revert)
    delete = waited(AsyncResources[Any, Any].delete)
    export = waited(AsyncResources[Any, Any].export)
    import_file = waited(AsyncResources[Any, Any].import_file)


class Collections(Resources):
    """The collections of memories, with the methods of `AsyncCollections` as blocking methods."""

    count = waited(AsyncCollections.count)


class Memories(SyncView[AsyncMemories]):
    """The memories of a collection, with the methods of `AsyncMemories` as blocking methods."""

    collection = waited(AsyncMemories.collection)
    add = waited(AsyncMemories.add)
    add_all = waited(AsyncMemories.add_all)
    search = waited(AsyncMemories.search)
    get = waited(AsyncMemories.get)
    history = waited(AsyncMemories.history)
    graph = waited(AsyncMemories.graph)
    audit = waited(AsyncMemories.audit)
    list = waited(AsyncMemories.list)
    forget = waited(AsyncMemories.forget)
    re_embed = waited(AsyncMemories.re_embed)


OpenSpace: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncNamespace]]


class Namespace(StaysOpen, SyncView[AsyncNamespace]):
    """A namespace, with the methods of `AsyncNamespace` as blocking methods. It opens with its
    `with` block or when it is first used."""

    def __init__(self, name: str, open_space: OpenSpace) -> None:
        kept = KeptOpen(open_space, "the namespace is closed")
        super().__init__(kept, lambda space: space)
        self.name = name
        self.agents = Resources(kept, lambda space: space.agents)
        self.collections = Collections(kept, lambda space: space.collections)
        self.users = Resources(kept, lambda space: space.users)
        self.namespaces = Resources(kept, lambda space: space.namespaces)

    find_memories = waited(AsyncNamespace.find_memories)

    def memories(self, collection: str) -> Memories:
        """Return the memories of a collection of this namespace. The first use raises InputError if
        the collection does not exist."""
        return Memories(self.resource, lambda space: space.memories(collection))

    def __enter__(self) -> Self:
        self.find_memories()
        return self
