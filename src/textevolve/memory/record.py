"""The data types of memories, collections of memories, and changes of a collection.

Times are seconds since 1970 in UTC. A memory is never overwritten: a new memory supersedes it, and
the earlier one is closed and refers to the new one. Each change makes a new version of the
collection, and earlier versions stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One message of a dialogue. `role`: its speaker. `timestamp`: its time as the data write it;
    empty if missing."""

    role: str
    content: str
    timestamp: str = ""


MemoryKind: TypeAlias = Literal["episodic", "semantic", "insight"]
"""The kind of a memory: of an event in a dialogue (episodic), a fact from a text (semantic), or an
insight from other memories."""
Vector: TypeAlias = npt.NDArray[np.float32]
"""An embedding, normalised to the length 1."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of memories of one kind, whose embeddings come from one model.

    `embedder`: the spec of that model, such as local/minilm. `dimension`: the number of values of
    an embedding. `version`: the number of changes of its memories so far. `changed`: the time of
    the last change.
    """

    id: str
    namespace: str
    name: str
    kind: MemoryKind
    embedder: str
    dimension: int
    version: int = 0
    changed: float = 0.0
    created: float = 0.0
    description: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a memory. `source`: a chat, a file, a run. `turn`: the number of the turn in
    it, from 1; None if unknown. `author`: who said or wrote it. `trust`: how far the source is
    believed, in [0, 1]; 1 for texts of the operator."""

    source: str = ""
    turn: int | None = None
    author: str = ""
    trust: float = 1.0


@dataclass(frozen=True, slots=True)
class Relation:
    """An edge of the graph of the entities that memories mention."""

    subject: str
    predicate: str
    object: str


@dataclass(frozen=True, slots=True)
class Entity:
    """A person or thing that the current memories of a collection mention. `memories`: their ids,
    oldest first. `neighbours`: the other entities in these memories, each with the number of
    memories that mention both, the highest first."""

    name: str
    memories: tuple[str, ...]
    neighbours: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory to store.

    `importance` in [0, 1]. `kind`: None means the kind of its collection. `created`: None means
    now. `valid_from`, `valid_to`: the period in which its text holds; None: from the beginning (for
    a memory that supersedes another: from its creation), and without end. `entities`: names of the
    people and things in its text. `cites`: ids of the memories that support it. `reason`: why it is
    stored, or why it supersedes another.
    """

    text: str
    embedding: Vector = field(compare=False)
    importance: float = 0.5
    kind: MemoryKind | None = None
    origin: Origin = Origin()
    created: float | None = None
    valid_from: float | None = None
    valid_to: float | None = None
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    cites: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """A stored memory. `id`: a random id, which cannot be guessed. Fields of `NewMemory` have the
    same meaning here.

    `supersedes`: the ids of the memories that it replaced. `superseded_by`: the id of the memory
    that replaced it, and `superseded_at`: the time of that. `added`: the version of the collection
    that added it; `closed`: the version that closed it, None while it is current. `forgotten`:
    whether it was closed by a request to forget it. `last_used`, `times_used`: when, and how often,
    an agent recalled it in chats.
    """

    id: str
    collection: str
    kind: MemoryKind
    text: str
    importance: float
    created: float
    origin: Origin = Origin()
    last_used: float | None = None
    times_used: int = 0
    valid_from: float | None = None
    valid_to: float | None = None
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    superseded_at: float | None = None
    added: int = 0
    closed: int | None = None
    forgotten: bool = False
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    cites: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Add:
    """Store a new memory."""

    memory: NewMemory


@dataclass(frozen=True, slots=True)
class Supersede:
    """Store a memory that supersedes others: one memory for an update, several for a merge."""

    memories: tuple[str, ...]
    memory: NewMemory


@dataclass(frozen=True, slots=True)
class Forget:
    """Close a memory. `erase`: its text, embedding and index entries are deleted, too, from all
    versions; only its id and its place in the history stay."""

    memory: str
    erase: bool = False


Change: TypeAlias = Add | Supersede | Forget


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The source of changes. A collection applies the changes of one `key` only once: `key` is a
    hash of the dialogue, document or run; `label` names it for people."""

    key: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of changes. `ids`: the ids of the stored memories, one for each `Add` and
    `Supersede`, in order. `base`: the version of the collection before the changes, `version`:
    after them. `repeated`: the changes of this source had been applied before, so nothing was
    changed now; the other fields are those of the first time."""

    ids: tuple[str, ...]
    base: int
    version: int
    repeated: bool = False
