"""Who works on a run: one process at a time, and in a process one after the other.

Whoever asks for a run that is being done in this process waits for its end, and then finds all
answers in the journal: equal calls at the same time are one run. The lease of `store` keeps other
processes out, and says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textevolve.engine import sync

if TYPE_CHECKING:
    from textevolve.store.repository import Store


@dataclass(frozen=True)
class _Turn:
    loop: asyncio.AbstractEventLoop
    done: Future[None] = field(default_factory=Future[None])


_turns: dict[tuple[str, str], _Turn] = {}
_guard = threading.Lock()


@asynccontextmanager
async def hold(store: Store, run_id: str, *, ends: bool = True) -> AsyncGenerator[None]:
    """Work on a run. `ends`: this work comes to its end by itself, so that others may wait for it;
    results that are read one by one may never be read to their end.

    Raises:
        StoreError: another process works on it, or what cannot be waited for in this one.
    """
    key = store.place, run_id
    mine = _Turn(asyncio.get_running_loop())
    while (other := _take(key, mine if ends else None)) is not None:
        if sync.is_blocked(other.loop):  # by who waits here: it would be for ever
            break
        await _wait(other)
    try:
        with store.lease(run_id):
            yield
    finally:
        with _guard:
            if _turns.get(key) is mine:
                del _turns[key]
        mine.done.set_result(None)


def _take(key: tuple[str, str], turn: _Turn | None) -> _Turn | None:
    """Whose turn it is; None where nobody else had it."""
    with _guard:
        other = _turns.get(key)
        if other is None and turn is not None:
            _turns[key] = turn
        return other


async def _wait(other: _Turn) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Future[None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    other.done.add_done_callback(wake)
    await ended.wait()
