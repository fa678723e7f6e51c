"""The two systems that any other is compared with: one that keeps nothing, one that keeps all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from textevolve.errors import AnswerError
from textevolve.memory_eval.dialogues import DialogueTurn
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
