"""How modules are loaded, heavy ones at their first use, and when the garbage collector runs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


@contextmanager
def loading() -> Generator[None]:
    """Import modules within the block without the garbage collector, which would look at all
    classes and functions three times, a fifth of the time of an import, and find nothing."""
    if not gc.isenabled():
        yield
        return

    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        many = gc.get_count()[0] > gc.get_threshold()[0]
        if many and not gc.get_freeze_count():  # a program may have frozen its own objects
            # Together the two make all objects old at once, without a look at them.
            gc.freeze()
            gc.unfreeze()


class LateModule(ModuleType):
    """A module of another package that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        with loading():
            value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np  # pyright: ignore[reportUnusedImport]
    from numpy.typing import NDArray as NDArray
else:
    np = LateModule("numpy")
    NDArray = Any
