"""Steps that studies on memories share: agents and collections are looked up by name, and the
memories of a collection are read in one of its versions. The package `memory` works on memories
itself.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_core import to_json

from textevolve.agents.resources import StoredAgent, split_name
from textevolve.errors import InputError
from textevolve.memory.record import Collection, MemoryRecord, MemoryStore
from textevolve.spec import identity_of
from textevolve.store import Store, kinds
from textevolve.wiring import Workbench

PAGE = 500
"""The number of memories that are read from the store at once."""


async def find_agent(resources: Store, name: str, namespace: str) -> StoredAgent:
    """Find a stored agent. `name`: NAMESPACE/NAME, or NAME in the namespace `namespace`.

    Raises:
        InputError: there is no such agent.
    """
    space, agent_name = split_name(name, namespace)
    return await asyncio.to_thread(resources.read, kinds.get, kinds.AGENTS, space, agent_name)


async def find_collection(resources: Store, name: str, namespace: str) -> Collection:
    """Find a collection of memories. `name`: NAMESPACE/NAME, or NAME in the namespace `namespace`.

    Raises:
        InputError: there is no such collection.
    """
    space, collection_name = split_name(name, namespace)
    return await resources.memories(space).collection(collection_name)


def memories_of(bench: Workbench, name: str) -> tuple[MemoryStore, str]:
    """Return the store of a collection, and the collection's name in it. `name`: NAMESPACE/NAME, or
    NAME in the namespace of the settings. The collection need not exist.

    Raises:
        InputError: the name is not valid.
    """
    namespace, collection = split_name(name, bench.settings.namespace)
    return bench.resources.memories(namespace), collection


def memories_of_agent(agent: StoredAgent) -> tuple[str, ...]:
    """Return the full names of the collections that an agent recalls from and writes to, except its
    collection of insights.

    Raises:
        InputError: the agent has no collection.
    """
    spec = agent.spec
    collections = [*spec.memory.collections, *([spec.memories] if spec.memories else [])]
    full = ["/".join(split_name(name, agent.namespace)) for name in collections]
    insights = spec.insights and "/".join(split_name(spec.insights, agent.namespace))
    names = tuple(dict.fromkeys(name for name in full if name != insights))

    if not names:
        raise InputError(
            f"agent {agent.full_name} has no memories; give it a collection with: textevolve"
            f" agents update {agent.full_name} --memories NAME"
        )

    return names


async def stream_memories(
    store: MemoryStore, collection: str, version: int | None, *, closed: bool = False
) -> AsyncGenerator[MemoryRecord]:
    """Yield all memories of a collection in the order in which they were stored. `version`: an
    earlier version of the collection; None: the current one. `closed`: include memories that were
    superseded or forgotten."""
    after = None

    while page := await store.page(
        collection, after=after, limit=PAGE, version=version, closed=closed
    ):
        for record in page:
            yield record
        after = page[-1].id


def change_key(bench: Workbench, spec: BaseModel, *parts: object) -> str:
    """Return the key of a change that a run makes to a collection. A collection applies a change of
    the same key only once; the key is the same in every process, and in every run with the same
    specification, description and default model. `parts` distinguish the changes of a run."""
    identity = [type(spec).__name__, dict(bench.described), identity_of(spec), bench.default_model]
    return hashlib.sha256(to_json([*identity, *parts])).hexdigest()


@dataclass(frozen=True, slots=True)
class NewestMemories:
    """The newest memories of an agent, oldest first. `number` and `importance`: the count of all
    new memories and the sum of their importance, including memories that are not in `memories`."""

    memories: Sequence[MemoryRecord]
    number: int
    importance: float


async def read_newest(
    bench: Workbench,
    versions: Mapping[str, int],
    most: int,
    least_trust: float,
    since: Mapping[str, int] | None = None,
) -> NewestMemories:
    """Read the memories of collections that were stored after the version in `since`, and whose
    trust is at least `least_trust`. `versions`: the version of each collection to read. Only the
    `most` newest memories are held."""
    newest = list[MemoryRecord]()
    number = 0
    importance = 0.0

    for name, version in versions.items():
        store, collection = memories_of(bench, name)
        begin = (since or {}).get(name, 0)
        some = deque[MemoryRecord](maxlen=most)
        async with aclosing(stream_memories(store, collection, version)) as records:
            async for record in records:
                if record.added > begin and record.origin.trust >= least_trust:
                    some.append(record)
                    number = number + 1
                    importance = importance + record.importance

        newest += some

    newest.sort(key=lambda record: record.created)

    return NewestMemories(newest[-most:], number, round(importance, 6))
