"""What runs at a node: the actor, and its line to the driver."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeAlias

from textevolve.engine.local import cancel
from textevolve.engine.ray.cluster import pickled, unpickled
from textevolve.errors import ClusterError

GATHER_SECONDS = 0.005
"""How long letters are gathered."""

Letter: TypeAlias = tuple[str, int, Any]
"""Its kind, the number of its item or question, and its content. To a worker: "item", "answer",
"refusal", "notice"; from it: "result" (packed), "failure", "question", "news"."""


class Outbox:
    """Letters that wait to be sent, many at once."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._written = asyncio.Event()

    def write(self, kind: str, number: int, content: Any) -> None:
        self._letters.append((kind, number, content))
        self._written.set()

    def end(self) -> None:
        """Let whoever gathers go: no letter comes any more."""
        self._written.set()

    async def gather(self) -> list[Letter]:
        """Return the letters that were written; waits for the first."""
        await self._written.wait()
        await asyncio.sleep(GATHER_SECONDS)
        self._written.clear()
        letters, self._letters = self._letters, []
        return letters


class DriverLine:
    """The link of work at a worker to its driver. `notice`: the last that the driver sent."""

    def __init__(self, outbox: Outbox) -> None:
        self.notice: Any = None
        self._outbox = outbox
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, question: Any) -> Any:
        """Return the driver's answer; an error that answering raised there is raised here."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._outbox.write("question", number, question)
        try:
            return await answer
        finally:
            del self._answers[number]

    def tell(self, news: Any) -> None:
        self._outbox.write("news", 0, news)

    def take(self, kind: str, number: int, content: Any) -> None:
        """Take a letter of the driver."""
        answer = self._answers.get(number)
        if kind == "notice":
            self.notice = content
        elif answer is None or answer.done():  # whoever asked was cancelled
            return
        elif kind == "refusal":
            answer.set_exception(content)
        else:
            answer.set_result(content)


ItemWork: TypeAlias = Callable[[Any], Awaitable[Any]]
Opening: TypeAlias = Callable[[DriverLine], AbstractAsyncContextManager[ItemWork]]
"""Called at a worker, where it opens what its work needs."""


class RayWorker:
    """The actor: works on items side by side."""

    def __init__(self, opening: bytes, at_once: int) -> None:
        self._opening = opening
        self._gate = asyncio.Semaphore(at_once)
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> bytes:
        """Open what the work needs; return an error that this raised, packed."""
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of what a killed driver leaves
        self._outbox = Outbox()
        self._line = DriverLine(self._outbox)
        try:
            opening: Opening = unpickled(self._opening)
            self._work = await self._stack.enter_async_context(opening(self._line))
        except ImportError as error:
            return pickled(ClusterError(f"a node lacks code that the run needs ({error})"))
        except Exception as error:  # noqa: BLE001  it is raised at the driver
            return pickled(portable(error))
        return pickled(None)

    async def give(self, packed: bytes) -> None:
        for kind, number, content in unpickled(packed):
            if kind == "item":
                task = asyncio.ensure_future(self._do(number, content))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._line.take(kind, number, content)

    async def _do(self, number: int, item: Any) -> None:
        async with self._gate:
            try:
                self._outbox.write("result", number, pickled(await self._work(item)))
            except Exception as error:  # noqa: BLE001  it is raised at the driver
                self._outbox.write("failure", number, portable(error))

    async def fetch(self) -> bytes:
        return pickled(await self._outbox.gather())

    async def close(self) -> None:
        self._outbox.end()
        await cancel(self._tasks)
        await self._stack.aclose()


def portable(error: Exception) -> Exception:
    """Return the error itself if the driver can have it, else one that says the same."""
    try:
        unpickled(pickled(error))
    except Exception:  # noqa: BLE001  whatever goes wrong, it does not travel
        return ClusterError(" ".join(f"{type(error).__name__}: {error}".split()))
    return error
