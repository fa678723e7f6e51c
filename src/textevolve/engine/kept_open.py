"""Something that stays open between calls from anywhere: other threads, other event loops, no loop.

It is opened with the first work that needs it, on an event loop of its own, so that a local model
is started once and connections are kept. What is opened is the business of who opens it.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from textevolve.engine.sync import BackgroundLoop, cancel_others
from textevolve.errors import InputError

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")

_END: Any = object()


class KeptOpen(Generic[T]):
    """What `open` gives, until `close`, which the end of the program calls too.

    `open` is called once, with the stack that is unwound at the end. `refusal`: what is said to who
    comes after that.
    """

    def __init__(self, open: Callable[[AsyncExitStack], Awaitable[T]], refusal: str) -> None:
        self._open, self._refusal = open, refusal
        self._guard = threading.Lock()
        self._loop: BackgroundLoop | None = None
        self._closed = False
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._opened: list[T] = []
        # Not when it is opened: that may be while the program ends, which is too late.
        atexit.register(self.close)

    async def do(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """The result of the work, which is done on the loop that all of it shares.

        Raises:
            InputError: it is closed, also meanwhile.
        """
        begun = self._begin(work)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            if not self._closed or _is_cancelled():
                raise
            raise InputError(self._refusal) from None

    def wait(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """`do` for plain code; an interrupt ends the work.

        Raises:
            InputError: it is closed.
        """
        begun = self._begin(work)
        try:
            return begun.result()
        except BaseException:
            begun.cancel()
            raise

    def iterate(self, start: Callable[[T], AsyncGenerator[R]]) -> Generator[R]:
        """The items of a generator as they come; leaving early closes it.

        Raises:
            InputError: it is closed.
        """
        started: list[AsyncGenerator[R]] = []
        stepping = asyncio.Lock()

        async def step(opened: T) -> R:
            async with stepping:
                started[:] = started or [start(opened)]
                return await anext(started[0], _END)

        async def end(_opened: T) -> None:
            async with stepping:  # a step that was interrupted comes to its end first
                for items in started:
                    await items.aclose()

        try:
            while (item := self.wait(step)) is not _END:
                yield item
        finally:
            with suppress(InputError):  # it was closed meanwhile, which ended the generator
                self.wait(end)

    @property
    def current(self) -> T | None:
        """What is open, if it is."""
        return self._opened[0] if self._opened else None

    def notify(self, function: Callable[[], object]) -> None:
        """Call a function on the loop soon; also from a signal's handler."""
        loop = self._loop
        if loop is not None:
            loop.call_soon(function)

    def _begin(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> Future[R]:
        with self._guard:
            if self._closed:
                raise InputError(self._refusal)
            if self._loop is None:
                self._loop = BackgroundLoop().__enter__()
            return self._loop.submit(self._do(work))

    async def _do(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        async with self._opening:
            if not self._opened:
                async with AsyncExitStack() as stack:
                    self._opened.append(await self._open(stack))
                    self._stack = stack.pop_all()
        return await work(self._opened[0])

    def close(self) -> None:
        """Let go of what is open; work that is under way is ended. Twice is once."""
        with self._guard:
            loop, self._loop, self._closed = self._loop, None, True
        atexit.unregister(self.close)
        if loop is not None:
            try:
                loop.wait(self._let_go())
            finally:
                loop.__exit__(None, None, None)

    async def _let_go(self) -> None:
        await cancel_others()
        await self._stack.aclose()


class StaysOpen:
    """Something that stays open until `close`, or the end of its block."""

    kept: KeptOpen[Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close models and store; what is asked meanwhile is ended. Twice is once."""
        self.kept.close()


class SyncView(Generic[A]):
    """A part of what is open, whose async methods are waited for. `pick` finds the part."""

    def __init__(self, kept: KeptOpen[Any], pick: Callable[[Any], A]) -> None:
        self.kept, self._pick = kept, pick

    def call_sync(self, method: Callable[..., Coroutine[Any, Any, R]], *args: Any, **kw: Any) -> R:
        return self.kept.wait(lambda opened: method(self._pick(opened), *args, **kw))


def _is_cancelled() -> bool:
    """Whether it is the caller who is cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
