"""Load the user's own code from a module or a Python file, and call it. A program can also pass
objects, to which specifications refer by name."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypeVar

from textevolve.contents import digest_data, digest_file, digest_module
from textevolve.errors import AnswerError, FatalModelError, InputError, describe_error
from textevolve.evaluation import Failure, mend_text
from textevolve.reach import allowed_path, check_code
from textevolve.wrapping import kind_of

T = TypeVar("T")


def load_file(path: Path) -> object:
    """Run a Python file as a new module, and return the module. Errors of its code pass through.

    Raises:
        InputError: there is no such file.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or not path.is_file():
        raise InputError(f"{path}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    # The source is compiled anew: what Python has cached is stale if a file was edited to the same
    # length within a second.
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    exec(code, vars(module))

    return module


def load_object(name: str, folder: Path) -> object:
    """Load the object that `MODULE:NAME` or `FILE.py:NAME` names, the file relative to `folder`;
    None if the module has no such name.

    Raises:
        InputError: there is no such module or file, or it cannot be loaded here.
    """
    module, attribute = _read_name(name, folder)

    try:
        loaded = load_file(folder / module) if module.endswith(".py") else None
        return getattr(loaded or importlib.import_module(module), attribute, None)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  the user's code runs here, and may raise anything
        reason = " ".join(describe_error(error).split())
        raise InputError(f"{name}: cannot be loaded ({reason})") from None


def _read_name(name: str, folder: Path) -> tuple[str, str]:
    """Return the module or file, and the attribute, that a name of code has. From then on the code
    can import modules of the folder, and those next to its file, as where Python runs it; modules
    that are installed come first.

    Raises:
        InputError: it may not be loaded here.
    """
    check_code(name)
    module, _, attribute = name.rpartition(":")
    place = str((folder / module).parent.absolute())
    if place not in sys.path:
        sys.path.append(place)

    return module, attribute


def digest_code(name: str, folder: Path = Path()) -> str:
    """Return the digest of the code that `MODULE:NAME` or `FILE.py:NAME` names, the file relative
    to `folder`, and of all modules of the user's own that it imports.

    Raises:
        InputError: it may not be loaded here.
    """
    module, attribute = _read_name(name, folder)
    if module.endswith(".py"):
        return digest_data([attribute, digest_file(Path(allowed_path(folder / module)))])

    return digest_data([attribute, digest_module(module)])


def load_function(name: str, folder: Path) -> Callable[..., object]:
    """Load the plain (not async) function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names, the
    file relative to `folder`.

    Raises:
        InputError: there is no such module, file or function; or it is async.
    """
    function = load_object(name, folder)

    if not callable(function) or is_async(function):
        raise InputError(
            f"{name}: there is no such function"
            if function is None
            else f"{name}: is not a plain function; async functions are not possible here"
        )

    return function


def load_point(point: EntryPoint) -> Any:
    """Load an entry point of another package. Errors of its code pass through.

    Raises:
        InputError: the operator does not allow this code.
    """
    check_code(point.name)
    return point.load()


class UserCodeError(AnswerError):
    """An exception in a function of the user's code; the original exception is its `__cause__`."""

    def __init__(self, function: Callable[..., Any], error: BaseException) -> None:
        raised = f"{callable_name(function)} raised {describe_error(error)}"
        hint = "" if is_async(function) or not _FOREIGN_LOOP.search(raised) else _USE_ASYNC
        super().__init__(mend_text(raised.rstrip(": ")) + hint)


FIRST_FAILURES = 10
"""The number of failures before any success after which a run stops."""


@dataclass(slots=True)
class FirstResults:
    """The results of a scorer or a program of the user up to the first that can be used. A run in
    which all of them failed would pay for the others in vain.

    Attributes:
        name: The scorer or program in errors, such as `metric own.py:score`.
        stops: Whether a run ends; False where nothing is paid, as in an estimate.
        failures: The number of failures so far.
        works: Whether it has given a result.
    """

    name: str
    stops: bool = False
    failures: int = 0
    works: bool = False

    def note(self, outcome: object) -> None:
        """Count an outcome; a failure because of a limit says nothing.

        Raises:
            FatalModelError: each of the first results is a failure.
        """
        if not isinstance(outcome, Failure):
            self.works = True
            return

        self.failures += outcome.kind == "failed"
        if self.stops and not self.works and self.failures >= FIRST_FAILURES:
            raise FatalModelError(
                f"{self.name}: each of the first {self.failures} calls failed, so the run stops;"
                f" what was done is kept. The last: {outcome.reason}"
            )


def is_async(function: Callable[..., Any]) -> bool:
    return kind_of(function) == "coroutine"


def count_required(function: Callable[..., object]) -> int | None:
    """Return the number of positional arguments that a function requires; None if it is no
    callable, or its signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None

    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(place.default is place.empty for place in places)


def callable_name(function: object) -> str:
    target: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{target.__module__}:{target.__qualname__}"


async def call_function(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function of the user and return its result, awaited if it is awaitable. A plain
    function is called in a thread by `call_plain`.

    Raises:
        UserCodeError: the function raised SystemExit or CancelledError, or, if it is plain,
            StopIteration or GeneratorExit. Other exceptions of the function pass through.
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
    """Call a plain function of the user. Exceptions that would break the event loop or end the
    program become UserCodeError; others pass through.

    Raises:
        UserCodeError: the function raised StopIteration, GeneratorExit, CancelledError or
            SystemExit.
    """
    try:
        return function(*arguments, **keywords)
    except (StopIteration, GeneratorExit, asyncio.CancelledError, SystemExit) as error:
        raise UserCodeError(function, error) from error


_FOREIGN_LOOP = re.compile("different (event )?loop|Event loop is closed")
_USE_ASYNC = (
    "; the client of the agent belongs to another event loop than that of this thread: pass an"
    " `async def` function that awaits the agent"
)

OWN = "python:"
"""The prefix of the names of objects that the user's program passed."""
ENDINGS = (".yaml", ".yml")
"""The endings of files that define chains."""
_PATH = re.compile(r"[\w./\\~ -]+\.py:\w+|[^\W\d]\w*(\.\w+)*:[^\W\d]\w*")


def names_chain(text: str) -> bool:
    """Return whether a text that stands where a model's spec may stand names a chain: a YAML file,
    an import path, or an object of the program."""
    is_named = text.startswith(OWN) or text.lower().endswith(ENDINGS)
    return "://" not in text and (is_named or _PATH.fullmatch(text) is not None)


def name_object(value: object) -> str:
    """Return the name by which specifications refer to a user's object: its `own_name` attribute,
    as chains have, or its module and qualified name."""
    if isinstance(label := getattr(value, "own_name", None), str):
        return f"{OWN}{label}"
    return f"{OWN}{callable_name(value).replace(':', '.')}"


def load_user_object(name: str, objects: Mapping[str, object]) -> object:
    """Return the user's object of this name.

    Raises:
        InputError: it was not passed, for example on the command line.
    """
    if name not in objects:
        raise InputError(
            f"{name}: names an object of a Python program, which is not available here: start or"
            " resume the run in that program, or name a function of a file by FILE.py:NAME, as a"
            " judge by metric:FILE.py:NAME"
        )

    return objects[name]
