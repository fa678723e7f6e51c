"""The inputs and outputs of recall, in a module that is cheap to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from textevolve.memory.recall_settings import RecallSettings


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory as recalled for an input. `source`: its origin as a text. `score`: its relevance,
    higher is better; None if it was not ranked. `parts`: the parts of the score (relevance,
    importance, recency), each in [0, 1]. `id`: of the memory in its collection; empty if it belongs
    to none. `trust`: how far its source is believed, in [0, 1]; None if unknown. `similarity`: the
    cosine of its embedding and the nearest query's; None if unknown. `created`: the time at which
    it was learned, in seconds since 1970; None if unknown."""

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
    """The query of a recall: the agent a, the input x, the candidate texts y to be judged, the
    history xi.

    `collections`: the names of the agent's memory collections. `settings`: its recall settings;
    None for the defaults. `user`: the user with whom the agent speaks; empty if there is none.
    """

    agent: str
    collections: tuple[str, ...]
    input: str
    candidates: tuple[str, ...] = ()
    history: str = ""
    settings: RecallSettings | None = None
    user: str = ""


class Recall(Protocol):
    """An async function that recalls memories for a cue."""

    async def __call__(self, cue: Cue, /) -> tuple[Memory, ...]: ...


async def nothing(_cue: Cue, /) -> tuple[Memory, ...]:
    """Recall nothing: the recall of an agent without memories."""
    return ()
