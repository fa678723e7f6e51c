"""Functions that run async work on many items on one event loop. They limit how many items are
worked on at the same time, and how many results wait in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


async def gather_bounded(work: Sequence[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """Call all functions, at most `limit` at a time, and return their results in order.

    The first error cancels the rest and is raised.
    """
    if limit == 1 or len(work) == 1:
        return [await piece() for piece in work]
    gate = asyncio.Semaphore(limit)

    async def run(piece: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await piece()

    tasks = [asyncio.ensure_future(run(piece)) for piece in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await cancel(tasks)


async def stream(
    items: Iterable[T],
    work: Callable[[T], Awaitable[R]],
    limit: int | Callable[[], int],
    *,
    ordered: bool = True,
    ahead: int = 4,
) -> AsyncGenerator[R]:
    """Yield the results of `work` on each of the items, at most `limit` in flight; items are read
    lazily. If `limit` is a function, it is called again whenever more work can start.

    `ordered` keeps the items' order: then at most `ahead` x `limit` results wait for a slow one
    before them, so memory stays flat over any number of items. Otherwise results come as they
    finish. The first error cancels the rest and is raised.
    """
    source = iter(items)
    waiting: deque[asyncio.Future[R]] = deque()
    running: set[asyncio.Future[R]] = set()
    progress = asyncio.Event()

    def finish(task: asyncio.Future[R]) -> None:
        running.discard(task)
        if not ordered:
            waiting.append(task)
        progress.set()

    def fill() -> bool:
        """Start as much work as the limit allows; return False once there are no more items."""
        most = limit if isinstance(limit, int) else limit()
        while len(running) < most and len(running) + len(waiting) < most * ahead:
            try:
                item = next(source)
            except StopIteration:
                return False

            task = asyncio.ensure_future(work(item))
            running.add(task)
            task.add_done_callback(finish)
            if ordered:
                waiting.append(task)

        return True

    more = True

    try:
        while True:
            more = more and fill()
            if waiting and waiting[0].done():
                yield waiting.popleft().result()
            elif running or waiting:
                progress.clear()
                await progress.wait()
            elif not more:
                return
    finally:
        await cancel([*running, *waiting])


async def follow_updates(
    work: Callable[[Callable[[T], None]], Awaitable[T]],
) -> AsyncGenerator[T]:
    """Yield the intermediate results of a long piece of work, and at last its result.

    `work` is called with a function to which it passes each intermediate result, between any two of
    its awaits.
    """
    updates: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(work(updates.put_nowait))
    task.add_done_callback(updates.put_nowait)

    try:
        while (update := await updates.get()) is not task:
            yield update
        yield task.result()
    finally:
        await cancel([task])


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel the tasks that still run and wait until they have ended."""
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def pipe(
    sources: Iterable[S],
    produce: Callable[[S], AsyncGenerator[T]],
    work: Callable[[T], Awaitable[R]],
    *,
    source_concurrency: int,
    concurrency: int,
) -> AsyncGenerator[R]:
    """Split each source into pieces with `produce`, call `work` on each piece, and yield the
    results as they finish.

    At most `source_concurrency` sources are read at a time, lazily; the pieces of one source start
    in its order. At most `concurrency` pieces and results are held, plus one piece for each source.
    The first error stops all work, and is raised after the results that finished before it.
    """
    gate = asyncio.Semaphore(concurrency)
    running: set[asyncio.Future[R]] = set()
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
