"""What a memory system is to us: it is given dialogues, says what it took, and finds memories.

Only the interface. The systems that are shipped are in `systems/`; what they are asked to do is in
`system_operations.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from textevolve.memory_eval.dialogues import DialogueTurn


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a system can do. A task that needs what it cannot is not measured, never zero.

    `extracts`: `add` says which memories it took, so that integrity and accuracy can be measured.
    `searches`: updates and questions can be. `answers`: it has an answer of its own; where not, a
    model answers from what it found. `durable`: what it was given survives the program, so that an
    interrupted run goes on where it stopped; otherwise each user is fed again from the start.
    """

    extracts: bool = True
    searches: bool = True
    answers: bool = False
    durable: bool = False


@runtime_checkable
class ReportsTokens(Protocol):
    """A memory system that says what its models used."""

    def spent(self, user: str, /) -> int | None:
        """Tokens of the user's last `add`, None where they are not known."""
        ...


class MemorySystem(Protocol):
    """Every method may raise; the operation is then recorded as failed, and the run goes on. A
    system may have the method of `ReportsTokens`, too.

    `user` is an id of this run alone, so that runs never see each other's memories. Calls for one
    user come one after another; users come side by side.
    """

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        """Take in a session; returns the memories extracted from it, none where it cannot say."""
        ...

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        """The memories that fit the query best, at most `limit`, the best first."""
        ...

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        """Only asked where the capabilities say `answers`."""
        ...

    async def aclose(self) -> None: ...
