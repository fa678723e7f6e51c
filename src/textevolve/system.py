"""Functions that not every operating system has: locks on files, limits on a process, forks.

Windows lacks most of it, macOS has no `/proc`. Each function says what happens where the system
cannot do the thing. Nothing else in the package asks which system it runs on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl as _fcntl
except ImportError:
    _fcntl = None

fcntl: Any = _fcntl

CAN_LIMIT_PROCESSES = hasattr(signal, "setitimer")
"""Whether a child can be given limits of processor time, memory and files."""
PROCESSOR_TIME_IS_OVER: int = getattr(signal, "SIGPROF", 27)
KILLED: int = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signals that end a limited child: at the end of its processor time, and from outside."""


def _optional(module: Any, name: str) -> Callable[..., Any] | None:
    return getattr(module, name, None)


def try_lock(file: IO[bytes]) -> bool:
    """Take the exclusive lock of an open file; False while another process holds it. It ends with
    the file. True without a lock where the system has none (Windows)."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def allowed_cores() -> set[int]:
    """Numbers of the logical cores that this process may use; all where the system does not say."""
    affinity = _optional(os, "sched_getaffinity")
    return affinity(0) if affinity else set(range(os.cpu_count() or 1))


def clock_ticks() -> int:
    """Units of `/proc` times in a second. 100, Linux' own number, where it cannot be asked."""
    sysconf = _optional(os, "sysconf")
    return sysconf("SC_CLK_TCK") if sysconf else 100


def after_fork(restart: Callable[[], None]) -> None:
    """Call `restart` in each forked child, on systems that fork."""
    register = _optional(os, "register_at_fork")
    if register:
        register(after_in_child=restart)


def kill_group(pid: int) -> None:
    """Kill a process that was started in a session of its own, with its children; the process alone
    on Windows. One that has ended already is left."""
    kill_all = _optional(os, "killpg") or os.kill
    with suppress(ProcessLookupError, PermissionError):
        kill_all(pid, KILLED)


def process_exists(pid: int) -> bool:
    """Whether there is a process of this number; True on Windows, where asking would end it."""
    if sys.platform == "win32":
        return True
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def open_descriptors() -> list[int]:
    """Numbers of this process's open files and sockets; none where the system has no `/dev/fd`."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd") if name.isdigit()]
    return []


def read_kernel(path: Path | str) -> str:
    """Read a file of the kernel, such as `/proc/meminfo`; empty on systems without it."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
