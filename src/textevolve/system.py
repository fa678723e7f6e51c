"""Functions that not every operating system has: file locks, process limits, forks; and files that
are replaced whole.

Windows lacks most of the former, and macOS has no `/proc`. Each function documents its result on
systems without support. Other modules do not check the operating system, but for the renderer of
chat templates, which Windows cannot run.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl as _fcntl
except ImportError:
    _fcntl = None

fcntl: Any = _fcntl

try:
    import resource as _resource
except ImportError:
    _resource = None

resource: Any = _resource

CAN_LIMIT_PROCESSES = hasattr(signal, "setitimer")
"""True if the system can limit the processor time, memory and open files of a child process."""
PROCESSOR_TIME_IS_OVER: int = getattr(signal, "SIGPROF", 27)
KILLED: int = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signals that end a limited child process: when its processor time is used up, and when it is
killed."""


def try_lock(file: IO[bytes]) -> bool:
    """Try to take the exclusive lock of an open file. Return False if another process holds the
    lock; True without a lock on systems without locks (Windows). Closing the file releases the
    lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False

    return True


def allowed_cores() -> set[int]:
    """Return the numbers of the logical cores that this process may use; all cores if the system
    does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)
    return affinity(0) if affinity else set(range(os.cpu_count() or 1))


def clock_ticks() -> int:
    """Return the number of clock ticks a second, the unit of times in `/proc`; 100, as on Linux, if
    the system does not tell."""
    sysconf = getattr(os, "sysconf", None)
    return sysconf("SC_CLK_TCK") if sysconf else 100


def after_fork(restart: Callable[[], None]) -> None:
    """Register a function that is called in each forked child; do nothing on systems without
    forks."""
    register = getattr(os, "register_at_fork", None)
    if register:
        register(after_in_child=restart)


def kill_group(pid: int) -> None:
    """Kill a process that leads its own session, with its children; on Windows only the process. Do
    nothing if it has ended already."""
    kill_all = getattr(os, "killpg", None) or os.kill
    with suppress(ProcessLookupError, PermissionError):
        kill_all(pid, KILLED)


def process_exists(pid: int) -> bool:
    """Return whether a process with this id exists; always True on Windows, where the check would
    end the process."""
    if sys.platform == "win32":
        return True
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False

    return True


def open_descriptors() -> list[int]:
    """Return the descriptors of this process's open files and sockets; empty if there is no
    `/dev/fd`."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd") if name.isdigit()]
    return []


SPARE_FILES = 64
"""The files that a process opens at times beside its sockets: stores, modules, reports."""


def make_room_for_files(wanted: int) -> int:
    """Return how many of `wanted` more files and sockets this process may open, at least 1: half of
    what it may open in all, since a second endpoint wants as many. A limit that is too low is
    raised as far as the system allows; Windows has none."""
    if resource is None:
        return wanted
    used = len(open_descriptors()) + SPARE_FILES
    needed = used + 2 * wanted
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return wanted

    raised = needed if hard_limit == resource.RLIM_INFINITY else min(needed, hard_limit)
    with suppress(OSError, ValueError):  # macOS has another limit beside the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard_limit))
        limit = raised

    return max(1, min(wanted, (limit - used) // 2))


def read_kernel(path: Path) -> str:
    """Read a kernel file, such as `/proc/meminfo`; return an empty text if it cannot be read."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


@contextmanager
def replacing(target: Path) -> Generator[IO[bytes]]:
    """Open a file beside `target`, which replaces it once everything is written."""
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
