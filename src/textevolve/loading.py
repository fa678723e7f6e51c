"""How modules are loaded: without the garbage collector, and heavy packages at their first use."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


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
