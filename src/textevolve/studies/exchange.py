"""Files that carry namespaces, agents, collections and users from one store to another.

Each line is a JSON object. The first says what the file is; then come users, collections, each
with its memories behind it, and agents with their personas and chats. Embeddings are left out
unless they are asked for: they take most of the room, and can be computed again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from textevolve.agents.resources import (
    PersonaVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
)
from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.memory.record import Collection, MemoryRecord, Vector
from textevolve.rows import parse_row, read_lines
from textevolve.spec import Frozen, explain
from textevolve.store import exchange, kinds
from textevolve.store.exchange import (
    AgentContent,
    CollectionContent,
    Content,
    KeptChat,
    KeptSource,
)
from textevolve.store.memory_changes import find_vector_fault
from textevolve.studies.memory_desk import MemoryDesk

S = TypeVar("S", bound=Frozen)
FORMAT = "textevolve export"
VERSION = 1
PAGE = 500

_NAMESPACE, _USER = TypeAdapter(StoredNamespace), TypeAdapter(StoredUser)
_AGENT, _PERSONAS = TypeAdapter(StoredAgent), TypeAdapter(list[PersonaVersion])
_COLLECTION, _MEMORY = TypeAdapter(Collection), TypeAdapter(MemoryRecord)
_VERSIONS, _CHATS = TypeAdapter(list[tuple[int, float]]), TypeAdapter(list[KeptChat])
_SOURCES = TypeAdapter(list[KeptSource])


async def export_lines(
    desk: MemoryDesk, kind: str, name: str, *, embeddings: bool = False
) -> AsyncGenerator[dict[str, Any]]:
    """The lines of a file that holds one of a namespace's resources, or all of a namespace.

    Raises:
        InputError: there is none of this name.
    """
    store, space = desk.resources, desk.namespace

    async def do(what: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.to_thread(what, *given)

    yield {FORMAT: VERSION, "kind": kind}
    if kind == "namespaces":
        desk = replace(desk, namespace=name)
        yield {
            "namespace": _dump(
                _NAMESPACE, await do(store.read, kinds.get, kinds.NAMESPACES, "", name)
            )
        }
        for user in await do(store.read, kinds.list_all, kinds.USERS, name):
            yield {"user": _dump(_USER, user)}
        for collection in await do(store.read, kinds.list_all, kinds.COLLECTIONS, name):
            async for line in _collection_lines(desk, collection, embeddings):
                yield line
        for agent in await do(store.read, kinds.list_all, kinds.AGENTS, name):
            yield await do(_agent_line, desk, agent)
    elif kind == "users":
        yield {"user": _dump(_USER, await do(store.read, kinds.get, kinds.USERS, space, name))}
    elif kind == "agents":
        yield await do(
            _agent_line, desk, await do(store.read, kinds.get, kinds.AGENTS, space, name)
        )
    else:
        collection = await do(store.read, kinds.get, kinds.COLLECTIONS, space, name)
        async for line in _collection_lines(desk, collection, embeddings):
            yield line


async def _collection_lines(
    desk: MemoryDesk, collection: Collection, embeddings: bool
) -> AsyncGenerator[dict[str, Any]]:
    """A collection and its memories, all as one version of it holds them."""
    read = desk.resources.database.read
    versions, sources = await asyncio.to_thread(
        read, lambda c: exchange.read_versions(c, collection)
    )
    line = {"collection": _dump(_COLLECTION, collection), "versions": versions}
    held = [one for one in sources if one.version <= collection.version]
    yield {**line, "sources": _SOURCES.dump_python(held, mode="json")}
    after = None
    while page := await desk.memories.page(
        collection.name, after=after, limit=PAGE, version=collection.version, closed=True
    ):
        ids = [one.id for one in page] if embeddings else []
        vectors = await asyncio.to_thread(read, lambda c, ids=ids: exchange.read_vectors(c, ids))
        for one in page:
            packed = {"embedding": _pack(vectors[one.id])} if one.id in vectors else {}
            yield {"memory": _dump(_MEMORY, one), **packed}
        after = page[-1].id


def _agent_line(desk: MemoryDesk, agent: StoredAgent) -> dict[str, Any]:
    personas = desk.resources.read(kinds.list_personas, agent.id)
    chats = desk.resources.database.read(lambda c: exchange.read_chats(c, agent))
    line = {"agent": _dump(_AGENT, agent), "personas": _PERSONAS.dump_python(personas, mode="json")}
    return {**line, "chats": _CHATS.dump_python(chats, mode="json")} if chats else line


def read_content(path: str, kind: str) -> Content:
    """What a file holds; `-` is standard input.

    Raises:
        InputError: it is no such file, or a line of it cannot be used; says which.
    """
    return take_content(read_lines(path), kind, path)


def take_content(lines: Iterator[tuple[str, str]], kind: str, path: str) -> Content:
    """The same of lines with their places; `path`: what messages call all of them."""
    where, first = next(lines, (path, "{}"))
    head = parse_row(first, where, "line")
    if head.get(FORMAT) is None:
        raise InputError(f"{where}: is not what textevolve {kind} export writes")
    if head[FORMAT] != VERSION:
        raise InputError(f"{where}: has version {head[FORMAT]}, and this program reads {VERSION}")
    if head.get("kind") != kind:
        known = head.get("kind") if head.get("kind") in kinds.KINDS else "KIND"
        raise InputError(f"{where}: holds {known}; read it with: textevolve {known} import")
    content = Content()
    for where, text in lines:
        row = parse_row(text, where, "line")
        try:
            _take_line(content, row)
        except ValidationError as error:
            raise InputError(f"{where}: {explain(error)}") from None
        except (InputError, KeyError, ValueError) as error:
            missing = isinstance(error, KeyError)
            raise InputError(f"{where}: {f'{error} is missing' if missing else error}") from None
    for each in content.collections:
        _check_links(path, each)
    return content


def _take_line(content: Content, row: Mapping[str, Any]) -> None:
    """Add what a line says to what came before it."""
    if "namespace" in row:
        content.namespace = _NAMESPACE.validate_python(row["namespace"])
    elif "user" in row:
        content.users.append(_USER.validate_python(row["user"]))
    elif "collection" in row:
        versions = _VERSIONS.validate_python(row.get("versions", []))
        collection = _COLLECTION.validate_python(row["collection"])
        sources = _SOURCES.validate_python(row.get("sources", []))
        content.collections.append(CollectionContent(collection, versions, sources))
    elif "memory" in row:
        if not content.collections:
            raise InputError("a memory stands before its collection")
        held = content.collections[-1]
        memory = _MEMORY.validate_python(row["memory"])
        held.memories.append(_checked(memory))
        if memory.text and "embedding" in row:
            held.vectors[memory.id] = _unpack(row["embedding"], held.collection)
    elif "agent" in row:
        personas = _PERSONAS.validate_python(row["personas"])
        if not personas:
            raise InputError("an agent has no persona")
        chats = _CHATS.validate_python(row.get("chats", []))
        content.agents.append(AgentContent(_AGENT.validate_python(row["agent"]), personas, chats))
    else:
        raise InputError("is no line of such a file")


def _checked(memory: MemoryRecord) -> MemoryRecord:
    if memory.text:  # an erased one has none
        check_text("the text", memory.text)
    if memory.closed is not None and memory.closed <= memory.added:
        raise InputError(f"memory {memory.id}: was closed before it was added")
    return memory


def _check_links(path: str, content: CollectionContent) -> None:
    """
    Raises:
        InputError: a memory stands twice, or was superseded by one that is not there, or did not
            come when it went: so there is no circle of memories that supersede each other.
    """
    name, by_id = content.collection.name, {one.id: one for one in content.memories}
    if len(by_id) < len(content.memories):
        raise InputError(f"{path}: collection '{name}': a memory stands there twice")
    for one in content.memories:
        last = max(one.added, one.closed or 0)
        if last > content.collection.version:
            raise InputError(f"{path}: memory {one.id}: is of a version that '{name}' has not had")
        if one.superseded_by is None:
            continue
        by = by_id.get(one.superseded_by)
        if by is None or by.added != one.closed:
            raise InputError(
                f"{path}: memory {one.id}: cannot have been superseded by {one.superseded_by}"
            )


async def import_content(
    desk: MemoryDesk,
    content: Content,
    *,
    name: str | None = None,
    progress: Callable[[int, int], None],
) -> Content:
    """Put what a file holds into the desk's namespace, or a namespace as a whole into the store;
    all or nothing. Texts without embeddings are embedded first. `name`: what it is called here.

    Raises:
        InputError: the name is taken. ModelError: a text cannot be embedded.
    """
    if name is not None:
        _rename(content, name)
    for each in content.agents:
        each.agent = _bring_home(each.agent)
    space = desk.namespace if content.namespace is None else content.namespace.spec.name
    database = desk.resources.database
    await asyncio.to_thread(database.read, lambda c: exchange.refuse_taken_names(c, space, content))
    whole = sum(len(each.memories) for each in content.collections)
    done = 0
    for each in content.collections:
        for one in each.memories:
            done += one.id in each.vectors or not one.text
        rest = iter([one for one in each.memories if one.text and one.id not in each.vectors])
        while batch := list(islice(rest, PAGE)):
            vectors = await desk.embed_all(each.collection, [one.text for one in batch])
            each.vectors |= {one.id: vector for one, vector in zip(batch, vectors, strict=True)}
            done += len(batch)
            progress(done, whole)
    await asyncio.to_thread(database.write, lambda c: exchange.keep_content(c, space, content))
    return content


def _rename(content: Content, name: str) -> None:
    """Give the namespace, or the one resource of the file, another name."""
    if content.namespace is not None:
        content.namespace = replace(content.namespace, spec=_named(content.namespace.spec, name))
        return
    content.users = [replace(one, spec=_named(one.spec, name)) for one in content.users]
    for each in content.collections:
        each.collection = replace(each.collection, name=name)
    for each in content.agents:
        each.agent = replace(each.agent, spec=_named(each.agent.spec, name))


def _named(spec: S, name: str) -> S:
    return type(spec)(**{**spec.model_dump(), "name": name})


def _bring_home(agent: StoredAgent) -> StoredAgent:
    """An agent whose collections are those of the namespace that it comes into."""

    def bare(name: str | None) -> str | None:
        return name if name is None else name.removeprefix(f"{agent.namespace}/")

    spec = agent.spec
    memory = spec.memory.model_copy(
        update={"collections": tuple(bare(one) for one in spec.memory.collections)}
    )
    changed = {"memory": memory, "memories": bare(spec.memories), "insights": bare(spec.insights)}
    return replace(agent, spec=spec.model_copy(update=changed))


def _pack(vector: Vector) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def _unpack(given: Any, collection: Collection) -> Vector:
    vector = np.frombuffer(base64.b64decode(str(given), validate=True), dtype="<f4")
    if fault := find_vector_fault(vector, collection.dimension):
        raise InputError(fault)
    return vector.astype(np.float32)


def _dump(adapter: TypeAdapter[Any], value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], adapter.dump_python(value, mode="json"))
