"""A namespace in Python: its agents, collections, users and memories.

    with open_namespace("acme", create=True) as space:
        space.collections.create("notes")
        notes = space.memories("notes")
        notes.add("Ann drinks green tea.")
        notes.search("What does Ann drink?")

The classes that wait are made from those that are awaited.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

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
from textevolve.engine.sync import BackgroundLoop, Waiting, waited
from textevolve.events import Listener, silence
from textevolve.memory.record import MemoryRecord
from textevolve.settings import Settings, read_settings, store_location
from textevolve.store import kinds
from textevolve.store.erasure import Losses
from textevolve.studies.memory_desk import MemoryDesk, open_desk
from textevolve.wiring import Limits, take_limits


class AsyncNamespace:
    """What belongs to one namespace; nothing here finds anything of another one. `namespaces`: all
    namespaces of the store."""

    def __init__(self, desk: MemoryDesk) -> None:
        self._desk = desk
        self.name = desk.namespace
        self.agents = AsyncResources[AgentSpec, StoredAgent](desk, kinds.AGENTS)
        self.collections = AsyncCollections(desk, kinds.COLLECTIONS)
        self.users = AsyncResources[UserSpec, StoredUser](desk, kinds.USERS)
        self.namespaces = AsyncResources[NamespaceSpec, StoredNamespace](desk, kinds.NAMESPACES)

    def memories(self, collection: str) -> AsyncMemories:
        """The memories of a collection; whether it is there is found out with the first use."""
        return AsyncMemories(self._desk, collection)

    async def find_memories(self, *ids: str) -> Sequence[MemoryRecord]:
        """Memories by their ids, in whichever collections they are.

        Raises:
            InputError: one of them is not in this namespace.
        """
        return await self._desk.memories.get(ids)

    async def find_losses(self, *ids: str) -> Losses:
        """What runs and chats would lose if these memories were erased."""
        return await self._desk.find_losses([one.text for one in await self.find_memories(*ids)])


@asynccontextmanager
async def aopen_namespace(
    name: str | None = None,
    *,
    create: bool = False,
    store: str | Path | None = None,
    settings: Settings | None = None,
    limits: Limits | None = None,
    listener: Listener = silence,
    source: str = "Python",
) -> AsyncGenerator[AsyncNamespace]:
    """Open a namespace, that of the settings unless another one is named.

    `create`: make it where it is missing. `store`: the file that keeps memories and what is asked
    for them. `limits`: of what embeddings may take. `source`: who works, as `runs list` shows it.

    Raises:
        InputError: there is no such namespace. StoreError: the store cannot be used.
    """
    found = settings or read_settings()[0]
    if store is not None:
        found = found.model_copy(update={"store": store_location(store)})
    opened = open_desk(
        found, name, create=create, source=source, limits=take_limits(limits), listener=listener
    )
    async with opened as desk:
        yield AsyncNamespace(desk)


class Resources(Waiting[AsyncResources[Any, Any]]):
    """`AsyncResources`, waited for: agents, users, or namespaces."""

    create = waited(AsyncResources[Any, Any].create)
    get = waited(AsyncResources[Any, Any].get)
    list = waited(AsyncResources[Any, Any].list)
    update = waited(AsyncResources[Any, Any].update)
    versions = waited(AsyncResources[Any, Any].versions)
    revert = waited(AsyncResources[Any, Any].revert)
    delete = waited(AsyncResources[Any, Any].delete)
    find_losses = waited(AsyncResources[Any, Any].find_losses)
    export = waited(AsyncResources[Any, Any].export)
    import_file = waited(AsyncResources[Any, Any].import_file)


class Collections(Resources):
    """`AsyncCollections`, waited for."""

    count = waited(AsyncCollections.count)


class Memories(Waiting[AsyncMemories]):
    """`AsyncMemories`, waited for."""

    collection = waited(AsyncMemories.collection)
    add = waited(AsyncMemories.add)
    add_all = waited(AsyncMemories.add_all)
    search = waited(AsyncMemories.search)
    get = waited(AsyncMemories.get)
    history = waited(AsyncMemories.history)
    list = waited(AsyncMemories.list)
    forget = waited(AsyncMemories.forget)
    re_embed = waited(AsyncMemories.re_embed)


class Namespace(Waiting[AsyncNamespace]):
    """`AsyncNamespace`, whose methods are waited for."""

    def __init__(self, inner: AsyncNamespace, loop: BackgroundLoop) -> None:
        super().__init__(inner, loop)
        self.name = inner.name
        self.agents = Resources(inner.agents, loop)
        self.collections = Collections(inner.collections, loop)
        self.users = Resources(inner.users, loop)
        self.namespaces = Resources(inner.namespaces, loop)

    find_memories = waited(AsyncNamespace.find_memories)
    find_losses = waited(AsyncNamespace.find_losses)

    def memories(self, collection: str) -> Memories:
        """The memories of a collection; whether it is there is found out with the first use."""
        return Memories(self._inner.memories(collection), self._loop)


@contextmanager
def open_namespace(
    name: str | None = None,
    *,
    create: bool = False,
    store: str | Path | None = None,
    settings: Settings | None = None,
    limits: Limits | None = None,
    listener: Listener = silence,
    source: str = "Python",
) -> Generator[Namespace]:
    """`aopen_namespace`, for plain code; also where an event loop runs, as in a notebook."""
    opened = aopen_namespace(
        name,
        create=create,
        store=store,
        settings=settings,
        limits=limits,
        listener=listener,
        source=source,
    )
    with BackgroundLoop() as loop:
        space = loop.wait(_enter(opened))
        try:
            yield Namespace(space, loop)
        finally:
            loop.wait(_leave(opened))


async def _enter(opened: AbstractAsyncContextManager[AsyncNamespace]) -> AsyncNamespace:
    return await opened.__aenter__()


async def _leave(opened: AbstractAsyncContextManager[AsyncNamespace]) -> None:
    await opened.__aexit__(None, None, None)
