"""The interface of memory systems, and the two baselines for comparison.

A system receives dialogues, reports the memories that it extracted, and searches them. Adapters of
other systems are in `systems/`; `system_operations.py` calls them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from textevolve.errors import AnswerError
from textevolve.memory_eval.dataset import DialogueTurn, User, write_turn


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a system. A task that needs a missing feature is not measured, never zero.

    `extracts`: `add` returns the extracted memories, so integrity and accuracy can be measured.
    `searches`: updates and questions can be measured. `answers`: the system answers questions
    itself; otherwise a model answers from its search results. `durable`: its data survive the
    program, so an interrupted run resumes where it stopped; otherwise each user is fed again from
    the start.
    """

    extracts: bool = True
    searches: bool = True
    answers: bool = False
    durable: bool = False


class MemorySystem(Protocol):
    """The interface of a memory system. Every method may raise; the operation is then recorded as
    failed, and the run continues.

    `user` is an id of this run alone, so that runs never see each other's memories. Calls for one
    user come one after another; calls for different users are concurrent.
    """

    name: str
    capabilities: Capabilities = Capabilities()

    @abstractmethod
    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        """Process a session; return the extracted memories, none if the system cannot report
        them."""

    @abstractmethod
    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        """Return the memories that fit the query best, at most `limit`, the best first."""

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        """Answer a question from memories; only called if the capabilities include `answers`."""
        raise AnswerError(f"{self.name}: gives no answer of its own")

    async def aclose(self) -> None:
        """Release the system's resources."""


class NoMemory(MemorySystem):
    """A baseline that stores and finds nothing, to measure the answers without any memory."""

    name = "none"

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        return ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return ()


class WholeContext(MemorySystem):
    """A baseline that returns all turns so far for every query, without a limit."""

    name = "context"
    capabilities = Capabilities(extracts=False)

    def __init__(self) -> None:
        self._turns: dict[str, list[str]] = {}

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        self._turns.setdefault(user, []).extend(write_turn(turn) for turn in dialogue)
        return ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return tuple(self._turns.get(user, ()))


ANSWER_WORDS = 30
"""The number of words of an answer that `RehearsedSystem` makes up."""


class RehearsedSystem(MemorySystem):
    """A stand-in for a memory system of one user, to estimate the cost of an evaluation.

    It extracts as many memories as there are points, each as long as the longest point, retrieves
    as many as it is asked for, and answers with `ANSWER_WORDS` words.
    """

    name = "rehearsed"

    def __init__(self, user: User, can: Capabilities) -> None:
        self.capabilities = replace(can, durable=False)
        self._sessions = iter([session for session in user.sessions if session.dialogue])
        points = [point.content for session in user.sessions for point in session.points]
        self._text = max(points, key=len, default="")

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        session = next(self._sessions)
        return [f"{session.index}.{n} {self._text}" for n in range(len(session.points))]

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return [f"{n} {self._text}" for n in range(limit)]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        return "word " * ANSWER_WORDS
