"""Two stages side by side: sources yield pieces, and each piece is worked on once it is there.

Nothing waits for a phase to end, and nothing piles up: a stage that is ahead waits for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

from textevolve.engine.local import cancel, stream

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


async def pipe(
    sources: Iterable[S],
    produce: Callable[[S], AsyncGenerator[T]],
    work: Callable[[T], Awaitable[R]],
    *,
    source_concurrency: int,
    concurrency: int,
) -> AsyncGenerator[R]:
    """Yield the results of `work` on every piece that `produce` makes of the sources, as they
    finish.

    Sources are read lazily, so many at a time; pieces of one source are begun in its order. So many
    pieces and results as `concurrency` are kept, and one more for each source. The first error ends
    everything, and is raised after the results that were there before it.
    """
    gate, running = asyncio.Semaphore(concurrency), set[asyncio.Future[R]]()
    done: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()

    def finish(task: asyncio.Future[R]) -> None:
        running.discard(task)
        done.put_nowait(task)

    async def read(source: S) -> None:
        async with aclosing(produce(source)) as pieces:
            async for piece in pieces:
                await gate.acquire()
                task = asyncio.ensure_future(work(piece))
                running.add(task)
                task.add_done_callback(finish)

    async def read_all() -> None:
        async with aclosing(stream(sources, read, source_concurrency, ordered=False)) as readings:
            async for _ in readings:
                pass
        if running:
            await asyncio.wait(running)

    reading = asyncio.ensure_future(read_all())
    reading.add_done_callback(done.put_nowait)
    try:
        while (task := await done.get()) is not reading:
            yield _result_of(task)
            gate.release()
        _result_of(reading)
    finally:
        try:
            await cancel([reading])  # until it has ended it may begin more work
        finally:
            await cancel(running)


def _result_of(task: asyncio.Future[R]) -> R:
    if task.cancelled():  # so that it does not pass for a cancellation of the reader
        raise RuntimeError("a stage was cancelled, and not from here")
    return task.result()
