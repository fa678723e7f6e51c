"""Measure the memory and cores that a local model may use, within container limits, and the load of
the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from textevolve.system import allowed_cores, clock_ticks, read_kernel

_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")
_OWN_GROUPS = Path("/proc/self/cgroup")


def _fields(path: Path) -> dict[str, int]:
    """Read the numbers in a file of lines `name: number` or `name number`."""
    numbers: dict[str, int] = {}
    for line in read_kernel(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            numbers[words[0]] = int(words[1])

    return numbers


def available_memory() -> int | None:
    """Return the bytes of memory that can be used without swapping; None if unknown."""
    free = _fields(Path("/proc/meminfo")).get("MemAvailable")
    if free is None:
        return None
    available = free * 1024

    for folder in _groups("memory"):
        for limit_file, used_file, name in MEMORY_FILES:
            limit = read_kernel(folder / limit_file)
            used = read_kernel(folder / used_file)
            if limit.isdigit() and used.isdigit():
                reclaimable = _fields(folder / "memory.stat").get(name, 0)
                available = min(available, int(limit) - int(used) + reclaimable)

    return max(0, available)


MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""The files of control groups, of version 2 and 1, that hold the limit and the use of memory, and
the field for what can be reclaimed."""


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of all groups above it, since the
    smallest limit of them counts. In a container the group's own path may be missing."""
    # Version 1 has a folder for each set of controllers, or a link with one controller's name.
    groups = dict.fromkeys((_CGROUP, _CGROUP / controller))
    for line in read_kernel(_OWN_GROUPS).splitlines():
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if names and controller not in names.split(","):
            continue
        own_group = Path(path.lstrip("/"))
        for root in (_CGROUP / names, _CGROUP / controller) if names else (_CGROUP,):
            if ".." not in own_group.parts:
                groups |= dict.fromkeys(root / group for group in (own_group, *own_group.parents))

    yield from groups


def _quota(folder: Path) -> float | None:
    """Return how many cores' time a control group may use; None without a limit."""
    words = read_kernel(folder / "cpu.max").split()
    if not words:
        words = [read_kernel(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def physical_cores() -> int:
    """Return how many physical cores this process may use, at least 1."""
    siblings = "topology/thread_siblings_list"
    cores = {read_kernel(_CPUS / f"cpu{n}/{siblings}") or str(n) for n in allowed_cores()}
    quotas = filter(None, map(_quota, _groups("cpu")))

    return max(1, int(min((len(cores), *quotas))))


LOOKED = 0.2
"""The seconds for which the load of the cores is measured."""


def free_cores() -> int:
    """Return how many of the cores that this process may use are idle, as measured for a moment, at
    least 1; all of them if unknown.

    llama.cpp's threads wait actively for each other after every step, so one thread that shares its
    core slows down all others.
    """
    cores = physical_cores()
    before = _idle_seconds()
    began = time.monotonic()
    if before is None:
        return cores
    time.sleep(LOOKED)
    idle = (_idle_seconds() or before) - before
    passed = time.monotonic() - began

    return max(1, min(cores, int(idle / passed + 0.5)))


def _idle_seconds() -> float | None:
    """Return the total idle time of all cores, in seconds."""
    fields = read_kernel(Path("/proc/stat")).split("\n", 1)[0].split()
    if len(fields) < 6 or fields[0] != "cpu" or not all(word.isdigit() for word in fields[4:6]):
        return None
    return (int(fields[4]) + int(fields[5])) / clock_ticks()
