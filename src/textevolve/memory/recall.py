"""Recall, M(a, x, y, xi): what an agent remembers that bears on the case before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Memory:
    """A remembered text, where it came from, and how well it fits the cue (higher is better)."""

    text: str
    source: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Cue:
    """What a memory is wanted for: the agent a, the input x, the candidates y, the history xi.

    `collections` are the names of the agent's memory collections.
    """

    agent: str
    collections: tuple[str, ...]
    input: str
    candidates: tuple[str, ...]
    history: str


class Recall(Protocol):
    async def __call__(self, cue: Cue, /) -> tuple[Memory, ...]: ...


async def nothing(_cue: Cue, /) -> tuple[Memory, ...]:
    """The recall of an agent without memories."""
    return ()
