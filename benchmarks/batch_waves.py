"""Cases in batch jobs: calls for each CPU second of this process, and its memory.

    python benchmarks/batch_waves.py --cases 10000
    python benchmarks/batch_waves.py --cases 10000 --plain    the same calls, each asked at once

The scripted server answers in a process of its own, and a job of it lasts a second. Each case is a
debate of three agents over one round: three waves, each of as many calls as there are cases.
"""

import argparse
import asyncio
import gc
import resource
import tempfile
import time
from pathlib import Path

from sitting import describe_machine
from textevolve.evaluation import Case
from textevolve.events import BatchPolled, CallFinished
from textevolve.llm.testing import serve_in_process
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.runs.study import find_study
from textevolve.settings import Batches, Settings
from textevolve.store.repository import open_store


async def measure(url: str, folder: Path, number: int, batch: bool) -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # as the command line does
    options = Batches(quiet=1.0, poll=(0.5, 2.0))
    settings = Settings(store=folder / "runs.db", batch=batch, batches=options, concurrency=256)
    study = find_study("evaluate")
    spec = study.spec(model=f"{url}#m", rounds=1, readout="verbalized")
    calls, jobs = 0, set[str]()

    def hear(event: object) -> None:
        nonlocal calls
        calls += isinstance(event, CallFinished)
        if isinstance(event, BatchPolled):
            jobs.add(event.batch)

    text = "A sentence of a candidate that is judged here, as long as most are. " * 6
    cases = (Case(f"Question {n}?", (f"{text}{n}", text)) for n in range(number))
    with open_store(settings.store) as store:
        run = (await driver.plan_run(spec, settings, cases=cases)).register(store)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cpu, wall = time.process_time(), time.perf_counter()
        launch = Launch(listener=hear, ordered=False)
        records = [None async for _ in driver.perform(store, run, settings, launch)]
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(records):,} cases, {calls:,} calls, {len(jobs)} batch jobs: {cpu:.1f} s of CPU,"
        f" {calls / cpu:,.0f} calls a CPU second, {wall:.0f} s; memory at most {most:,.0f} MiB,"
        f" {most - before:,.0f} above the start"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--plain", action="store_true", help="ask each call at once")
    options = parser.parse_args()
    print(describe_machine())
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_in_process("--batches", "1") as url,
    ):
        asyncio.run(measure(url, Path(folder), options.cases, not options.plain))


main()
