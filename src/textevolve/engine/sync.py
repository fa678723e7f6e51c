"""Wait for async code from plain code, also where an event loop already runs, as in notebooks.

The async code runs on an event loop in a background thread. An interrupt in the waiting thread
cancels the work and is raised again after the work has ended. An error that ends the loop itself,
such as a SystemExit in a task, is raised in the waiting thread.

`run` and `iterate` have such a loop for one piece of work. `KeptOpen` has one for a resource that
stays open between calls from other threads, from other event loops or from plain code.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 # pyright: ignore[reportUnusedImport]
import functools
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from textevolve.errors import InputError
from textevolve.system import after_fork

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")

_END: Any = object()

_blocked: list[asyncio.AbstractEventLoop] = []
"""The event loops whose thread is blocked by waiting for async work here, such as the loop of a
notebook."""


def is_blocked(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the thread of this event loop is blocked, waiting for async work to finish."""
    return loop in _blocked


@functools.cache
def loop_module() -> ModuleType:
    """Return the module whose `new_event_loop` makes the loops for our own work: uvloop if it is
    installed, since it takes less time for each call, or else asyncio. To find this out reads all
    folders of packages. A program with a running loop keeps its own.

    uvloop imports `concurrent.futures.thread`, which cannot be loaded while a program ends: this
    module has loaded it before.
    """
    return import_module("uvloop" if find_spec("uvloop") else "asyncio")


class BackgroundLoop:
    """An event loop that runs in a thread of its own until `close` or the end of the
    `with` block."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = loop_module().new_event_loop()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="textevolve", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                return self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Asyncio lets these end the loop. It goes on, so that what is open can be closed.
                self._failure = error
                for task in asyncio.all_tasks(self.loop):
                    task.cancel()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, and return a future for its result.

        Raises:
            InputError: the loop was begun before a fork, so nothing runs it in this process.
        """
        if not self._thread.is_alive():
            work.close()
            raise InputError(
                "this was begun before the process was forked, and cannot go on in the forked"
                " process: begin it there"
            )

        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupt of the caller
        cancels it."""
        return self.wait_for(self.submit(work))

    def wait_for(self, begun: Future[T]) -> T:
        with _block_this():
            try:
                return begun.result()
            except CancelledError as error:
                raise self._failure or error from None
            except BaseException:
                begun.cancel()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel all running tasks, and stop the loop and its thread."""
        # Python is ending, and its threads have stopped already; or this is a forked process.
        if sys.is_finalizing() or not self._thread.is_alive():
            return

        async def end() -> None:
            await cancel_others()
            await self.loop.shutdown_asyncgens()
            await self.loop.shutdown_default_executor()

        self.submit(end()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextmanager
def _block_this() -> Generator[None]:
    """Mark the event loop of this thread, if one is running, as blocked within the block."""
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
    """Cancel every other task of this event loop, and wait until all have ended."""
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for task in pending:
        if not task.cancelling():  # else it comes to its end, which must not be interrupted
            task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop in a background thread, and return its result."""
    with BackgroundLoop() as loop:
        return loop.wait(work)


def iterate(source: AsyncGenerator[T]) -> Generator[T]:
    """Yield the items of an async generator; ending the iteration early closes the generator."""
    with BackgroundLoop() as loop:
        yield from _take_items(lambda: source, lambda step: loop.wait(step()), lambda: False)


def _take_items(
    start: Callable[[], AsyncGenerator[T]],
    wait: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any],
    is_closed: Callable[[], bool],
) -> Generator[T]:
    """Yield the items of an async generator. `start` creates the generator, with the first step;
    `wait` runs a coroutine and waits for its result; `is_closed` tells whether the event loop has
    gone, so that the generator cannot be closed at the end."""
    stepping = asyncio.Lock()
    started: list[AsyncGenerator[T]] = []

    async def step() -> T:
        async with stepping:
            started[:] = started or [start()]
            return await anext(started[0], _END)

    async def end() -> None:
        async with stepping:  # a step that was interrupted comes to its end first
            for source in started:
                await source.aclose()

    try:
        while (item := wait(step)) is not _END:
            yield item
    finally:
        if not (sys.is_finalizing() or is_closed()):
            wait(end)


class SyncMethod(Generic[P, T]):
    """A descriptor that turns an async method into a blocking one. The owner's `call_sync` runs the
    async method."""

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
        vars(waiting).pop("__signature__", None)  # copied from the method, with its `self`

        return waiting


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> SyncMethod[P, T]:
    """Return a blocking version of an async method."""
    return SyncMethod(method)


def iterated(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T]],
) -> SyncMethod[P, Generator[T]]:
    """Return a version of an async generator method that is a plain generator."""
    return SyncMethod(method)


class KeptOpen(Generic[T]):
    """A resource that is opened with its first use and stays open until `close` or the end of the
    program. It has an event loop of its own, on which its async methods run.

    A forked process opens the resource anew with its first use there.

    `open` returns a context manager of the resource, which is left when it is closed.
    `refusal`: the message of the error if the resource is used after `close`.
    """

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[T]], refusal: str) -> None:
        self._open = open
        self._refusal = refusal
        self._closed = False
        self._of_parent: list[object] = []
        self._begin_unopened()
        _kept_open.add(self)
        # Not when it is opened: that may be while the program ends, which is too late.
        atexit.register(self.close)

    def _begin_unopened(self) -> None:
        self._guard = threading.Lock()
        self._opening = asyncio.Lock()
        self._loop: BackgroundLoop | None = None
        self._stack = AsyncExitStack()
        self.current: T | None = None

    def begin_anew(self) -> None:
        """Forget what is open, in a forked process: it belongs to the parent, whose thread and
        connections do not work here. It is not closed, which could end them for the parent."""
        self._of_parent += [self._loop, self._stack, self.current]
        self._begin_unopened()

    async def do(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """Run async work with the resource on the resource's own event loop, and return the result.

        Raises:
            InputError: the resource is closed, before or during the work.
        """
        begun = self._begin(work)[1]

        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            raise InputError(self._refusal) from None

    def wait(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """Do the same as `do`, but block until the result is there; an interrupt cancels the work.

        Raises:
            InputError: the resource was closed before the call.
            CancelledError: the resource was closed during the work.
        """
        loop, begun = self._begin(work)
        return loop.wait_for(begun)

    def iterate(self, start: Callable[[T], AsyncGenerator[R]]) -> Generator[R]:
        """Yield the items of an async generator; ending the iteration early closes the generator.

        Raises:
            InputError: the resource is closed.
        """

        yield from _take_items(
            lambda: start(cast(T, self.current)),
            lambda step: self.wait(lambda _: step()),
            lambda: self._closed,
        )

    def _begin(
        self, work: Callable[[T], Coroutine[Any, Any, R]]
    ) -> tuple[BackgroundLoop, Future[R]]:
        with self._guard:
            if self._closed:
                raise InputError(self._refusal)
            self._loop = self._loop or BackgroundLoop()
            return self._loop, self._loop.submit(self._do(work))

    async def _do(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        async with self._opening:
            if self.current is None:
                self.current = await self._stack.enter_async_context(self._open())

        return await work(self.current)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the resource's event loop if it is open; safe in signal handlers."""
        if self._loop is not None:
            self._loop.loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel running work and close the resource; may be called repeatedly."""
        with self._guard:
            loop = self._loop
            self._loop = None
            self._closed = True

        atexit.unregister(self.close)
        if loop is not None:
            with loop:
                loop.wait(self._let_go())

    async def _let_go(self) -> None:
        await cancel_others()
        await self._stack.aclose()


def _begin_all_anew() -> None:
    _blocked.clear()
    for open_thing in list(_kept_open):
        open_thing.begin_anew()


_kept_open: weakref.WeakSet[KeptOpen[Any]] = weakref.WeakSet()
"""All resources that may be open."""
after_fork(_begin_all_anew)


class StaysOpen:
    """The base class of objects that stay open until `close` or the end of their `with` block.
    `resource`: the object that is closed then."""

    resource: KeptOpen[Any]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel running calls, and close models and store; may be called repeatedly."""
        self.resource.close()


class SyncView(Generic[A]):
    """The base class of blocking interfaces to a part of an open resource. `pick` returns the
    part."""

    def __init__(self, resource: KeptOpen[Any], pick: Callable[[Any], A]) -> None:
        self.resource = resource
        self._pick = pick

    def call_sync(self, method: Callable[..., Coroutine[Any, Any, R]], *args: Any, **kw: Any) -> R:
        return self.resource.wait(lambda opened: method(self._pick(opened), *args, **kw))
