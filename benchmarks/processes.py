"""CPU time and memory of this process and of all that it started, read from /proc (Linux alone).

For benchmarks whose work is done by several processes: a driver, its actors, a database, a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """`cpu`: seconds of its own; `ended`: of its children that have ended. `resident`, `peak`:
    bytes now and at most."""

    pid: int
    parent: int
    command: str
    cpu: float
    ended: float
    resident: int
    peak: int


def read_process(pid: int) -> Process | None:
    """None where there is no such process any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return None
    own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    sizes = {line.split(":")[0]: line.split() for line in lines if line.startswith("Vm")}
    resident, peak = (int(sizes[name][1]) * 1024 if name in sizes else 0 for name in _SIZES)
    return Process(pid, int(fields[1]), command, own / TICKS, ended / TICKS, resident, peak)


_SIZES = ("VmRSS", "VmHWM")


def read_tree(roots: Iterable[int]) -> list[Process]:
    """The processes of these ids and all below them."""
    found = {
        process.pid: process
        for name in os.listdir("/proc")
        if name.isdecimal() and (process := read_process(int(name))) is not None
    }
    wanted = {pid for pid in roots if pid in found}
    while more := {p.pid for p in found.values() if p.parent in wanted} - wanted:
        wanted |= more
    return [found[pid] for pid in sorted(wanted)]


def read_machine() -> float:
    """CPU seconds that all cores were busy so far, those taken by other guests included."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _, _, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / TICKS


def sum_by_role(processes: Iterable[Process], roles: Mapping[str, str]) -> dict[str, float]:
    """CPU seconds by role: this process is the driver. `roles`: of a role, a word in the commands
    of its processes; what none fits is left out."""
    found = dict.fromkeys(("driver", *roles), 0.0)
    for process in processes:
        if process.pid == os.getpid():
            found["driver"] += process.cpu
        elif role := next((role for role, word in roles.items() if word in process.command), None):
            found[role] += process.cpu + process.ended
    return found
