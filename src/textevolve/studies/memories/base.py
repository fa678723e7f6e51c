"""The steps that studies on memories share: describe the agents and collections that a run reads,
read their memories in the versions of the description, and change a collection once.

The package `memory` works on memories themselves, `memory_snapshots` finds agents and collections.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from textevolve.agents.resources import StoredAgent, agent_collections, full_name
from textevolve.errors import InputError
from textevolve.evaluation import Case
from textevolve.llm.model import Model
from textevolve.memory.creation import Ground
from textevolve.memory.extraction import CreationSettings
from textevolve.memory.recall_settings import RecallScope
from textevolve.memory.record import (
    Applied,
    Change,
    ChangeSource,
    Collection,
    MemoryRecord,
    MemoryStore,
    stream_memories,
)
from textevolve.memory_snapshots import find_collection, memories_of, read_resources
from textevolve.report import wording
from textevolve.runs.study import DescribeWorld, StudySpec
from textevolve.settings import Settings
from textevolve.spec import Frozen, NonEmpty, identity_of, option
from textevolve.store.repository import Store
from textevolve.wiring import Workbench

S = TypeVar("S", bound=StudySpec)

Pin: TypeAlias = Callable[[S, Store, str], Mapping[str, Any]]
"""A function that returns what a run depends on in the store: the agents and collections that its
specification names, with their versions. Its last argument is the namespace of bare names."""


def describe_by(pin: Pin[S]) -> DescribeWorld[S]:
    """Return the function that describes a run by the agents and collections that `pin` reads."""

    async def describe(
        spec: S, settings: Settings, _objects: dict[str, object]
    ) -> Mapping[str, Any]:
        return await read_resources(
            settings, lambda resources: pin(spec, resources, settings.namespace)
        )

    return describe


class AgentName(Frozen):
    """The field of studies on the memories of one agent."""

    agent: NonEmpty = option(description="The agent, as NAME or NAMESPACE/NAME.", argument=True)


def read_agent_case(spec: AgentName) -> list[Case]:
    """Return the only case of a study on one agent, the agent's name."""
    return [Case(spec.agent, (), "1")]


def find_collections(resources: Store, agent: StoredAgent) -> list[Collection]:
    """Find the collections that an agent recalls from and writes to, except its collection of
    insights.

    Raises:
        InputError: the agent has no collection.
    """
    names = dict.fromkeys(
        full_name(each, agent.namespace) for each in agent_collections(agent.spec)
    )
    if agent.spec.insights:
        del names[full_name(agent.spec.insights, agent.namespace)]

    if not names:
        raise InputError(
            f"agent {agent.full_name} has no memories; give it a collection with: textevolve"
            f" agents update {agent.full_name} --memories NAME"
        )

    return [find_collection(resources, each, agent.namespace) for each in names]


def versions_of(collections: Sequence[Collection]) -> dict[str, int]:
    """Return the current version of each collection by its full name."""
    return {collection.full_name: collection.version for collection in collections}


@dataclass(frozen=True, slots=True)
class ChangedCollection:
    """The collection that a run changes: its name in the store of its namespace."""

    bench: Workbench
    store: MemoryStore
    name: str

    async def ground(self, model: Model, settings: CreationSettings) -> Ground:
        """Return the means with which memories are created in the collection; memories are stored
        neither in a replay nor in an estimate."""
        collection = await self.store.collection(self.name)
        live = self.bench.is_live
        return Ground(self.store, self.bench.embed, model, collection, settings, live)

    async def apply(self, changes: Sequence[Change], source: ChangeSource) -> Applied | None:
        """Apply changes in one transaction, unless they were applied before under the same key.
        Return the result; None in a replay or an estimate of changes that were never applied."""
        applied = await self.store.applied(self.name, source.key)
        if applied is None and self.bench.is_live:
            applied = await self.store.apply(self.name, changes, source)
        return applied


def open_changed_collection(bench: Workbench, name: str) -> ChangedCollection:
    """Open the collection that a run changes. `name`: NAMESPACE/NAME, or NAME in the namespace of
    the settings."""
    store, bare_name = memories_of(bench.resources, name, bench.settings.namespace)
    return ChangedCollection(bench, store, bare_name)


def change_key(bench: Workbench, spec: BaseModel, *parts: object) -> str:
    """Return the key of a change that a run makes to a collection. A collection applies a change of
    the same key only once; the key is the same in every process, and in every run with the same
    specification, description and default model. `parts` distinguish the changes of a run."""
    identity = [type(spec).__name__, dict(bench.described), identity_of(spec), bench.default_model]
    return hashlib.sha256(to_json([*identity, *parts])).hexdigest()


@dataclass(frozen=True, slots=True)
class NewestMemories:
    """The newest memories of an agent, oldest first. `number` and `importance`: the count of all
    new memories and the sum of their importance, including memories that are not in `memories`.
    `private`: the count of memories that were left out because they belong to single users."""

    memories: Sequence[MemoryRecord]
    number: int
    importance: float
    private: int = 0

    @staticmethod
    def describe_private(number: int) -> str:
        """Say how many memories of users were left out; empty if none was."""
        noun = wording.count(number, "memory")
        return f"; {noun} of single users left out (scope user)" if number else ""


async def read_newest(
    bench: Workbench,
    versions: Mapping[str, int],
    most: int,
    least_trust: float,
    scope: RecallScope,
    since: Mapping[str, int] | None = None,
) -> NewestMemories:
    """Read the memories of collections that were stored after the version in `since`, and whose
    trust is at least `least_trust`. `versions`: the version of each collection to read. Only the
    `most` newest memories are held. `scope`: of the agent's recall; with `user` only the common
    memories are read, since all users see an agent's persona and insights."""
    newest: list[MemoryRecord] = []
    number = 0
    private = 0
    importance = 0.0

    for name, version in versions.items():
        store, collection = memories_of(bench.resources, name, bench.settings.namespace)
        begin = (since or {}).get(name, 0)
        some: deque[MemoryRecord] = deque(maxlen=most)
        async with aclosing(stream_memories(store, collection, version)) as records:
            async for record in records:
                if record.added <= begin or record.origin.trust < least_trust:
                    continue
                if record.user and scope == "user":
                    private += 1
                else:
                    some.append(record)
                    number = number + 1
                    importance = importance + record.importance

        newest += some

    newest.sort(key=lambda record: record.created)

    return NewestMemories(newest[-most:], number, round(importance, 6), private)
