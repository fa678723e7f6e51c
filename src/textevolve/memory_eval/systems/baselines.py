"""The two systems that any other is compared with: one that keeps nothing, one that keeps all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from textevolve.errors import AnswerError
from textevolve.memory_eval.dialogues import DialogueTurn, User
from textevolve.memory_eval.judging import ANSWER_TOKENS
from textevolve.memory_eval.system import Capabilities

_CONTEXT = Capabilities(extracts=False)


@dataclass(frozen=True, slots=True)
class NoMemory:
    """Takes nothing and finds nothing: what an answer is worth without any memory."""

    name: str = "none"
    capabilities: Capabilities = field(default_factory=Capabilities)

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        return ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return ()

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        raise AnswerError(f"{self.name}: gives no answer of its own")

    async def aclose(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class WholeContext:
    """Every turn so far, or the `last` so many, whatever was asked and whatever the limit is."""

    last: int | None = None
    capabilities: Capabilities = _CONTEXT
    _turns: dict[str, deque[str]] = field(default_factory=dict[str, "deque[str]"], repr=False)

    @property
    def name(self) -> str:
        return "context" if self.last is None else f"context:last={self.last}"

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        kept = self._turns.setdefault(user, deque(maxlen=self.last))
        kept.extend(show_turn(turn) for turn in dialogue)
        return ()

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return tuple(self._turns.get(user, ()))

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        raise AnswerError(f"{self.name}: gives no answer of its own")

    async def aclose(self) -> None:
        self._turns.clear()


def show_turn(turn: DialogueTurn) -> str:
    when = f"[{turn.timestamp}] " if turn.timestamp else ""
    return f"{when}{turn.role}: {turn.content}"


TIMES_EXTRACTED = 2


class RehearsedSystem:
    """For one user. It extracts and finds nothing; or (`longest`) it extracts twice as many
    memories as there are points, as long as the longest of them, finds as many as it is asked for,
    and answers at length."""

    name = "rehearsed"

    def __init__(self, user: User, can: Capabilities, *, longest: bool) -> None:
        self.capabilities = replace(can, durable=False)
        self._sessions = iter([one for one in user.sessions if one.dialogue])
        points = [point.content for one in user.sessions for point in one.points]
        self._text = max(points, key=len, default="")
        self._longest = longest

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        session = next(self._sessions)
        number = TIMES_EXTRACTED * len(session.points) if self._longest else 0
        return [f"{session.index}.{n} {self._text}" for n in range(number)]

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return [f"{n} {self._text}" for n in range(limit if self._longest else 0)]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        return "word " * ANSWER_TOKENS if self._longest else "unknown"

    async def aclose(self) -> None:
        """Nothing was opened."""
