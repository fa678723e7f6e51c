"""Memories are made of turns beside the chat: one turn after the other, while nobody waits.

Which turns are still to be learned stands with the session, so nothing is lost where this ends
early. How memories are made is the business of `memory/creation.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from textevolve.agents.session import FinishedTurn
from textevolve.errors import TextEvolveError, public_message
from textevolve.llm.model import Model, Request, Response

Learn: TypeAlias = Callable[[FinishedTurn], Awaitable[tuple[str, ...]]]
"""Makes memories of a turn, once however often it is called; the ids of those that were kept."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of a turn. `ids`: of the memories that were kept; `error`: why none could be."""

    turn: FinishedTurn
    ids: tuple[str, ...] = ()
    error: str = ""

    @property
    def memories(self) -> int:
        """How many were kept."""
        return len(self.ids)


class Learner:
    """Learns turns in their order. `free` is set while no answer is being written."""

    def __init__(self, learn: Learn, free: asyncio.Event) -> None:
        self._learn = learn
        self.free = free
        self._waiting: deque[FinishedTurn] = deque()
        self._told: list[Learned] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many turns are still to be learned."""
        return len(self._waiting)

    def add(self, turn: FinishedTurn) -> None:
        self._waiting.append(turn)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            await self.free.wait()
            turn = self._waiting[0]
            try:
                learned = Learned(turn, await self._learn(turn))
            except TextEvolveError as error:
                learned = Learned(turn, error=public_message(error))
            self._told.append(learned)
            self._waiting.popleft()

    def tell(self) -> list[Learned]:
        """What became of turns since it was asked for last."""
        told, self._told = self._told, []
        return told

    async def finish(self) -> None:
        """Wait until all is learned."""
        if self._task is not None:
            await self._task

    async def aclose(self) -> None:
        """Stop; what is left is learned another time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class StandAside:
    """A model whose calls wait while somebody waits for an answer."""

    def __init__(self, model: Model, free: asyncio.Event) -> None:
        self.model = model
        self._free = free

    @property
    def name(self) -> str:
        return self.model.name

    async def __call__(self, request: Request, /) -> Response:
        await self._free.wait()
        return await self.model(request)
