"""The user's own code, loaded from a file that is no installed module."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from textevolve.errors import InputError


def load_file(path: Path) -> object:
    """The module in a Python file, run anew each time; what it raises passes through.

    Raises:
        InputError: there is no such file.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
