"""Store the files of clients' requests by their contents, in a folder next to the store.

The files of one request are in one folder, whose name is the hash of all file names and contents,
so equal files are stored once. They are never executed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from textevolve.errors import InputError
from textevolve.llm.model import text_hash
from textevolve.reach import stored_name
from textevolve.remote.wire import Base64File
from textevolve.settings import StoreLocation, folder_beside

LONGEST_NAME = 200
SWEPT_SECONDS = 3600.0
"""The seconds after which files that no run needs are deleted, such as the files of an estimate."""
MOST_BYTES = 8 * 2**30
"""The most bytes of all files that clients sent."""


def files_folder(store: StoreLocation) -> Path:
    """Return the folder of clients' files for a store, on the machine of the server."""
    if isinstance(store, Path):
        return store.with_name(f"{store.name}.files")
    return folder_beside(store) / f"{text_hash(str(store))[:16]}.files"


@dataclass(frozen=True)
class Uploads:
    """The folders of clients' files. `folder`: the folder that contains them; `used`: returns the
    names of the folders that runs need."""

    folder: Path
    used: Callable[[], set[str]]

    def keep(self, files: Mapping[str, str | Base64File]) -> str:
        """Store files under their names; return the name of the folder that holds them, empty if
        there are no files.

        Raises:
            InputError: a name is not a valid file name, a content is not Base64, or the limit of
                all files is reached.
        """
        contents = _place({name: _read(name, sent) for name, sent in files.items()})
        if not contents:
            return ""
        self.sweep()
        digest = hashlib.sha256()
        for path in sorted(contents):
            name = str(path).encode()
            head = f"{len(name)}:{len(contents[path])}:".encode()
            digest.update(head + name + contents[path])
        target = self.folder / digest.hexdigest()
        if target.is_dir():
            os.utime(target)  # so that they are not swept before their run is known
            return target.name
        size = sum(map(len, contents.values()))
        stored = self.folder.rglob("*") if self.folder.is_dir() else ()
        if size + sum(path.stat().st_size for path in stored) > MOST_BYTES:
            raise InputError(
                f"run.files: the server keeps at most {MOST_BYTES / 2**30:g} GiB of clients' files,"
                " and these are too many; delete runs that are not needed any more"
            )
        _write(target, contents)
        return target.name

    def holds(self, name: str) -> bool:
        return not name or (self.folder / name).is_dir()

    def drop(self, name: str) -> None:
        """Remove the files of a run that was removed, unless another run needs them."""
        if name and name not in self.used():
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def sweep(self) -> None:
        """Delete the folders that no run needs and that are older than `SWEPT_SECONDS`."""
        used = self.used()
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name not in used and time.time() - path.stat().st_mtime > SWEPT_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _read(name: str, content: str | Base64File) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace")
    try:
        return base64.b64decode(content.base64, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"run.files: {name}: is not valid Base64") from None


def _place(contents: Mapping[str, bytes]) -> dict[Path, bytes]:
    """Return the path of each file within the folder."""
    placed: dict[Path, bytes] = {}
    for name, content in contents.items():
        path = stored_name(name)
        if not path.parts or len(name.encode()) > LONGEST_NAME or path in placed:
            raise InputError(
                f"run.files: '{name:.60}': the name is too long or is given twice; give each file"
                f" a name of at most {LONGEST_NAME} bytes"
            )
        placed[path] = content
    if nested := [path for path in placed if not placed.keys().isdisjoint(path.parents)]:
        raise InputError(f"run.files: '{nested[0]}' uses the name of another file as its folder")
    return placed


def _write(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Write the files atomically: the folder gets its name once all files are in it."""
    beside = folder.with_name(f".{secrets.token_hex(8)}.part")
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    folder.parent.chmod(0o700)
    try:
        for place, content in contents.items():
            for parent in reversed(place.parents):
                (beside / parent).mkdir(0o700, exist_ok=True)
            (beside / place).touch(0o600)
            (beside / place).write_bytes(content)
        try:
            os.replace(beside, folder)
        except OSError:
            if not folder.is_dir():  # else somebody else has sent the same meanwhile
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
