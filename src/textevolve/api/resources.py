"""Namespaces, agents, collections and users in Python: one class for all four, since each is made,
looked at, changed and removed in the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from textevolve.agents.resources import (
    AgentSpec,
    CollectionSpec,
    NamespaceSpec,
    PersonaVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    UserSpec,
)
from textevolve.errors import InputError
from textevolve.memory.record import Collection
from textevolve.report.files import open_target
from textevolve.spec import Frozen, suggest
from textevolve.store.erasure import Losses
from textevolve.store.resource_rows import NameRange
from textevolve.store.resources import ResourceStore
from textevolve.studies.exchange import Exported, export_lines, import_content, read_content
from textevolve.studies.memory_desk import MemoryDesk

S = TypeVar("S", bound=Frozen)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ResourceKind(Generic[S, R]):
    """What a store does with one kind; functions of the store and a namespace."""

    command: Exported
    spec: type[S]
    create: Callable[[ResourceStore, str, S], R]
    get: Callable[[ResourceStore, str, str], R]
    list: Callable[[ResourceStore, str, NameRange], list[R]]
    update: Callable[[ResourceStore, str, str, Mapping[str, Any]], R]
    delete: Callable[[ResourceStore, str, str], None]
    texts: Callable[[ResourceStore, str, str], Sequence[str]] = lambda _store, _space, _name: ()
    """Of the memories that are deleted with it."""


NAMESPACES: ResourceKind[NamespaceSpec, StoredNamespace] = ResourceKind(
    "namespaces",
    NamespaceSpec,
    lambda store, _, spec: store.create_namespace(spec),
    lambda store, _, name: store.get_namespace(name),
    lambda store, _, span: store.list_namespaces(span),
    lambda store, _, name, changes: store.update_namespace(name, changes),
    lambda store, _, name: store.delete_namespace(name),
    lambda store, _, name: store.list_memory_texts(name),
)
AGENTS: ResourceKind[AgentSpec, StoredAgent] = ResourceKind(
    "agents",
    AgentSpec,
    lambda store, space, spec: store.create_agent(space, spec),
    lambda store, space, name: store.get_agent(name, space),
    lambda store, space, span: store.list_agents(space, span),
    lambda store, space, name, changes: store.update_agent(name, space, changes),
    lambda store, space, name: store.delete_agent(name, space),
)
COLLECTIONS: ResourceKind[CollectionSpec, Collection] = ResourceKind(
    "collections",
    CollectionSpec,
    lambda store, space, spec: store.create_collection(space, spec),
    lambda store, space, name: store.get_collection(name, space),
    lambda store, space, span: store.list_collections(space, span),
    lambda store, space, name, changes: store.update_collection(name, space, changes),
    lambda store, space, name: store.delete_collection(name, space),
    lambda store, space, name: store.list_memory_texts(space, name),
)
USERS: ResourceKind[UserSpec, StoredUser] = ResourceKind(
    "users",
    UserSpec,
    lambda store, space, spec: store.create_user(space, spec),
    lambda store, space, name: store.get_user(name, space),
    lambda store, space, span: store.list_users(space, span),
    lambda store, space, name, changes: store.update_user(name, space, changes),
    lambda store, space, name: store.delete_user(name, space),
)


class AsyncResources(Generic[S, R]):
    """All of one kind in a namespace. Fields are those of its specification. Every method may raise
    InputError where there is none of a name, or a field cannot be used, and StoreError."""

    def __init__(self, desk: MemoryDesk, kind: ResourceKind[S, R]) -> None:
        self._desk, self._kind = desk, kind

    async def create(self, name: str, **fields: Any) -> R:
        """Make one; its name is not taken yet."""
        spec = self._kind.spec(**{"name": name, **fields})
        return await self._do(self._kind.create, await self._settle(spec))

    async def get(self, name: str) -> R:
        return await self._do(self._kind.get, name)

    async def list(self, *, limit: int | None = None, after: str = "") -> Sequence[R]:
        """All of them by name, or the next of them behind one."""
        return await self._do(self._kind.list, NameRange(after, limit))

    async def update(self, name: str, **fields: Any) -> R:
        """Change the fields that are given; of fields with fields of their own those that are."""
        for field in fields:
            if field not in self._kind.spec.model_fields:
                known = tuple(self._kind.spec.model_fields)
                raise InputError(f"unknown field '{field}'{suggest(field, known)}")
        return await self._do(self._kind.update, name, fields)

    async def delete(self, name: str) -> None:
        """Remove it with all that belongs to it. The texts of its memories are erased from the
        journal, too, and from what runs and chats kept."""
        async with self._desk.erasing(await self._do(self._kind.texts, name)):
            await self._do(self._kind.delete, name)

    async def find_losses(self, name: str) -> Losses:
        """What runs and chats would lose if it were deleted."""
        return await self._desk.find_losses(await self._do(self._kind.texts, name))

    async def export(self, name: str, path: str | Path, *, embeddings: bool = False) -> int:
        """Write one to a file, whole, with all that belongs to it; how many lines that took.
        `embeddings`: with those of memories, which are computed again where they are left out."""
        number = 0
        with open_target(path) as target:
            lines = export_lines(self._desk, self._kind.command, name, embeddings=embeddings)
            async for line in lines:
                number += 1
                target.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        return number

    async def import_file(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        progress: Callable[[int, int], None] = lambda _done, _all: None,
    ) -> None:
        """Take in what such a file holds, all or nothing. `name`: what it is called here."""
        content = await asyncio.to_thread(read_content, str(path), self._kind.command)
        await import_content(self._desk, content, name=name, progress=progress)

    async def _settle(self, spec: S) -> S:
        return spec

    async def _do(self, what: Callable[..., Any], *given: Any) -> Any:
        desk = self._desk
        return await asyncio.to_thread(what, desk.resources, desk.namespace, *given)


class AsyncAgents(AsyncResources[AgentSpec, StoredAgent]):
    """The agents of a namespace, with the versions of their personas."""

    async def personas(self, name: str) -> Sequence[PersonaVersion]:
        """All versions of an agent's persona, the oldest first."""
        store, agent = self._desk.resources, await self.get(name)
        return await asyncio.to_thread(store.list_personas, agent)

    async def revert(self, name: str, version: int) -> StoredAgent:
        """Make an earlier persona the newest version once more."""
        store, agent = self._desk.resources, await self.get(name)
        await asyncio.to_thread(store.revert_persona, agent, version)
        return await self.get(name)


class AsyncCollections(AsyncResources[CollectionSpec, Collection]):
    """The collections of a namespace. A new one's embedder is asked for its dimension, unless that
    is given."""

    async def count(self) -> Mapping[str, int]:
        """How many memories each collection holds now, by its name."""
        store = self._desk.resources
        return await asyncio.to_thread(store.count_memories, self._desk.namespace)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Remove it with its memories; `force`: also where agents name it."""
        store, space = self._desk.resources, self._desk.namespace
        if not force:
            await asyncio.to_thread(store.require_unnamed, name, space)
        async with self._desk.erasing(await self._do(self._kind.texts, name)):
            await asyncio.to_thread(store.delete_collection, name, space, force=force)

    async def _settle(self, spec: CollectionSpec) -> CollectionSpec:
        if any(one.name == spec.name for one in await self.list()):
            return spec  # the store says so; nothing is asked for that
        embedder, dimension = await self._desk.settle(spec.embedder, spec.dimension)
        return spec.model_copy(update={"embedder": embedder, "dimension": dimension})
