"""The user's own code: loaded from a module, or from a file that is no installed module; or put in
as objects, which have names in specifications."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from textevolve.errors import InputError
from textevolve.reach import check_code


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


def load_object(name: str, folder: Path) -> object:
    """What `MODULE:NAME` names, or `FILE.py:NAME` in a folder; None where there is no such name.

    Raises:
        InputError: there is no such module or file, or it cannot be loaded here.
    """
    check_code(name)
    module, _, wanted = name.rpartition(":")
    try:
        loaded = load_file(folder / module) if module.endswith(".py") else None
        return getattr(loaded or importlib.import_module(module), wanted, None)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  the user's code runs here, and may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{name}: cannot be loaded ({why})") from None


def load_function(name: str, folder: Path) -> Callable[..., object]:
    """The plain function that `MODULE:FUNCTION` names, or `FILE.py:FUNCTION` in a folder.

    Raises:
        InputError: there is no such module, file or function; or it is async.
    """
    return check_function(name, load_object(name, folder))


def load_point(point: EntryPoint) -> Any:
    """What an entry point of another package names; what loading it raises passes through.

    Raises:
        InputError: it must not be loaded.
    """
    check_code(point.name)
    return point.load()


def check_function(name: str, made: object) -> Callable[..., object]:
    """
    Raises:
        InputError: it cannot be called without await.
    """
    if not callable(made) or inspect.iscoroutinefunction(made):
        raise InputError(f"{name}: is no plain function")
    return made


OWN = "python:"
"""Begins the name of an object that the user's own program put in."""
ENDINGS = (".yaml", ".yml")
_PATH = re.compile(r"[\w./\\~ -]+\.py:\w+|[^\W\d]\w*(\.\w+)*:[^\W\d]\w*")


def names_chain(text: str) -> bool:
    """Whether a text names a chain where a model's spec may stand, too: a YAML file, an import
    path, or what the program put in."""
    named = text.startswith(OWN) or text.lower().endswith(ENDINGS)
    return "://" not in text and (named or _PATH.fullmatch(text) is not None)


def name_object(given: object) -> str:
    """What stands for an object of the user's own in a specification: what it calls itself
    (`own_name`, as chains do), or where it is defined."""
    if isinstance(said := getattr(given, "own_name", None), str):
        return f"{OWN}{said}"
    named: Any = given if hasattr(given, "__qualname__") else type(given)
    return f"{OWN}{named.__module__}.{named.__qualname__}"


def own_object(name: str, objects: Mapping[str, object]) -> object:
    """
    Raises:
        InputError: it was not put in, as where a run is gone on with from the command line.
    """
    if name not in objects:
        raise InputError(
            f"{name.removeprefix(OWN)} is an object of the program that began this run: go on with"
            " it from that program"
        )
    return objects[name]
