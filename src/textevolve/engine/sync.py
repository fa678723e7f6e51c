"""Waiting for async code from plain code, also where an event loop already runs (notebooks).

Async code runs on one event loop in a background thread. An interrupt in the waiting thread cancels
the work and waits for its clean end before it is raised again. What ends the loop itself, such as a
SystemExit in a task, is raised where the work is waited for: nobody waits for a loop that is gone.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_END: Any = object()

_blocked: list[asyncio.AbstractEventLoop] = []
"""Event loops whose thread waits here, such as a notebook's."""


def is_blocked(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether nothing goes on in this event loop until some work that is waited for is done."""
    return loop in _blocked


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for work of ours: uvloop's where that is installed, which takes less time for
    each call. A program that has a loop of its own chose it itself."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    return import_module("uvloop").new_event_loop()


class BackgroundLoop:
    """An event loop in a thread of its own, for as long as the `with` block."""

    def __enter__(self) -> BackgroundLoop:
        self._loop = new_loop()
        self._failure: BaseException | None = None
        self._guard = threading.Lock()
        self._waiting: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="textevolve", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
                return
            except (SystemExit, KeyboardInterrupt) as error:
                # Asyncio lets these end the loop. It goes on, so that what is open can be closed.
                self._failure = error
                for task in asyncio.all_tasks(self._loop):
                    task.cancel()
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                self._break(error)
                return

    def _break(self, error: BaseException) -> None:
        """The loop can do nothing more: tell all who wait."""
        with self._guard:
            self._failure = error
            self._loop.close()
            waiting = list(self._waiting)
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin the work; its result is to come."""
        with self._guard:
            if self._loop.is_closed():
                work.close()
                raise self._failure or RuntimeError("the event loop is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future

    def call_soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        with _block_this():
            return self._wait(work)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.submit(work).result()
        except BaseException as error:
            self._settle(work)
            if isinstance(error, CancelledError) and self._failure is not None:
                raise self._failure from None
            raise

    def _settle(self, work: Coroutine[Any, Any, Any]) -> None:
        """Cancel the work, if it is not done, and let it and what it began reach their end.

        Its task is looked up on the loop: an interrupt may have come before `submit` returned, or
        before it did anything.
        """

        if self._loop.is_closed():
            work.close()
            return

        async def settle() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if its := next((task for task in others if task.get_coro() is work), None):
                its.cancel()
                await asyncio.gather(*others, return_exceptions=True)
            work.close()

        self.submit(settle()).result()

    def __exit__(self, *_: object) -> None:
        if sys.is_finalizing():  # Python is ending, and its threads have stopped already
            return
        if self._loop.is_closed():
            self._thread.join()
            return

        async def close() -> None:
            await cancel_others()
            loop = asyncio.get_running_loop()
            await loop.shutdown_asyncgens()
            await loop.shutdown_default_executor()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def _block_this() -> Generator[None]:
    """Note that the event loop of this thread, if one runs, waits meanwhile."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    _blocked.append(loop)
    try:
        yield
    finally:
        _blocked.remove(loop)


async def cancel_others() -> None:
    """Cancel every other task of this event loop, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, waited for here."""
    with BackgroundLoop() as loop:
        return loop.wait(work)


def iterate(source: AsyncGenerator[T]) -> Generator[T]:
    """The items of `source` as they come; leaving the loop early closes it cleanly."""

    async def step() -> T:
        return await anext(source, _END)

    with BackgroundLoop() as loop:
        try:
            while (item := loop.wait(step())) is not _END:
                yield item
        finally:
            if not sys.is_finalizing():
                loop.wait(source.aclose())


class SyncMethod(Generic[P, T]):
    """A method that waits, made from an async one. Its owner says how, by `call_sync`."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, _kind: type) -> Callable[P, T]:
        if owner is None:  # the class is looked at, as by help()
            return self._method

        @functools.wraps(self._method)
        def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
            return owner.call_sync(self._method, *args, **kwargs)

        waiting.__wrapped__ = self._method.__get__(owner)  # whose signature has no `self`
        return waiting


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> SyncMethod[P, T]:
    """The method whose result is waited for."""
    return SyncMethod(method)


def iterated(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T]],
) -> SyncMethod[P, Generator[T]]:
    """The method whose items are waited for, one by one."""
    return SyncMethod(method)
