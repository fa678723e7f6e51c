"""Debates against a loopback server that takes 200 ms a call: how much do we add?

    python benchmarks/throughput.py [--debates 500 2000] [--in-flight 256] [--latency 0.2]
                                    [--times 3] [--postgres ADDRESS]

Three agents, two rounds, sequential: six calls one after another in each debate. In one run, on one
machine: ours with the journal on, as a library and as the command line runs it (it lets Python
collect garbage less often), and a bare aiohttp loop that posts the same bodies and reads the
answers. `ideal` is the time that perfect overlap would take: ceil(debates / in flight) x 6 x
latency. All run in turn, `--times` over, and the least of each figure is printed: what others do on
the machine only ever adds. Where the package `openai` is installed, a loop around it runs beside:
what a judge built on the usual SDK has to start from. Where `uvloop` is installed, all of them run
on it. `--postgres`: the address of a server's database, in which each run makes a database of its
own; CPU is that of this process alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp

from databases import open_postgres
from sitting import describe_machine
from textevolve import AsyncClient, Debate
from textevolve.engine.sync import loop_module
from textevolve.llm.testing import serve_in_process
from textevolve.loading import rare_collections
from textevolve.settings import Settings
from textevolve.store.repository import open_store

CALLS = 6
FILLER = "The tide follows the moon, and the moon is patient with the sea. "


def make_cases(number: int) -> Iterator[dict[str, Any]]:
    for n in range(number):
        yield {
            "id": str(n),
            "input": f"Question {n}: why does the tide come in twice a day?",
            "candidates": [f"First answer to {n}. " + FILLER * 6, f"Second to {n}. " + FILLER * 8],
        }


async def run_ours(url: str, number: int, in_flight: int, store: str) -> int:
    client = AsyncClient(f"{url}#scripted", store=store, settings=Settings(concurrency=in_flight))
    cases = list(make_cases(number))
    scored = 0
    async for result in client.evaluate_batch(cases, judge=Debate(convergence=0.0)):
        scored += result.failure is None
    assert scored == number, f"{number - scored} debates have no score"
    return number * CALLS


async def run_calm(url: str, number: int, in_flight: int, store: str) -> int:
    """As `run_ours`, with the collector set as the command line sets it."""
    with rare_collections():
        return await run_ours(url, number, in_flight, store)


async def run_postgres(url: str, number: int, in_flight: int, address: str) -> int:
    """As `run_calm`, with a new database of a PostgreSQL server."""
    with open_postgres(Path(), address) as (store, _):
        open_store(store).close()
        return await run_calm(url, number, in_flight, store)


async def run_bare(url: str, number: int, in_flight: int, bodies: list[bytes]) -> int:
    """Posts six bodies of real turns, one after another, for each debate."""
    gate = asyncio.Semaphore(in_flight)
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def debate() -> None:
            async with gate:
                for body in bodies:
                    async with session.post(f"{url}/chat/completions", data=body) as answer:
                        json.loads(await answer.read())

        await asyncio.gather(*(debate() for _ in range(number)))
    return number * CALLS


async def run_sdk(url: str, number: int, in_flight: int, bodies: list[bytes]) -> int:
    """The same bodies through the openai package, and nothing around it."""
    openai: Any = import_module("openai")
    gate = asyncio.Semaphore(in_flight)
    requests: list[dict[str, Any]] = [json.loads(body) for body in bodies]
    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=120) as client:

        async def debate() -> None:
            async with gate:
                for request in requests:
                    await client.chat.completions.create(**request)

        await asyncio.gather(*(debate() for _ in range(number)))
    return number * CALLS


async def record_bodies(folder: Path) -> list[bytes]:
    """The six bodies of one real debate."""
    from textevolve.llm.testing import ScriptedServer

    async with ScriptedServer() as server:
        client = AsyncClient(f"{server.url}#scripted", store=folder / "one.db")
        results = client.evaluate_batch(list(make_cases(1)), judge=Debate(convergence=0.0))
        assert [result.failure async for result in results] == [None]
        return [json.dumps(body).encode() for body in server.requests]


async def measure(
    run: Callable[..., Awaitable[int]], url: str, number: int, in_flight: int, extra: Any
) -> tuple[float, float]:
    """Wall seconds, and CPU milliseconds of this process for each call."""
    began, cpu = time.perf_counter(), time.process_time()
    calls = await run(url, number, in_flight, extra)
    return time.perf_counter() - began, (time.process_time() - cpu) * 1000 / calls


async def compare(
    url: str, number: int, options: argparse.Namespace, bodies: list[bytes], folder: Path
) -> dict[str, tuple[float, float]]:
    """The least wall time and the least CPU time of each way, under its name."""
    times: dict[str, list[tuple[float, float]]] = {}
    for n in range(options.times):
        ways: list[tuple[str, Callable[..., Awaitable[int]], Any]] = [
            ("bare aiohttp loop", run_bare, bodies),
            ("textevolve, as a library", run_ours, str(folder / f"library-{number}-{n}.db")),
            ("as the command line runs", run_calm, str(folder / f"calm-{number}-{n}.db")),
        ]
        if options.postgres:
            ways.append(("PostgreSQL", run_postgres, options.postgres))
        if find_spec("openai"):
            ways.append(("openai package alone", run_sdk, bodies))
        for label, run, extra in ways:
            figures = await measure(run, url, number, options.in_flight, extra)
            times.setdefault(label, []).append(figures)
    return {
        label: (min(wall for wall, _ in all_figures), min(cpu for _, cpu in all_figures))
        for label, all_figures in times.items()
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--debates", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--postgres")
    options = parser.parse_args()
    print(describe_machine())
    print(f"event loop: {type(asyncio.get_running_loop()).__module__}")
    print(
        f"{options.in_flight} debates in flight, {options.latency * 1000:.0f} ms a call,"
        f" least of {options.times}"
    )
    server = ("--latency", str(options.latency))
    with tempfile.TemporaryDirectory() as name, serve_in_process(*server) as url:
        folder = Path(name)
        bodies = await record_bodies(folder)
        await run_bare(url, 20, 20, bodies)
        for number in options.debates:
            ideal = math.ceil(number / options.in_flight) * CALLS * options.latency
            rows = await compare(url, number, options, bodies, folder)
            bare = rows["bare aiohttp loop"]
            print(f"\n{number} debates, ideal {ideal:.1f} s")
            for label, (wall, cpu) in rows.items():
                print(
                    f"  {label:24} wall {wall:6.2f} s  wall/ideal {wall / ideal:5.2f}"
                    f"  CPU/call {cpu:5.2f} ms  wall/bare {wall / bare[0]:5.2f}"
                    f"  CPU/bare {cpu / bare[1]:5.2f}"
                )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_module().new_event_loop) as runner:
        runner.run(main())
