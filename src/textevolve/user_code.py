"""The user's own code: loaded from a module, or from a file that is no installed module; or put in
as objects, which have names in specifications."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypeVar

from textevolve.errors import AnswerError, InputError
from textevolve.evaluation import mend_text
from textevolve.reach import check_code

T = TypeVar("T")


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
    """Load the object that `MODULE:NAME` names, or `FILE.py:NAME` in a folder; None if there is no
    such name.

    Raises:
        InputError: there is no such module or file, or it cannot be loaded here.
    """
    check_code(name)
    module, _, attribute = name.rpartition(":")
    try:
        loaded = load_file(folder / module) if module.endswith(".py") else None
        return getattr(loaded or importlib.import_module(module), attribute, None)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  the user's code runs here, and may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{name}: cannot be loaded ({reason})") from None


def load_function(name: str, folder: Path) -> Callable[..., object]:
    """The plain function that `MODULE:FUNCTION` names, or `FILE.py:FUNCTION` in a folder.

    Raises:
        InputError: there is no such module, file or function; or it is async.
    """
    return check_function(name, load_object(name, folder))


def load_point(point: EntryPoint) -> Any:
    """Load an entry point of another package; errors of loading pass through.

    Raises:
        InputError: it must not be loaded.
    """
    check_code(point.name)
    return point.load()


class UserCodeError(AnswerError):
    """A function of the user's raised something, which is the cause of this error."""

    def __init__(self, function: Callable[..., Any], error: BaseException) -> None:
        raised = f"{callable_name(function)} raised {type(error).__name__}: {error}"
        hint = "" if is_async(function) or not _FOREIGN_LOOP.search(raised) else _USE_ASYNC
        super().__init__(mend_text(raised.rstrip(": ")) + hint)


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  of an object, it is the method that tells
    )


def callable_name(function: object) -> str:
    target: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{target.__module__}:{target.__qualname__}"


async def call_function(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function of the user's: a plain one in a thread, where `call_plain` calls it; what it
    returns is awaited.

    Raises:
        UserCodeError: as `call_plain`. Whatever else the function raises passes through.
    """
    if is_async(function):
        result = function(*arguments, **keywords)
    else:
        result = await asyncio.to_thread(call_plain, function, *arguments, **keywords)
    try:
        return await result if inspect.isawaitable(result) else result
    except SystemExit as error:
        raise UserCodeError(function, error) from error
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise UserCodeError(function, error) from error


def call_plain(function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Call a plain function of the user's for code that waits on a future.

    Raises:
        UserCodeError: it raised what no future takes, or what would end the program.
    """
    try:
        return function(*arguments, **keywords)
    except (StopIteration, GeneratorExit, asyncio.CancelledError, SystemExit) as error:
        raise UserCodeError(function, error) from error


def check_function(name: str, value: object) -> Callable[..., object]:
    """
    Raises:
        InputError: it cannot be called without await.
    """
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise InputError(f"{name}: is no plain function")
    return value


_FOREIGN_LOOP = re.compile("different (event )?loop|Event loop is closed")
_USE_ASYNC = (
    "; its client belongs to another event loop than the thread that it runs in has: give an"
    " `async def` and await the agent in it"
)

OWN = "python:"
"""Begins the name of an object that the user's own program put in."""
ENDINGS = (".yaml", ".yml")
_PATH = re.compile(r"[\w./\\~ -]+\.py:\w+|[^\W\d]\w*(\.\w+)*:[^\W\d]\w*")


def names_chain(text: str) -> bool:
    """Whether a text names a chain where a model's spec may stand, too: a YAML file, an import
    path, or what the program put in."""
    is_named = text.startswith(OWN) or text.lower().endswith(ENDINGS)
    return "://" not in text and (is_named or _PATH.fullmatch(text) is not None)


def name_object(value: object) -> str:
    """Return the name of a user's object in a specification: its `own_name`, which chains have, or
    the place of its definition."""
    if isinstance(label := getattr(value, "own_name", None), str):
        return f"{OWN}{label}"
    target: Any = value if hasattr(value, "__qualname__") else type(value)
    return f"{OWN}{target.__module__}.{target.__qualname__}"


def load_user_object(name: str, objects: Mapping[str, object]) -> object:
    """
    Raises:
        InputError: it was not put in, for example if a run is resumed from the command line.
    """
    if name not in objects:
        raise InputError(
            f"{name.removeprefix(OWN)} is an object of the program that began this run: go on with"
            " it from that program"
        )
    return objects[name]
