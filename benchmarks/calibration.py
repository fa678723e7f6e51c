"""A calibration search against a loopback server that takes 200 ms a call: are its calls batches?

    python benchmarks/calibration.py [--beam 4] [--depth 3] [--successors 5] [--rows 60]
                                     [--latency 0.2] [--in-flight 256] [--times 3]

The scripted model makes every new template different and better than all before it, so that every
round is full. The critical path is the longest chain of calls of which each needs the one before: a
stage of lists of instructions or of new templates is one call long, a stage of outputs too, and
longer by the judge's own chain (four questions for a probe) where a judge scores them. Wall time is
that of the whole function, with the store, the journal and the start of the client, after one small
search that loads what is loaded once, and with the collector of garbage set as the command line
sets it. The server is this file in a process of its own (`--serve`). Each way is measured `--times`
over, and the least is what counts: what others do on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from sitting import describe_machine
from textevolve import AsyncClient
from textevolve.api.results import Objects
from textevolve.cli.results import calm_collector
from textevolve.events import Event, StepStarted
from textevolve.judges.judge import parse_judge
from textevolve.judges.probe import QUESTIONS
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.loops.calibration.plan import CalibrationResult
from textevolve.loops.calibration.trial_runner import STAGE
from textevolve.settings import Settings
from textevolve.studies.calibrate import CalibrateSpec

TEMPLATE = "Say something about {topic}, in version 0."
MOST = 1000
AIM = 1.15


class Scripted:
    """Writes version after version of the template; an answer says of which version it is."""

    def __init__(self) -> None:
        self._versions = count(1)

    def __call__(self, body: Mapping[str, Any], _number: int) -> Answer | str:
        message = str(body["messages"][-1]["content"])
        if "Write at most" in message:
            return json.dumps({"instructions": [f"Point {n}." for n in range(4)]})
        if "You rewrite a prompt template" in message:
            text = TEMPLATE.replace("version 0", f"version {next(self._versions)}")
            return json.dumps({"template": text})
        version = re.findall(r"version (\d+)", message)[-1]
        if body.get("max_tokens") == 1:
            return Answer(yes=0.1 + 0.8 * int(version) / MOST)
        return f"version {version}"


def grade(output: str, _label: object) -> float:
    return int(output.split()[-1]) / MOST


@contextmanager
def serve(latency: float) -> Generator[str]:
    """The scripted server in a process of its own; gives its URL."""
    command = [sys.executable, __file__, "--serve", "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def serve_until_stopped(latency: float) -> None:
    with ScriptedServer(Scripted(), latency=latency, keep=0) as server:
        print(server.url, flush=True)
        while True:
            time.sleep(3600)


async def search(
    options: argparse.Namespace, judge: str | None, url: str, folder: Path
) -> tuple[CalibrationResult, float, int]:
    """The result, wall seconds, and the calls in the longest chain."""
    chain = 0

    def hear(event: Event) -> None:
        nonlocal chain
        if isinstance(event, StepStarted) and event.step == STAGE and event.details["pieces"]:
            chain += 1 + (len(QUESTIONS) if event.details.get("judged") else 0)

    began = time.perf_counter()
    objects = Objects()
    client = AsyncClient(
        f"{url}#scripted",
        store=folder / f"{time.monotonic_ns()}.db",
        settings=Settings(concurrency=options.in_flight),
        listener=hear,
    )
    spec = CalibrateSpec(
        template=TEMPLATE,
        judge=parse_judge(judge) if judge else None,
        metric=None if judge else objects.name(grade),
        strategy="protegi",
        beam=options.beam,
        depth=options.depth,
        successors=options.successors,
    )
    rows = [{"topic": f"topic {n}"} for n in range(options.rows)]
    result = await client.run(spec, cases=rows, objects=objects.by_name)
    return result, time.perf_counter() - began, chain


async def measure(options: argparse.Namespace, judge: str | None, folder: Path) -> None:
    walls: list[float] = []
    templates, chain, stats = 0, 0, dict[str, int]()
    for _ in range(options.times):
        with serve(options.latency) as url:
            result, wall, chain = await search(options, judge, url, folder)
            stats = await asyncio.to_thread(read_stats, url)
        walls.append(wall)
        templates = len(result.nodes)
    path = chain * options.latency
    ratios = ", ".join(f"{wall / path:.3f}" for wall in sorted(walls))
    print(f"\nscored by {judge or 'a metric'}: {templates} templates")
    print(f"  {stats['calls']} calls, at most {stats['most_in_flight']} in flight")
    print(f"  longest chain {chain} calls, critical path {path:.2f} s, wall {min(walls):.2f} s")
    print(f"  wall / critical path {min(walls) / path:.3f} (all: {ratios})")


def read_stats(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/stats") as answer:
        return json.load(answer)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--successors", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        serve_until_stopped(options.latency)
    print(describe_machine())
    print(
        f"beam {options.beam}, {options.depth} rounds, {options.successors} successors,"
        f" {options.rows} rows, {options.latency * 1000:.0f} ms a call, at most {options.in_flight}"
        f" in flight, least of {options.times}; aim {AIM}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serve(0.0) as url:
            small = argparse.Namespace(**{**vars(options), "depth": 1})
            await search(small, "probe", url, folder)
        calm_collector()
        for judge in (None, "probe"):
            await measure(options, judge, folder)


if __name__ == "__main__":
    asyncio.run(main())
