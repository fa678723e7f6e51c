"""The inputs and outputs of recall, in a module that is cheap to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from textevolve.memory.recall_settings import RecallSettings


@dataclass(frozen=True, slots=True)
class Memory:
    """A remembered text, where it came from, and how well it fits the cue (higher is better).

    `parts`: what the score is made of, each in [0, 1]. `id`: of the memory in its collection; empty
    where it is in none. `trust` in [0, 1]: how far its source is believed, None: nobody said.
    `similarity`: the cosine of its embedding and the nearest query, None where it is not known.
    `created`: when it was kept, in seconds since 1970.
    """

    text: str
    source: str = ""
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    id: str = ""
    trust: float | None = None
    similarity: float | None = None
    created: float | None = None


@dataclass(frozen=True, slots=True)
class Cue:
    """The query of a recall: the agent a, the input x, the candidates y, the history xi.

    `collections` are the names of the agent's memory collections; `settings`: its recall settings,
    None for the defaults.
    """

    agent: str
    collections: tuple[str, ...]
    input: str
    candidates: tuple[str, ...] = ()
    history: str = ""
    settings: RecallSettings | None = None


class Recall(Protocol):
    async def __call__(self, cue: Cue, /) -> tuple[Memory, ...]: ...


async def nothing(_cue: Cue, /) -> tuple[Memory, ...]:
    """Recall nothing: the recall of an agent without memories."""
    return ()
