"""A thread for code that is not async: one job at a time, and the program's end does not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from textevolve.errors import AnswerError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    def do(self) -> None:
        value, failed = None, None
        try:
            value = self.work()
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            # These would not come through a future, or would end the program.
            failed = AnswerError(f"raised {type(error).__name__}: {error}".rstrip(": "))
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._settle, value, failed)

    def _settle(self, value: Any, failed: BaseException | None) -> None:
        if self.future.done():
            return
        if failed is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(failed)


class Worker:
    """A daemon thread, started with the first job. What is cancelled before it began is not begun;
    what has begun goes on, and what it gives is dropped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(_Job(work, loop, future))
        return await future

    def stop(self) -> None:
        """After what is waiting."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.future.cancelled():
                job.do()
            del job  # or it would hold what it gave until the next comes
