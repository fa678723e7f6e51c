"""Two stages side by side: sources yield pieces, and each piece is worked on once it is there.

Nothing waits for a phase to end, and nothing piles up: a stage that is ahead waits for the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from textevolve.engine.local import cancel, stream

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None = None


async def pipe(
    sources: Iterable[S],
    produce: Callable[[S], AsyncGenerator[T]],
    work: Callable[[T], Awaitable[R]],
    *,
    source_concurrency: int,
    concurrency: int,
) -> AsyncGenerator[R]:
    """Results of `work` on every piece that `produce` makes of the sources, as they finish.

    Sources are read lazily, so many at a time; pieces of one source are begun in its order. At most
    three times `concurrency` pieces and results are kept, and one more for each source. The first
    error ends everything, and is raised after the results that were there before it.
    """
    waiting: asyncio.Queue[T | _End] = asyncio.Queue(concurrency)
    done: asyncio.Queue[R | _End] = asyncio.Queue(concurrency)

    async def read(source: S) -> None:
        async with aclosing(produce(source)) as pieces:
            async for piece in pieces:
                await waiting.put(piece)

    async def read_all() -> None:
        async with aclosing(stream(sources, read, source_concurrency, ordered=False)) as read_ones:
            async for _ in read_ones:
                pass
        for _ in range(concurrency):
            await waiting.put(_End())

    async def work_on() -> None:
        while not isinstance(piece := await waiting.get(), _End):
            await done.put(await work(piece))

    async def run() -> None:
        stages: list[asyncio.Future[Any]] = [asyncio.ensure_future(read_all())]
        stages += [asyncio.ensure_future(work_on()) for _ in range(concurrency)]
        end = _End()
        try:
            await asyncio.gather(*stages)
        except asyncio.CancelledError:
            if running.cancelling():
                raise
            end = _End(RuntimeError("a stage was cancelled, and not from here"))
        except BaseException as error:  # noqa: BLE001  raised where the results are read
            end = _End(error)
        finally:
            await cancel(stages)
        await done.put(end)

    running = asyncio.ensure_future(run())
    try:
        while not isinstance(result := await done.get(), _End):
            yield result
        if result.error is not None:
            raise result.error
    finally:
        await cancel([running])
