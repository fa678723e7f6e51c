"""How modules are loaded, heavy ones at their first use, and when the garbage collector runs."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

# A setting of Python's garbage collector for the time when many tasks are in flight. The setting
# is one for the whole process, so nested and concurrent uses share it.

USUAL = (700, 10, 10)
"""Python's default thresholds of the garbage collector. If a program has set others, they stay."""
CALM = (20_000, 20, 20)

_guard = threading.Lock()
_open = 0
"""The number of `rare_collections` blocks that are currently open."""


@contextmanager
def rare_collections() -> Generator[None]:
    """Run Python's garbage collector less often within the block: with hundreds of tasks in flight
    it then takes a tenth of the time. The collector's settings are restored afterwards, unless
    other code has changed them meanwhile."""
    global _open
    with _guard:
        _open += 1
        if gc.get_threshold() == USUAL:
            gc.set_threshold(*CALM)

    try:
        yield
    finally:
        with _guard:
            _open -= 1
            if not _open and gc.get_threshold() == CALM:
                gc.set_threshold(*USUAL)


def load_module(name: str) -> ModuleType:
    """Import a module without the garbage collector, which would look at all classes and functions
    three times, a fifth of the time of an import, and find nothing."""
    if name in sys.modules or not gc.isenabled():
        return import_module(name)

    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()
        if not gc.get_freeze_count():  # a program may have frozen its own objects
            # Together the two make all objects old at once, without a look at them.
            gc.freeze()
            gc.unfreeze()


class Late:
    """An object that `make` makes when something of it is first used: a module, or a pattern."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = cache(make)  # several attributes of it may be used

    def __getattr__(self, name: str) -> Any:
        make = object.__getattribute__(self, "_make")  # which a copy has not yet
        value = getattr(make(), name)
        setattr(self, name, value)
        return value


def late_module(name: str) -> Any:
    """Return a module that is imported when something of it is first used."""
    return Late(partial(load_module, name))


if TYPE_CHECKING:
    import numpy as np  # pyright: ignore[reportUnusedImport]
    import regex as regex
    from numpy.typing import NDArray as NDArray
else:
    np = late_module("numpy")
    regex = late_module("regex")
    NDArray = Any


def late_re(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used."""
    return cast(Any, Late(lambda: re.compile(pattern, flags)))


def late_regex(pattern: str) -> regex.Pattern[str]:
    """Return a pattern of the package `regex` that is compiled when it is first used."""
    return cast(Any, Late(lambda: regex.compile(pattern)))
