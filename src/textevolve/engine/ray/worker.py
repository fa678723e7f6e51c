"""What runs at a node: the actor, and the line between it and the driver."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeAlias

from textevolve.engine.local import cancel
from textevolve.engine.ray.cluster import pickled, unpickled
from textevolve.errors import ClusterError

GATHER_SECONDS = 0.005
"""How long letters are gathered."""

Letter: TypeAlias = tuple[str, int, Any]
"""Its kind ("question", "answer", "error" or "news"), the number of its question, its content."""


class Line:
    """One end of the line between the driver and a worker. Both ask questions, which the other end
    answers side by side, and tell news. `notice`: the last news.

    Letters are gathered, so that many travel at once.
    """

    def __init__(
        self,
        answer: Callable[[Any], Awaitable[Any]],
        hear: Callable[[Any], object] = lambda _news: None,
    ) -> None:
        self.notice: Any = None
        self._answer, self._hear = answer, hear
        self._letters: list[Letter] = []
        self._written = asyncio.Event()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Future[None]] = set()

    @property
    def waiting(self) -> int:
        """The number of questions whose answers are to come."""
        return len(self._waiting)

    async def ask(self, question: Any) -> Any:
        """Return the answer of the other end; an error that answering raised there is raised."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._write("question", number, question)
        try:
            return await answer
        finally:
            del self._waiting[number]

    def tell(self, news: Any) -> None:
        self._write("news", 0, news)

    def _write(self, kind: str, number: int, content: Any) -> None:
        self._letters.append((kind, number, content))
        self._written.set()

    async def gather(self) -> list[Letter]:
        """Return the letters to send; waits for the first."""
        await self._written.wait()
        await asyncio.sleep(GATHER_SECONDS)
        self._written.clear()
        letters, self._letters = self._letters, []
        return letters

    def take(self, letters: Sequence[Letter]) -> None:
        """Take letters of the other end."""
        for kind, number, content in letters:
            waiting = self._waiting.get(number)
            if kind == "question":
                answering = asyncio.ensure_future(self._reply(number, content))
                self._answering.add(answering)
                answering.add_done_callback(self._answering.discard)
            elif kind == "news":
                self.notice = content
                self._hear(content)
            elif waiting is None or waiting.done():  # whoever asked was cancelled
                continue
            elif kind == "error":
                waiting.set_exception(content)
            else:
                waiting.set_result(content)

    async def _reply(self, number: int, question: Any) -> None:
        try:
            self._write("answer", number, await self._answer(question))
        except Exception as error:  # noqa: BLE001  it is raised where the question was asked
            self._write("error", number, portable(error))

    def drop(self, error: BaseException) -> None:
        """End the waiting for answers with an error."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        self._written.set()
        await cancel(self._answering)


ItemWork: TypeAlias = Callable[[Any], Awaitable[Any]]
Opening: TypeAlias = Callable[[Line], AbstractAsyncContextManager[ItemWork]]
"""Called at a worker, where it opens what its work needs."""


class RayWorker:
    """The actor: works on items side by side."""

    def __init__(self, opening: bytes, at_once: int) -> None:
        self._opening = opening
        self._gate = asyncio.Semaphore(at_once)
        self._stack = AsyncExitStack()

    async def open(self) -> bytes:
        """Open what the work needs; return an error that this raised, packed."""
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of what a killed driver leaves
        self._line = Line(self._do)
        try:
            opening: Opening = unpickled(self._opening)
            self._work = await self._stack.enter_async_context(opening(self._line))
        except ImportError as error:
            return pickled(ClusterError(f"a node lacks code that the run needs ({error})"))
        except Exception as error:  # noqa: BLE001  it is raised at the driver
            return pickled(portable(error))
        return pickled(None)

    async def _do(self, item: Any) -> bytes:
        async with self._gate:
            return pickled(await self._work(item))

    async def give(self, packed: bytes) -> None:
        self._line.take(unpickled(packed))

    async def fetch(self) -> bytes:
        return pickled(await self._line.gather())

    async def close(self) -> None:
        await self._line.close()
        await self._stack.aclose()


def portable(error: Exception) -> Exception:
    """Return the error itself if the driver can have it, else one that says the same."""
    try:
        unpickled(pickled(error))
    except Exception:  # noqa: BLE001  whatever goes wrong, it does not travel
        return ClusterError(" ".join(f"{type(error).__name__}: {error}".split()))
    return error
