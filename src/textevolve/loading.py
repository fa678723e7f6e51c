"""How modules are loaded, heavy ones at their first use, and when the garbage collector runs."""

from __future__ import annotations

import gc
import sys
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


def load(name: str) -> ModuleType:
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


class LateModule(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(load(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np  # pyright: ignore[reportUnusedImport]
    from numpy.typing import NDArray as NDArray
else:
    np = LateModule("numpy")
    NDArray = Any
