"""How long a call of the server inside our process may take: as long as that server gets on.

On a busy machine an answer takes minutes that takes seconds on an idle one, and asking again only
makes it worse. So the server is looked at while a call waits: whatever changes in its slots (a part
of a prompt read, a token written, another call's turn) is progress. Without any, the call fails.
Not here: how long a call of any other endpoint may take (`client`, `wrappers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from textevolve.errors import ModelError, UnavailableError
from textevolve.events import CallSlow, Listener
from textevolve.llm.hardware import load_per_core
from textevolve.llm.wrappers import put_off_deadline

T = TypeVar("T")

EVERY = 5.0
"""Seconds between two looks at the server, at most; a call of less than one is not watched, and one
of two is announced as slow."""


class ProgressWatch:
    """Follows the calls of one server. `look` gives its state as bytes, `patience` is how many
    seconds it may stay the same."""

    def __init__(
        self,
        name: str,
        look: Callable[[], Awaitable[bytes]],
        patience: float,
        listener: Listener,
    ) -> None:
        self._name = name
        self._look = look
        self._patience = patience
        self._listener = listener
        self._every = min(EVERY, patience / 4)
        self._state = b""
        self._moved = 0.0
        self._in_flight = 0
        self._answered = 0
        self._seconds = 0.0

    async def follow(self, call: Coroutine[Any, Any, T]) -> T:
        """What the call gives. Raises UnavailableError where the server has stopped getting on."""
        began = asyncio.get_running_loop().time()
        if not self._in_flight:  # idle before, which is no standstill
            self._moved = began
        self._in_flight += 1
        answer = asyncio.ensure_future(call)
        watch = asyncio.ensure_future(self._watch(began))
        try:
            await asyncio.wait({answer, watch}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else watch.result()
        finally:
            self._in_flight -= 1
            for task in (answer, watch):
                task.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
            if not answer.cancelled() and answer.exception() is None:
                self._moved = asyncio.get_running_loop().time()
                self._answered += 1
                self._seconds += self._moved - began

    async def _watch(self, began: float) -> Any:
        """Ends only with an error. Time with progress does not count for the call's deadline."""
        loop, counted = asyncio.get_running_loop(), began
        while True:
            await asyncio.sleep(self._every)
            await self._note_progress()
            if self._moved > counted:
                put_off_deadline(self._moved - counted)
                counted = self._moved
            now = loop.time()
            if now - self._moved >= self._patience:
                raise UnavailableError(
                    f"{self._name}: the local model has made no progress for {self._patience:g} s"
                )
            if now - began >= 2 * self._every:
                each = self._seconds / self._answered if self._answered else None
                slow = CallSlow(self._name, now - began, self._answered, each, load_per_core())
                self._listener(slow)

    async def _note_progress(self) -> None:
        """What a server does not say, or not in time, is no progress."""
        state, now = self._state, asyncio.get_running_loop().time()
        try:
            # However late this turn of the loop has come, the server has its time to say.
            async with asyncio.timeout_at(max(self._moved + self._patience, now + self._every)):
                state = await self._look()
        except (TimeoutError, ModelError):
            pass
        if state != self._state:
            self._state = state
            self._moved = asyncio.get_running_loop().time()
