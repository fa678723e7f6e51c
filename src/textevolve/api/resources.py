"""Namespaces, agents, collections and users in Python. One class manages all four, since all are
created, listed, changed and deleted in the same way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from textevolve.agents.resources import CollectionSpec, SpecVersion
from textevolve.desk.exchange import export_lines, import_content, read_content
from textevolve.desk.memories import MemoryDesk
from textevolve.errors import InputError
from textevolve.memory.record import Collection
from textevolve.report.files import open_target
from textevolve.spec import Frozen, suggest
from textevolve.store import kinds
from textevolve.store.kinds import Kind
from textevolve.store.resource_rows import NameRange

S = TypeVar("S", bound=Frozen)
R = TypeVar("R")
T = TypeVar("T")


class AsyncResources(Generic[S, R]):
    """The agents, collections, users or namespaces of a store, called resources, with async
    methods. The keyword arguments `fields` are the fields of the resource's specification. Every
    method may raise StoreError, and InputError if a name is unknown or a field is invalid."""

    def __init__(self, desk: MemoryDesk, kind: Kind[S, R]) -> None:
        self._desk, self._kind = desk, kind

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
                known = tuple(self._kind.spec.model_fields)
                raise InputError(f"unknown field '{field}'{suggest(field, known)}")
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
                target.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
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
