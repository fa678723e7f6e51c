"""Stands where a memory system will be while a study is rehearsed: nothing is sent anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textevolve.memory_eval import answering
from textevolve.memory_eval.dialogues import DialogueTurn, User
from textevolve.memory_eval.system import Capabilities

TIMES_EXTRACTED = 2


class Rehearsed:
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
        return "word " * answering.MAX_TOKENS if self._longest else "unknown"

    async def aclose(self) -> None:
        """Nothing was opened."""
