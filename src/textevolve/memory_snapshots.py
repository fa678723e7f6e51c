"""Pin stored agents and memory collections to their versions at the start of a run, and recall
memories for debaters.

A run pins the agents that its profiles name, and the version of each collection that its debaters
recall from, whether the study names them or a row does. A resumed run therefore uses the same
agents and memories; a run with other versions is another run. `memory` implements the search for
memories, `store` their storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from textevolve.agents.resources import StoredAgent, full_name, split_name
from textevolve.debate.profile import Agent, Profile, build_profile
from textevolve.errors import InputError
from textevolve.evaluation import Case, empty_default
from textevolve.memory.cue import Cue, Memory
from textevolve.memory.recall import RecallSource, Summarize, pinned, recall_from
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Collection, Embed, MemoryStore
from textevolve.settings import Settings
from textevolve.spec import Frozen
from textevolve.store import kinds
from textevolve.store.repository import Store

T = TypeVar("T")


async def read_resources(settings: Settings, read: Callable[[Store], T]) -> T:
    """Open the store of agents and memories, read it in another thread, and close it.

    Raises:
        StoreError: the store cannot be read.
    """

    def read_and_close() -> T:
        with Store(settings.memory_location) as resources:
            return read(resources)

    return await asyncio.to_thread(read_and_close)


def find_agent(resources: Store, name: str, namespace: str) -> StoredAgent:
    """Find a stored agent. `name`: NAMESPACE/NAME, or NAME in the namespace `namespace`.

    Raises:
        InputError: there is no such agent, or the name is not valid.
    """
    space, bare_name = split_name(name, namespace)
    return resources.read(kinds.get, kinds.AGENTS, space, bare_name)


def find_collection(resources: Store, name: str, namespace: str) -> Collection:
    """Find a collection of memories in its current version. `name`: NAMESPACE/NAME, or NAME in the
    namespace `namespace`.

    Raises:
        InputError: there is no such collection, or the name is not valid.
    """
    space, bare_name = split_name(name, namespace)
    return resources.read(kinds.get, kinds.COLLECTIONS, space, bare_name)


def memories_of(resources: Store, name: str, namespace: str) -> tuple[MemoryStore, str]:
    """Return the store of a collection, and the collection's name in it. `name`: NAMESPACE/NAME, or
    NAME in the namespace `namespace`. The collection need not exist.

    Raises:
        InputError: the name is not valid.
    """
    space, bare_name = split_name(name, namespace)
    return resources.memories(space), bare_name


class PinnedAgent(Frozen):
    """A stored agent in one version. `persona`: its description in prompts. `model`: the spec of
    its model; None: the run's. `memory`: its recall settings, with the full names of its
    collections; None if it recalls nothing."""

    version: int
    persona: str
    model: str | None = None
    memory: RecallSettings | None = None


def read_agent(resources: Store, name: str, namespace: str) -> PinnedAgent:
    """Read the current version of a stored agent. `namespace`: of a name without one. If the agent
    names no collections to recall from, it recalls from its own, which it writes into, as in chats.

    Raises:
        InputError: there is no such agent, or the name is not valid.
    """
    try:
        agent = find_agent(resources, name, namespace)
    except InputError as error:
        raise InputError(f"the stored agent '{name}': {error}") from None

    spec = agent.spec
    memory = None
    if collections := tuple(full_name(each, agent.namespace) for each in spec.recalled):
        memory = spec.memory.model_copy(update={"collections": collections})

    return PinnedAgent(
        version=agent.spec_version, persona=spec.persona, model=spec.model, memory=memory
    )


async def pin_agents(names: Iterable[str], settings: Settings) -> dict[str, PinnedAgent]:
    """Return the current versions of stored agents by their names in profiles. Raises as
    `read_agent`."""
    every = sorted(set(names))
    if not every:
        return {}

    return await read_resources(
        settings,
        lambda resources: {name: read_agent(resources, name, settings.namespace) for name in every},
    )


@dataclass(frozen=True)
class RowPins:
    """The stored agents and the collections of memories that the rows of a run name for their own
    debates, each with the id of the first case that names it, for the error if there is none.

    They are pinned when all rows are read, since a store must not be read while rows are being
    written to it.
    """

    agents: dict[str, str] = empty_default(dict)
    collections: dict[str, str] = empty_default(dict)

    def add(self, case: Case) -> None:
        """Note the agents and collections that a case with agents of its own names."""
        try:
            profile = build_profile({"agents": case.parameters["agents"]})
        except InputError:
            return  # the debate over this case fails with what is wrong about them

        for name in profile.stored_agents:
            self.agents.setdefault(name, case.id)
        for name in profile.collections:
            self.collections.setdefault(name, case.id)

    def pin(self, settings: Settings) -> dict[str, Any]:
        """Return what a run stores about them: `agents` and `collections` with their versions.

        Raises:
            InputError: there is no such agent or collection; names the first case with it.
            StoreError: the store cannot be read.
        """
        agents: dict[str, Any] = {}
        versions: dict[str, int] = {}
        collections = dict(self.collections)

        with Store(settings.memory_location) as resources:
            for name, case_id in self.agents.items():
                try:
                    agent = read_agent(resources, name, settings.namespace)
                except InputError as error:
                    raise InputError(f"case {case_id}: {error}") from None

                agents[name] = agent.model_dump(mode="json")
                if agent.memory is not None:
                    for collection in agent.memory.collections:
                        collections.setdefault(collection, case_id)

            for name, case_id in collections.items():
                try:
                    versions |= _read_versions(resources, (name,), settings.namespace)
                except InputError as error:
                    raise InputError(f"case {case_id}: {error}") from None

        return {"agents": agents, "collections": versions}


def with_stored_agents(profile: Profile, agent_of: Callable[[str], PinnedAgent]) -> Profile:
    """Return the profile with persona, model and memories taken from its stored agents. A model
    that the profile sets itself is kept."""
    agents: list[Agent] = []
    for agent in profile.agents:
        if agent.stored is not None:
            pinned = agent_of(agent.stored)
            model = agent.model or pinned.model
            update = {"persona": pinned.persona, "model": model, "memory": pinned.memory}
            agent = agent.model_copy(update=update)

        agents.append(agent)

    return profile.model_copy(update={"agents": tuple(agents)})


async def pin_collections(names: Iterable[str], settings: Settings) -> dict[str, int]:
    """Return the current versions of collections by their full names.

    Raises:
        InputError: there is no such collection, or a name is not valid.
        StoreError: the store cannot be read.
    """

    every = sorted(set(names))

    return await read_resources(
        settings, lambda resources: _read_versions(resources, every, settings.namespace)
    )


def pin_ranking(settings: Settings) -> dict[str, str]:
    """Return the setting by which a run ranks memories; empty for the default."""
    rerank = settings.memory.rerank
    return {} if rerank == "auto" else {"rerank": rerank}


def _read_versions(resources: Store, names: Iterable[str], namespace: str) -> dict[str, int]:
    versions: dict[str, int] = {}
    for name in names:
        try:
            collection = find_collection(resources, name, namespace)
        except InputError as error:
            raise InputError(f"a debater recalls from '{name}': {error}") from None

        versions[collection.full_name] = collection.version

    return versions


async def recall_for_debater(
    resources: Store,
    namespace: str,
    embed: Embed,
    versions: Mapping[str, int] | None,
    summarize: Summarize | None,
    cue: Cue,
    /,
) -> tuple[Memory, ...]:
    """Recall the memories of a debater. `namespace`: of names without one. `versions`: the
    collections that may be read, with their versions; None: all in their current versions, for runs
    that are never replayed."""
    if cue.settings is None:
        return ()
    sources: list[RecallSource] = []
    for name in dict.fromkeys(cue.settings.collections):
        store, bare_name = memories_of(resources, name, namespace)
        version = pinned(versions, full_name(name, namespace))
        sources.append(RecallSource(store, bare_name, version))

    memories = await recall_from(sources, embed, cue.settings, cue, summarize=summarize)

    return memories.memories
