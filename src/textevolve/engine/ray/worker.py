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
from textevolve.errors import ClusterError, InputError

GATHER_SECONDS = 0.005
"""How long letters are gathered."""

Letter: TypeAlias = tuple[str, int, Any]
"""What it is, of which item or question, and what it says. To a worker: "item", "answer",
"refusal", "notice"; from it: "result", "failure", "question", "news"."""


class DriverLine:
    """What work at a worker has of the driver. `notice`: what the driver notified of last."""

    def __init__(self) -> None:
        self.notice: Any = None
        self._letters: list[Letter] = []
        self._written = asyncio.Event()
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, question: Any) -> Any:
        """The driver's answer; an error that answering raised there is raised here."""
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self.write(("question", number, question))
        try:
            return await self._asked[number]
        finally:
            del self._asked[number]

    def tell(self, news: Any) -> None:
        self.write(("news", 0, news))

    def write(self, letter: Letter) -> None:
        self._letters.append(letter)
        self._written.set()

    def take_answer(self, kind: str, number: int, said: Any) -> None:
        asked = self._asked.get(number)
        if asked is None or asked.done():  # whoever asked was cancelled
            return
        if kind == "refusal":
            asked.set_exception(said)
        else:
            asked.set_result(said)

    def end(self) -> None:
        """Nothing comes any more: who waits for letters need not."""
        self._written.set()

    async def gather(self) -> list[Letter]:
        """The letters that were written; waits for the first."""
        await self._written.wait()
        await asyncio.sleep(GATHER_SECONDS)
        self._written.clear()
        letters, self._letters = self._letters, []
        return letters


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
        self._work: ItemWork | None = None

    async def open(self) -> bytes:
        """Opens what the work needs; gives an error that this raised, packed."""
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of what a killed driver leaves
        self._line = DriverLine()
        try:
            opening: Opening = unpickled(self._opening)
            self._work = await self._stack.enter_async_context(opening(self._line))
        except ImportError as error:
            return pickled(ClusterError(f"a node lacks code that the run needs ({error})"))
        except Exception as error:  # noqa: BLE001  it is raised at the driver
            return pickled(portable(error))
        return pickled(None)

    async def give(self, packed: bytes) -> None:
        for kind, number, said in unpickled(packed):
            if kind == "item":
                task = asyncio.ensure_future(self._do(number, said))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif kind == "notice":
                self._line.notice = said
            else:
                self._line.take_answer(kind, number, said)

    async def _do(self, number: int, item: Any) -> None:
        assert self._work is not None
        async with self._gate:
            try:
                letter: Letter = ("result", number, await self._work(item))
            except Exception as error:  # noqa: BLE001  it is raised at the driver
                letter = ("failure", number, portable(error))
        self._line.write(letter)

    async def fetch(self) -> bytes:
        letters = await self._line.gather()
        try:
            return pickled(letters)
        except InputError:
            return pickled([_sendable(letter) for letter in letters])

    async def close(self) -> None:
        self._line.end()
        await cancel(self._tasks)
        await self._stack.aclose()


def portable(error: Exception) -> Exception:
    """The error itself where the driver can have it, else one that says the same."""
    try:
        unpickled(pickled(error))
    except Exception:  # noqa: BLE001  whatever goes wrong, it does not travel
        return ClusterError(" ".join(f"{type(error).__name__}: {error}".split()))
    return error


def _sendable(letter: Letter) -> Letter:
    kind, number, said = letter
    try:
        pickled(said)
    except InputError as error:
        if kind in ("news", "question"):
            raise
        return "failure", number, InputError(f"what was made of a case {error}")
    return letter
