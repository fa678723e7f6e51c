"""The specifications of the four kinds of resources (namespaces, agents, collections and users),
and their stored forms.

The command line and Python make their options from the fields. Agents, collections and users belong
to a namespace and are called NAMESPACE/NAME; a bare name belongs to the current namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from textevolve.errors import InputError
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import MemoryKind
from textevolve.reach import allow_namespace
from textevolve.settings import NAME_PATTERN
from textevolve.spec import Frozen, option

ResourceName: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN)]


class NamespaceSpec(Frozen):
    """An isolated workspace: resources of one namespace cannot be reached from another."""

    name: ResourceName = option(description="The namespace's name.", argument=True)
    description: str = option("", "The purpose, as a note for people.")
    tokens_per_day: int | None = option(
        None,
        "The most tokens a day (UTC) that a server lets models read and write for this namespace.",
        ge=1,
    )


class CollectionSpec(Frozen):
    """Memories of one kind. Their embedder is chosen for good; `memories re-embed` changes it."""

    name: ResourceName = option(description="The collection's name.", argument=True)
    kind: MemoryKind = option(
        "episodic",
        "The kind of its memories: episodic (what happened, and what people said), semantic"
        " (what documents say) or insight (what follows from other memories).",
    )
    embedder: str | None = option(
        None, "The model that embeds the memories; default: the embedder of the settings."
    )
    dimension: int | None = option(
        None, "The dimension of the embeddings; default: measured with a call.", ge=1
    )
    description: str = option("", "The purpose, as a note for people.")


class AgentSpec(Frozen):
    """An agent with a persona and a memory. It recalls from `memory.collections`; chats write into
    the collection `memories`, integration into `insights`."""

    name: ResourceName = option(description="The agent's name.", argument=True)
    persona: str = option(
        description="A text that says who the agent is and how it speaks; @FILE reads it from a"
        " file.",
        text="argument",
    )
    model: str | None = option(
        None, "The model that writes the agent's answers; default: the model of the settings."
    )
    memory: RecallSettings = RecallSettings()
    memories: str | None = option(
        None, "The collection that stores what the agent learns in chats."
    )
    insights: str | None = option(None, "The collection that stores the agent's insights.")
    description: str = option("", "The purpose, as a note for people.")

    @property
    def written(self) -> tuple[str, ...]:
        """Return the collections that chats and integration write into."""
        return tuple(name for name in (self.memories, self.insights) if name is not None)

    @property
    def recalled(self) -> tuple[str, ...]:
        """Return the collections to recall from; by default the ones that the agent writes into."""
        return self.memory.collections or self.written


class UserSpec(Frozen):
    """Somebody whom agents talk with."""

    name: ResourceName = option(description="The user's name.", argument=True)
    description: str = option("", "What agents know of this user before the first chat.")


@dataclass(frozen=True, slots=True)
class StoredNamespace:
    """A stored namespace. `spec_version`: the number of the current version of its specification.
    `created` and `updated`: seconds since 1970."""

    id: str
    spec: NamespaceSpec
    created: float
    updated: float
    spec_version: int = 1


@dataclass(frozen=True, slots=True)
class StoredUser:
    """A stored user of a namespace. `spec_version`: the number of the current version of its
    specification. `created` and `updated`: seconds since 1970."""

    id: str
    namespace: str
    spec: UserSpec
    created: float
    updated: float
    spec_version: int = 1


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """A stored agent of a namespace. `spec_version`: the number of the current version of its
    specification. `created` and `updated`: seconds since 1970."""

    id: str
    namespace: str
    spec: AgentSpec
    created: float
    updated: float
    spec_version: int = 1

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.spec.name}"


@dataclass(frozen=True, slots=True)
class SpecVersion:
    """One version of a resource's specification.

    Attributes:
        version: Its number, from 1.
        created: When it was stored, in seconds since 1970.
        spec: Its fields except the name, as JSON-ready data. In stores of early releases, versions
            of agents hold only the persona.
        source: What made the version, such as a run.
        changes: The edits that led to it, with their reasons, as JSON-ready data; empty if unknown.
    """

    version: int
    created: float
    spec: Mapping[str, Any]
    source: str = ""
    changes: Sequence[Mapping[str, Any]] = ()


def split_name(name: str, namespace: str) -> tuple[str, str]:
    """Split NAMESPACE/NAME, and return the namespace and the name; a bare name belongs to
    `namespace`.

    Raises:
        InputError: the name has more than one slash, or an empty part.
    """
    owner, slash, second = name.strip().partition("/")
    parts = (owner, second) if slash else (namespace, owner)
    if not all(parts) or "/" in parts[1]:
        raise InputError(f"'{name}' is not a name: write NAME or NAMESPACE/NAME")
    allow_namespace(parts[0])

    return parts


def full_name(name: str, namespace: str) -> str:
    """Return NAMESPACE/NAME for a name that may lack its namespace. Raises as `split_name`."""
    return "/".join(split_name(name, namespace))


def agent_collections(spec: AgentSpec) -> tuple[str, ...]:
    """Return the names of the collections that an agent reads or writes, as its specification
    writes them."""
    return (*spec.memory.collections, *spec.written)
