"""Memories, collections of memories, and changes of a collection.

Times are seconds since 1970 in UTC. A memory is never overwritten: another memory supersedes it,
and the earlier one is closed and points to that. Each change makes a new version of the collection,
and earlier versions stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """A message of one speaker. `timestamp`: as in the data; empty if missing."""

    role: str
    content: str
    timestamp: str = ""


MemoryKind: TypeAlias = Literal["episodic", "semantic", "insight"]
Vector: TypeAlias = npt.NDArray[np.float32]
"""An embedding, of length 1."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Memories of one kind, whose embeddings come from one model.

    `embedder`: a model's spec, such as local/minilm; `dimension`: how many numbers its embeddings
    have. `version` grows with each change of its memories; `changed`: when the last one was.
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
    """The source of a memory. `source`: a chat, a file, a run. `turn` counts from 1. `trust` in
    [0, 1]: how far the source is believed; 1 for texts of the operator."""

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
    """A stored memory. `id` cannot be guessed. Fields of `NewMemory` have the same meaning here.

    `supersedes`: ids of the memories whose place it took; `superseded_by`: the one that took its
    own, and `superseded_at` from when on. `added` and `closed`: the versions of its collection that
    began and ended to hold it; None: it is held now. `forgotten`: it was closed because somebody
    wanted it to be forgotten. `last_used` and `times_used`: as recalled by an agent in a chat.
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
    """Store a memory that supersedes others: one for an update, several for a merge."""

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
