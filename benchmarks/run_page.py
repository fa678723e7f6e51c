"""How long the page of a large run takes: a store with so many made-up judged cases is written, and
served on loopback; each page is asked for several times, from its first byte to its last.

    python benchmarks/run_page.py [--cases 100000]
    python benchmarks/run_page.py --cases 100 --runs 10000     the list of many runs, and searches

The records are those of `evaluate` with a pointwise judge, of about one and a half kilobytes each,
so they are decoded and drawn as others are. Where other work is done on the machine, look at the
CPU time of the process, which is that of the server and of the client that reads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from textevolve.evaluation import Case, EvaluationResult, Failure, Usage
from textevolve.judges.opening import JudgedCase
from textevolve.runs.stored import StoredSpec, keep_record
from textevolve.server.app import bind, create_app, make_server, run, url_of
from textevolve.server.options import ViewOptions
from textevolve.settings import Settings
from textevolve.store.records import StoredRecord
from textevolve.store.repository import Store, open_store
from textevolve.studies import evaluate

TEXT = "the claim is stronger than its evidence and a careful reader would want a limit named"
WORDS = TEXT.split()
TIMES = 5
CHUNK = 2000


def make_text(random_: random.Random, words: int) -> str:
    return " ".join(random_.choices(WORDS, k=words))


def judged_cases(number: int) -> Iterator[JudgedCase]:
    drawn = random.Random(0)
    for n in range(number):
        case = Case(make_text(drawn, 80), (make_text(drawn, 100),), f"case-{n}")
        result = EvaluationResult(drawn.random(), drawn.random() < 0.7, make_text(drawn, 20))
        failed = Failure("failed", "the answer has no score")
        judged = failed if n % 500 == 7 else result
        yield JudgedCase(case, n, (judged,), Usage(1, 900, 0, 20, 0.001))


def fill(store: Store, number: int) -> str:
    study = evaluate.STUDY
    stored = StoredSpec(kind=study.kind, spec={"judge": "probe"}, model="none")
    run = store.create_run(stored.model_dump(mode="json"), "benchmark", "a large run", "benchmark")
    store.add_cases(run.id, (Case(f"input {n}", (), f"case-{n}") for n in range(number)))
    waiting: list[StoredRecord] = []
    for record in judged_cases(number):
        waiting.append(keep_record(study, record, study.row(record)))
        if len(waiting) == CHUNK:
            store.keep_records(run.id, waiting)
            waiting.clear()
    store.keep_records(run.id, waiting)
    store.finish_run(run.id, "finished")
    return run.id


def add_runs(store: Store, number: int) -> None:
    """Add finished runs without cases, of which every second has another file."""
    for n in range(number):
        spec = {"judge": "probe", "cases": ["even.jsonl" if n % 2 == 0 else "odd.jsonl"]}
        stored = StoredSpec(kind=evaluate.STUDY.kind, spec=spec, model="none")
        run = store.create_run(stored.model_dump(mode="json"), f"f{n}", f"run {n}", "benchmark")
        store.finish_run(run.id, "finished")


def measure(url: str) -> dict[str, int]:
    """Medians of the time and of this process' CPU time, in ms, and the size of the page."""
    times: list[tuple[float, float]] = []
    size = 0
    for _ in range(TIMES):
        began, used = time.perf_counter(), time.process_time()
        with urllib.request.urlopen(url, timeout=300) as response:
            size = len(response.read())
        times.append((time.perf_counter() - began, time.process_time() - used))
    wall, cpu = (round(1000 * statistics.median(column)) for column in zip(*times, strict=True))
    return {"ms": wall, "cpu_ms": cpu, "KiB": size // 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=0, help="further runs in the store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        began = time.perf_counter()
        with open_store(path) as store:
            stored = fill(store, options.cases)
            add_runs(store, options.runs)
        print(
            f"{options.cases:,} records, {path.stat().st_size / 2**20:.0f} MiB,"
            f" written in {time.perf_counter() - began:.0f} s"
        )
        ready = threading.Event()
        app = create_app(ViewOptions(), Settings(store=path), None, lambda _: ready.set())
        listener = bind("127.0.0.1", 0)
        server = make_server(app)
        thread = threading.Thread(target=asyncio.run, args=(run(server, app, listener),))
        thread.start()
        ready.wait()
        base = f"{url_of(listener)}/runs"
        last = options.cases // 50
        middle = options.cases // 2
        for label, path_ in {
            "list of runs": "",
            "list, searched": "?q=odd.jsonl",
            "list, found nothing": "?q=nowhere",
            "run, first page": f"/{stored}",
            "run, last page": f"/{stored}?page={last}",
            "failed": f"/{stored}?show=failed",
            "below 0.2": f"/{stored}?below=0.2",
            "lowest first": f"/{stored}?sort=score",
            "standing (polled)": f"/{stored}/standing",
            "a case": f"/{stored}/cases/{middle}",
        }.items():
            print(json.dumps({"page": label, **measure(base + path_)}), flush=True)
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
