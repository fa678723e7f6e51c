"""CPU time and memory of this process and of all that it started.

For benchmarks whose work is done by several processes: a driver, its actors, a database, a server,
whole programs. Running processes are read from /proc, so most of this is for Linux alone.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """`cpu`: seconds, without those of its children. `resident`, `peak`: bytes now and at most."""

    pid: int
    parent: int
    command: str
    cpu: float
    resident: int
    peak: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What a program took: wall seconds, CPU seconds with those of its children, and what it
    printed."""

    wall: float
    cpu: float
    output: str


def run_program(
    command: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
) -> Spent:
    """Run a program to its end. One that ends with another status than these ends this one, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in statuses:
        output = f"{process.stderr[-2000:]}{process.stdout[-2000:]}"
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {output}")

    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu, process.stdout)


@contextmanager
def start_server(*words: str) -> Generator[tuple[int, int]]:
    """Start Python with these words, in which PORT stands for a free port; yield the id of the
    process and the port once it listens there."""
    with socket.create_server(("127.0.0.1", 0)) as port_holder:
        port = port_holder.getsockname()[1]
    command = [sys.executable, *(word.replace("PORT", str(port)) for word in words)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            _await_port(port)
            yield process.pid, port
        finally:
            process.terminate()


def _await_port(port: int) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def read_process(pid: int) -> Process | None:
    """None where there is no such process any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return None
    spent = sum(map(int, fields[11:13])) / TICKS
    sizes = {line.split(":")[0]: line.split() for line in lines if line.startswith("Vm")}
    resident, peak = (int(sizes[name][1]) * 1024 if name in sizes else 0 for name in _SIZES)
    return Process(pid, int(fields[1]), command, spent, resident, peak)


_SIZES = ("VmRSS", "VmHWM")


def own_memory() -> int:
    """Return the resident bytes of this process."""
    process = read_process(os.getpid())
    return process.resident if process else 0


def read_tree(roots: Iterable[int]) -> list[Process]:
    """The processes of these ids and all below them."""
    processes = {
        process.pid: process
        for name in os.listdir("/proc")
        if name.isdecimal() and (process := read_process(int(name))) is not None
    }
    members = {pid for pid in roots if pid in processes}
    while more := {p.pid for p in processes.values() if p.parent in members} - members:
        members |= more
    return [processes[pid] for pid in sorted(members)]


def read_machine() -> float:
    """CPU seconds that all cores were busy so far, those taken by other guests included."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _, _, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / TICKS


class Watch:
    """Processes by what they do, since the watch began: one that has ended counts as it was last
    looked at, so look often, and before anything is closed.

    `roots`: whose processes are seen, with all below them. `roles`: of each a word in the commands
    of its processes; this process is the driver, and what no word fits is left out.
    """

    def __init__(self, roots: Iterable[int], roles: Mapping[str, str]) -> None:
        self._roots, self._roles = list(roots), roles
        self._seen: dict[int, Process] = {}
        self.look()
        self._before = {pid: process.cpu for pid, process in self._seen.items()}

    def look(self) -> None:
        self._seen |= {process.pid: process for process in read_tree(self._roots)}

    def cpu(self) -> dict[str, float]:
        """Seconds by role."""
        seconds = dict.fromkeys(("driver", *self._roles), 0.0)
        for process in self._seen.values():
            if role := self._role(process):
                seconds[role] += process.cpu - self._before.get(process.pid, 0.0)
        return seconds

    def peak(self, role: str) -> int:
        """Bytes of memory: the most of each process of a role, all added up."""
        return sum(process.peak for process in self._seen.values() if self._role(process) == role)

    def _role(self, process: Process) -> str | None:
        if process.pid == os.getpid():
            return "driver"
        return next((role for role, word in self._roles.items() if word in process.command), None)
