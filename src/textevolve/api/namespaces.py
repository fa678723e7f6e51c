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

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeAlias

from textevolve.agents.resources import (
    AgentSpec,
    NamespaceSpec,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    UserSpec,
)
from textevolve.api.memories import AsyncMemories
from textevolve.api.resources import AsyncCollections, AsyncResources
from textevolve.desk.memories import MemoryDesk
from textevolve.engine.sync import KeptOpen, StaysOpen, SyncView, waited
from textevolve.memory.record import MemoryRecord
from textevolve.store import kinds


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

    async def find_memories(self, *ids: str) -> Sequence[MemoryRecord]:
        """Return memories by their ids, from any collections of the namespace.

        Raises:
            InputError: a memory is not in this namespace.
        """
        return await self._desk.memories.get(ids)


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
    list = waited(AsyncMemories.list)
    forget = waited(AsyncMemories.forget)
    re_embed = waited(AsyncMemories.re_embed)


OpenSpace: TypeAlias = Callable[[], AbstractAsyncContextManager[AsyncNamespace]]


class Namespace(StaysOpen, SyncView[AsyncNamespace]):
    """A namespace, with the methods of `AsyncNamespace` as blocking methods. It opens with its
    `with` block or when it is first used."""

    def __init__(self, name: str, open_space: OpenSpace) -> None:
        kept = KeptOpen[AsyncNamespace](
            lambda stack: stack.enter_async_context(open_space()), "the namespace is closed"
        )
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
