"""Wrap the user's callables of every kind, so that something is done around each call and nothing
else changes.

A wrapped callable is of the same kind as before: a function, a coroutine function, or a generator
of either kind. What its caller sends, throws and closes arrives in the user's code, and what that
code returns, yields and raises arrives at the caller, as PEP 380 and PEP 525 define it for
`yield from`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar, cast

from textevolve.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
CallableKind = Literal["function", "coroutine", "generator", "async generator"]


class NoListener:
    """A listener to which nothing matters."""

    def returned(self, value: Any) -> None: ...

    def yielded(self, value: Any) -> None: ...


class CallListener(Protocol):
    """Gets what a call returns or yields. It must neither raise nor change the values."""

    def returned(self, value: Any) -> None: ...

    def yielded(self, value: Any) -> None: ...


Surround = Callable[[tuple[Any, ...], dict[str, Any]], AbstractContextManager[CallListener]]
"""Returns the block in which a call runs, from its positional and keyword arguments. The block
lets exceptions of the call pass."""


def kind_of(function: object) -> CallableKind:
    """Return the kind of a callable. Of a partial its function tells, of an object its method
    `__call__`; a class is a function, whatever its objects are."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = getattr(type(function), "__call__", None)  # noqa: B004

    if inspect.isasyncgenfunction(function):
        return "async generator"
    if inspect.isgeneratorfunction(function):
        return "generator"

    return "coroutine" if inspect.iscoroutinefunction(function) else "function"


def inner_function(function: Any) -> Any:
    """Return the function within a class method or a static method that no class has bound yet;
    any other callable is returned as it is."""
    is_unbound = isinstance(function, classmethod | staticmethod)
    return cast(Any, function).__func__ if is_unbound else function


def wrap_callable(function: F, surround: Surround) -> F:
    """Return a callable that behaves as `function` does, and runs each call within a block.

    Raises:
        InputError: it is not callable, such as a property.
    """
    if isinstance(function, classmethod | staticmethod):
        # The decorator stands above the other one: what is inside is wrapped, and stays a method.
        rebuild = cast(Any, type(cast(Any, function)))
        return rebuild(wrap_callable(inner_function(function), surround))
    if not callable(function):
        raise InputError(
            f"a {type(function).__name__} is not callable, so it cannot be watched; if it is made"
            " by a decorator, write ours below that one"
        )

    def call(*args: Any, **kwargs: Any) -> Any:
        with surround(args, kwargs) as listener:
            result = function(*args, **kwargs)
            listener.returned(result)
        return result

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with surround(args, kwargs) as listener:
            result = await function(*args, **kwargs)
            listener.returned(result)
        return result

    def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with surround(args, kwargs) as listener:
            result = yield from _delegate(function(*args, **kwargs), listener)
        return result

    async def generate_async(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with surround(args, kwargs) as listener:
            source: AsyncGenerator[Any, Any] = function(*args, **kwargs)
            step = source.__anext__
            while True:
                try:
                    value = await step()
                except StopAsyncIteration:
                    break
                listener.yielded(value)

                try:
                    sent = yield value
                except GeneratorExit:
                    await source.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  the source decides about each one
                    step = functools.partial(source.athrow, error)
                else:
                    step = functools.partial(source.asend, sent)

    wrappers: dict[CallableKind, Callable[..., Any]] = {
        "function": call,
        "coroutine": call_async,
        "generator": generate,
        "async generator": generate_async,
    }

    return cast(F, functools.wraps(function)(wrappers[kind_of(function)]))


def _delegate(source: Generator[Any, Any, Any], listener: CallListener) -> Generator[Any, Any, Any]:
    """Do what `yield from source` does, and tell the listener of each value."""
    step = source.__next__
    while True:
        try:
            value = step()
        except StopIteration as stop:
            return stop.value
        listener.yielded(value)

        # The next step is made outside of these blocks: an error in it has no other error before.
        try:
            sent = yield value
        except GeneratorExit:
            source.close()
            raise
        except BaseException as error:  # noqa: BLE001  the source decides about each one
            step = functools.partial(source.throw, error)
        else:
            step = functools.partial(source.send, sent)
