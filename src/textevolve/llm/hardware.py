"""Measure the memory and cores that a local model may use, within container limits, and the load of
the machine."""

from __future__ import annotations

import time
from pathlib import Path

from textevolve.system import allowed_cores, clock_ticks, read_kernel

_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


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
    limit = read_kernel(_CGROUP / "memory.max")
    used = read_kernel(_CGROUP / "memory.current")
    if not (limit.isdigit() and used.isdigit()):
        return free * 1024
    reclaimable = _fields(_CGROUP / "memory.stat").get("inactive_file", 0)

    return max(0, min(free * 1024, int(limit) - int(used) + reclaimable))


def physical_cores() -> int:
    """Return how many physical cores this process may use, at least 1."""
    siblings = "topology/thread_siblings_list"
    cores = {read_kernel(_CPUS / f"cpu{n}/{siblings}") or str(n) for n in allowed_cores()}
    quota = read_kernel(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        return max(1, min(len(cores), int(quota[0]) // int(quota[1])))
    return max(1, len(cores))


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
