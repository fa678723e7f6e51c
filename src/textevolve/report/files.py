"""Writing a file whole or not at all, and standard output under the name `-`."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from textevolve.errors import InputError


@contextmanager
def open_target(path: str | Path, *, binary: bool = False) -> Generator[IO[bytes]]:
    """A file to write bytes to, which takes its name only when all is written.

    What stands there already stays as it is until then. A pipe or a device is written to directly.

    Raises:
        InputError: it cannot be written; says why.
    """
    standard = str(path) == "-"
    if standard and binary:
        raise InputError("-: this format is not for standard output; name a file")
    target = Path(os.path.realpath(path))
    if target.is_dir() and not standard:
        raise InputError(f"{path}: is a folder; name a file in it")
    try:
        if standard:
            opened = _standard_output()
        else:
            opened = _written_in_place(target) if _is_special(target) else _renamed(target)
        with opened as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def check_target(path: str) -> None:
    """Raises InputError where a file of this name could not be written, before it costs anything to
    find that out."""
    target = Path(os.path.realpath(path))
    if path == "-" or (_is_special(target) and not target.is_dir()):
        return
    if target.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written (there is no folder {target.parent})")


@contextmanager
def _standard_output() -> Generator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _is_special(target: Path) -> bool:
    return target.exists() and not target.is_file()


@contextmanager
def _written_in_place(target: Path) -> Generator[IO[bytes]]:
    with target.open("wb") as file:
        yield file


@contextmanager
def _renamed(target: Path) -> Generator[IO[bytes]]:
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
