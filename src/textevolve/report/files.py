"""Output files that are written completely or not at all, and standard output under the name
`-`."""

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
    """Open a file for writing bytes; `-` is standard output. A file is written under a temporary
    name, and replaces an existing file only when everything is written. `binary`: the format is not
    text, and is refused for standard output.

    Raises:
        InputError: the file cannot be written, for the reason in the message.
    """
    if str(path) == "-" and binary:
        raise InputError("-: this format is not for standard output; name a file")
    check_target(path)
    opened = _standard_output() if str(path) == "-" else _renamed(Path(os.path.realpath(path)))
    try:
        with opened as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def check_target(path: str | Path) -> None:
    """Raise InputError if a file of this name cannot be written. The check is made before expensive
    work."""
    target = Path(os.path.realpath(path))
    if str(path) == "-":
        return
    if target.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: is not a plain file; write to - and redirect the output")
    if not (is_folder := target.parent.is_dir()) or not os.access(target.parent, os.W_OK):
        reason = "no right to write in the folder" if is_folder else "there is no folder"
        raise InputError(f"{path}: cannot be written ({reason} {target.parent})")


@contextmanager
def _standard_output() -> Generator[IO[bytes]]:
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


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
