"""What this machine can give to a local model: memory and cores, container limits respected; and
how much else it has to do."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _fields(path: Path) -> dict[str, int]:
    """The numbers in a file of lines `name: number` or `name number`."""
    found: dict[str, int] = {}
    for line in _read(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, None where the system does not say."""
    free = _fields(Path("/proc/meminfo")).get("MemAvailable")
    if free is None:
        return _free_pages()
    limit = _read(_CGROUP / "memory.max")
    used = _read(_CGROUP / "memory.current")
    if not (limit.isdigit() and used.isdigit()):
        return free * 1024
    reclaimable = _fields(_CGROUP / "memory.stat").get("inactive_file", 0)
    return max(0, min(free * 1024, int(limit) - int(used) + reclaimable))


def _free_pages() -> int | None:
    try:
        # Not every system counts what is available: half of all memory is a careful guess.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def physical_cores() -> int:
    """Cores this process may use, each counted once however many threads it runs. At least 1."""
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    else:
        allowed = set(range(os.cpu_count() or 1))
    cores = {_read(_CPUS / f"cpu{n}/topology/thread_siblings_list") or str(n) for n in allowed}
    quota = _read(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        return max(1, min(len(cores), int(quota[0]) // int(quota[1])))
    return max(1, len(cores))


def load_per_core() -> float | None:
    """Threads of all processes that want to run, for each core of the machine; the mean of the last
    minute. None where the system does not say."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return None
