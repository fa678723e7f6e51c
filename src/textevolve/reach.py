"""Limits on what a text can make this process reach: files, code, addresses, models, namespaces.

On the command line and in Python a specification may name anything that its user can reach, so
nothing is asked here. A server confines what its clients send: within `confine` only files sent
with the study can be read, and all else is what the operator allows. Whatever opens a file, imports
code or asks an address by a name from outside passes through here; who may name what is the
business of `server`.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from textevolve.errors import InputError


def nothing_named(_name: str) -> bool:
    """Allows no name at all."""
    return False


@dataclass(frozen=True, slots=True)
class Reach:
    """The names that a specification may use. `folder`: holds the files that were sent; None: none
    were. The others say whether a name may be used: of a file of this machine itself, a model's
    full name, code as MODULE:NAME or an entry point, an address or a data set of the hub, a
    namespace, a run's id."""

    folder: Path | None = None
    own: Callable[[str], bool] = nothing_named
    models: Callable[[str], bool] = nothing_named
    code: Callable[[str], bool] = nothing_named
    addresses: Callable[[str], bool] = nothing_named
    namespaces: Callable[[str], bool] = nothing_named


_reach: ContextVar[Reach | None] = ContextVar("reach", default=None)


@contextmanager
def confine(reach: Reach | None) -> Generator[None]:
    """Within the block, and in tasks and threads that it begins, no more than this is reached;
    None: whatever there is."""
    before = _reach.set(reach)
    try:
        yield
    finally:
        _reach.reset(before)


_noted: ContextVar[dict[str, None] | None] = ContextVar("noted", default=None)


@contextmanager
def note_files() -> Generator[dict[str, None]]:
    """Within the block the names of all files that are opened are gathered, in their order: so it
    is found out what has to be sent along with a study that runs elsewhere."""
    before = _noted.set(files := dict[str, None]())
    try:
        yield files
    finally:
        _noted.reset(before)


def add_files(folder: Path) -> None:
    """From now on, whoever may reach everything finds what was sent into this folder, too, by the
    names that it was sent by: the operator may resume or show a client's run."""

    def whatever(_name: str) -> bool:
        return True

    _reach.set(Reach(folder, *(whatever,) * 5))


@contextmanager
def also_reach(*files: str) -> Generator[None]:
    """Within the block these files may be read, too: what was made here for the reading."""
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
    """Return the path of a file or a folder of this name.

    Raises:
        InputError: it may not be read.
    """
    if (noted := _noted.get()) is not None:
        noted[str(path)] = None
    return _resolve(path)


def _resolve(path: str | Path) -> str:
    reach, name = _reach.get(), str(path)
    if reach is None:
        return name
    if reach.folder is not None:
        stored = reach.folder / stored_name(name)
        # Nothing but what was sent lies there; should it be a link all the same, it leads nowhere.
        if os.path.exists(stored) and stored.resolve().is_relative_to(reach.folder.resolve()):
            return str(stored)
    if reach.own(name):
        return name
    raise InputError(f"{name!r:.200}: is no file that was sent with the study")


def stored_name(name: str) -> Path:
    """A relative path for a file of whatever name, which leads out of no folder; another one for
    each name, but that `a/../b` is `b`.

    Raises:
        InputError: nothing can have that name.
    """
    if not name or not name.isprintable():  # half a surrogate pair is not printable either
        raise InputError(f"{name!r:.200}: cannot be the name of a file")
    parts = Path(os.path.normpath(name)).parts
    return Path(*(_SPECIAL.get(part, part.replace("%", "%25")) for part in parts))


_SPECIAL = {"/": "%root", "//": "%root", "..": "%up"}
_PLAIN = {"%root": "/", "%up": ".."}


def matching_files(pattern: str) -> list[str]:
    """The names of the files that may be read and match a pattern, as `glob` has them."""
    reach = _reach.get()
    if reach is None:
        return glob.glob(pattern, recursive=True)
    if reach.folder is None:
        return []
    target, depth = os.path.normpath(pattern), os.path.normpath(pattern).count("/")
    names: list[str] = []
    for file in reach.folder.rglob("*"):
        parts = file.relative_to(reach.folder).parts
        plain = (_PLAIN.get(part, part.replace("%25", "%")) for part in parts)
        name = str(Path(*plain))
        if fnmatchcase(name, target) and ("**" in target or name.count("/") == depth):
            names.append(name)
    return names


def is_there(path: str | Path) -> bool:
    """Whether there is anything of this name that may be read."""
    return _is_there(path, os.path.exists)


def is_file(path: str | Path) -> bool:
    """Whether there is a file of this name that may be read."""
    return _is_there(path, os.path.isfile)


def is_folder(path: str | Path) -> bool:
    """Whether there is a folder of this name that may be read."""
    return _is_there(path, os.path.isdir)


def _is_there(path: str | Path, ask: Callable[[str], bool]) -> bool:
    try:
        return ask(_resolve(path))
    except (InputError, ValueError):
        return False


def check_stdin() -> None:
    """Raises InputError where standard input is not the user's."""
    if is_confined():
        raise InputError("-: there is no standard input here; send a file with the study")


def check_code(name: str) -> None:
    """
    Raises:
        InputError: this code must not be loaded.
    """
    reach = _reach.get()
    if reach is not None and (".py:" in name or not reach.code(name)):
        raise InputError(
            f"{name}: no code is loaded for clients but what the operator allows with --allow-code"
        )


def check_address(address: str) -> None:
    """
    Raises:
        InputError: nothing must be asked of this address, or data set of the hub.
    """
    reach = _reach.get()
    if reach is not None and not reach.addresses(address):
        raise InputError(
            f"{address}: no address is asked for clients but what the operator allows with"
            " --allow-address"
        )


def check_model(spec: str) -> None:
    """
    Raises:
        InputError: this model must not be asked.
    """
    reach = _reach.get()
    if reach is not None and not reach.models(spec):
        raise InputError(
            f"{spec}: is not served to clients; the operator allows models with --allow-model"
        )


def check_known_model(spec: str, is_known: bool) -> None:
    """
    Raises:
        InputError: there is no such model, in words that list none of the operator's.
    """
    if not is_known and is_confined():
        raise InputError(f"{spec}: there is no such model here; see GET /v1/models")


def allow_namespace(name: str) -> None:
    """
    Raises:
        InputError: it is not visible; the same error as for a missing one.
    """
    reach = _reach.get()
    if reach is not None and not reach.namespaces(name):
        raise InputError(f"no namespace '{name}'")
