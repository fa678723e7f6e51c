"""Objects whose methods are awaited, made into such as wait: one function makes the second from the
first, so that both do the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from textevolve.engine.sync import BackgroundLoop

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


class Waiting(Generic[A]):
    """Stands before an object whose methods are awaited, on an event loop of its own; it also works
    where another one runs, as in a notebook."""

    def __init__(self, inner: A, loop: BackgroundLoop) -> None:
        self._inner, self._loop = inner, loop


class Waited(Generic[P, T]):
    """A method of `Waiting`: the one that is given, waited for."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Waiting[Any] | None, _kind: type) -> Callable[P, T]:
        if owner is None:  # the class is looked at, as by help()
            return cast(Callable[P, T], self._method)
        loop, inner = owner._loop, owner._inner  # pyright: ignore[reportPrivateUsage]

        @functools.wraps(self._method)
        def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
            return loop.wait(self._method(inner, *args, **kwargs))

        return waiting


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Waited[P, T]:
    return Waited(method)
