"""Limits on the files, code, addresses, models and namespaces that a specification can name.

On the command line and in Python a specification may name anything that its user can access, so
nothing is restricted. A server confines its clients' specifications (`confine`): only files that
were sent with the study can be read, and everything else needs the operator's permission. All code
that opens a file, imports code or calls an address by a name from outside uses this module;
`server` decides who may name what.
"""

from __future__ import annotations

import glob
import os
import unicodedata
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from textevolve.errors import InputError


def nothing_named(_name: str) -> bool:
    """Return False: the check that allows no name."""
    return False


@dataclass(frozen=True, slots=True)
class Reach:
    """The names that a specification may use. `folder`: the folder with the files that were sent
    with the study; None if there are none. Each other field is a function that returns whether a
    name is allowed: `own` for files of this machine, `models` for full names of models, `code` for
    MODULE:NAME or entry points, `addresses` for URLs and data sets of the hub, `namespaces` for
    namespaces."""

    folder: Path | None = None
    own: Callable[[str], bool] = nothing_named
    models: Callable[[str], bool] = nothing_named
    code: Callable[[str], bool] = nothing_named
    addresses: Callable[[str], bool] = nothing_named
    namespaces: Callable[[str], bool] = nothing_named


_reach: ContextVar[Reach | None] = ContextVar("reach", default=None)
"""The names allowed in this context; None: all."""


@contextmanager
def confine(reach: Reach | None) -> Generator[None]:
    """Allow only the names in `reach` within the block, and in the tasks and threads that it
    starts. None: allow everything."""
    before = _reach.set(reach)
    try:
        yield
    finally:
        _reach.reset(before)


_noted: ContextVar[dict[str, None] | None] = ContextVar("noted", default=None)
"""The files opened in this context, while `note_files` collects them."""


@contextmanager
def note_files() -> Generator[dict[str, None]]:
    """Yield a dictionary whose keys become the names of all files that are opened within the block,
    in order, to find the files that must be sent with a study that another machine runs."""
    before = _noted.set(files := dict[str, None]())
    try:
        yield files
    finally:
        _noted.reset(before)


def add_files(folder: Path) -> None:
    """Look for files in this folder first, by the names with which a client sent them, and allow
    everything else, from now on in this context: the operator may resume or show a client's run."""

    def whatever(_name: str) -> bool:
        return True

    _reach.set(Reach(folder, *(whatever,) * 5))


@contextmanager
def also_reach(*files: str) -> Generator[None]:
    """Allow reading these files within the block, too, such as files that this process has
    written."""
    reach = _reach.get()
    if reach is None:
        yield
        return

    def own(name: str) -> bool:
        return name in files or reach.own(name)

    with confine(replace(reach, own=own)):
        yield


def is_confined() -> bool:
    return _reach.get() is not None


def allowed_path(path: str | Path) -> str:
    """Return the path at which to open the file or folder with this name; for a file that a client
    sent with the study, that of the stored copy. `note_files` records the name.

    Raises:
        InputError: it is not within reach of this context.
    """
    if (noted := _noted.get()) is not None:
        noted[next(filter(os.path.exists, _spellings(path)), str(path))] = None

    return _resolve(path)


def _resolve(path: str | Path) -> str:
    reach = _reach.get()
    name = str(path)
    if reach is None:
        return next(filter(os.path.exists, _spellings(path)), name)
    if reach.folder is not None:
        for spelling in _spellings(path):
            stored = reach.folder / stored_name(spelling)
            # Nothing but what was sent lies there; should it be a link, it leads nowhere.
            if os.path.exists(stored) and stored.resolve().is_relative_to(reach.folder.resolve()):
                return str(stored)

    if reach.own(name):
        return name
    raise InputError(f"{name!r:.200}: is not among the files that were sent with the study")


def _spellings(path: str | Path) -> Iterator[str]:
    """Yield a name, and then its other spellings: macOS has decomposed letters in the names of
    files, and paths that were written on Windows have backslashes."""
    name = str(path)
    yield name
    if not name.isascii():
        yield unicodedata.normalize("NFC", name)
        yield unicodedata.normalize("NFD", name)
    if "\\" in name and os.sep == "/":
        yield name.replace("\\", "/")


def stored_name(name: str) -> Path:
    """Return a relative path under which a file of any name can be stored: it never leads out of
    its folder, and different names get different paths, except that `a/../b` equals `b`.

    Raises:
        InputError: no file can have that name.
    """
    if not name or not name.isprintable():  # half a surrogate pair is not printable either
        raise InputError(f"{name!r:.200}: cannot be the name of a file")
    parts = Path(os.path.normpath(name)).parts

    return Path(*(_SPECIAL.get(part, part.replace("%", "%25")) for part in parts))


_SPECIAL = {"/": "%root", "//": "%root", "..": "%up"}
_PLAIN = {"%root": "/", "%up": ".."}
"""The parts of paths that lead out of a folder, with the names that `stored_name` uses instead;
`_PLAIN` is the reverse."""


def matching_files(pattern: str) -> list[str]:
    """Return the names of the files that match a pattern, as `glob` would. In a confined context
    these are only files that were sent with the study."""
    reach = _reach.get()
    if reach is None:
        return glob.glob(pattern, recursive=True)
    if reach.folder is None:
        return []
    target = os.path.normpath(pattern)
    depth = target.count("/")
    names: list[str] = []

    for file in reach.folder.rglob("*"):
        parts = file.relative_to(reach.folder).parts
        plain = (_PLAIN.get(part, part.replace("%25", "%")) for part in parts)
        name = str(Path(*plain))
        if fnmatchcase(name, target) and ("**" in target or name.count("/") == depth):
            names.append(name)

    return names


def is_there(path: str | Path) -> bool:
    """Return whether a file or folder of this name exists and is within reach of this context; its
    permissions are not checked."""
    return _is_there(path, os.path.exists)


def is_file(path: str | Path) -> bool:
    """Return whether a file of this name exists and is within reach of this context; its
    permissions are not checked."""
    return _is_there(path, os.path.isfile)


def is_folder(path: str | Path) -> bool:
    """Return whether a folder of this name exists and is within reach of this context; its
    permissions are not checked."""
    return _is_there(path, os.path.isdir)


def _is_there(path: str | Path, ask: Callable[[str], bool]) -> bool:
    try:
        return ask(_resolve(path))
    except (InputError, ValueError):
        return False


def check_stdin() -> None:
    """Raise InputError if the specification came from a client, who cannot use standard input."""
    if is_confined():
        raise InputError("-: a server has no standard input; send a file with the study")


def _require(allows: Callable[[Reach], bool], message: str) -> None:
    reach = _reach.get()
    if reach is not None and not allows(reach):
        raise InputError(message)


def check_code(name: str) -> None:
    """Check that code may be loaded. `name`: MODULE:NAME, FILE.py:NAME or an entry point.

    Raises:
        InputError: the operator does not allow this code.
    """
    message = f"{name}: this server loads only code that its operator allows with --allow-code"
    _require(lambda reach: ".py:" not in name and reach.code(name), message)


def check_address(address: str) -> None:
    """Check that an address, or a data set of the hub, may be used.

    Raises:
        InputError: the operator does not allow it.
    """
    _require(
        lambda reach: reach.addresses(address),
        f"{address}: this server calls only addresses that its operator allows with"
        " --allow-address",
    )


def check_model(spec: str) -> None:
    """Check that a model may be called.

    Raises:
        InputError: the operator does not offer this model to clients.
    """
    _require(
        lambda reach: reach.models(spec),
        f"{spec}: clients may not use this model; the operator of the server allows models"
        " with --allow-model",
    )


def check_known_model(spec: str, is_known: bool) -> None:
    """Reject an unknown model with a message that does not list the operator's models.

    Raises:
        InputError: the model is unknown, and a client named it.
    """
    if not is_known and is_confined():
        raise InputError(f"{spec}: the server has no such model; see GET /v1/models")


def allow_namespace(name: str) -> None:
    """Check that a namespace may be used.

    Raises:
        InputError: it may not; the message is the same as for a missing namespace.
    """
    _require(lambda reach: reach.namespaces(name), f"no namespace '{name}'")
