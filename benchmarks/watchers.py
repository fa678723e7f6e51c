"""500 watchers of one run's events: what they cost the server, and whether any of them waits.

A server runs a study of many cases against a scripted model; watchers connect over plain sockets,
a tenth of them reading slowly. Told are: records that a watcher missed, how much later than the
first watcher the others are told of a record, by how much the last one ends later, and the server's
memory and CPU time with and without watchers.

    python benchmarks/watchers.py [--watchers 500] [--cases 2000] [--slow 0.1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from statistics import median, quantiles
from urllib.parse import urlsplit

from processes import Process, read_process, start_server
from textevolve.llm.testing.server import serve_in_process

MIB = 2**20
EVENT = re.compile(rb"^id: (\d+)$", re.MULTILINE)


@dataclass
class Watcher:
    """What one watcher was told: when, by the ids of events."""

    slow: bool
    told: dict[int, float] = field(default_factory=dict[int, float])
    began: float = 0.0
    ended: float = 0.0

    async def watch(self, url: str, run: str) -> None:
        place = urlsplit(url)
        limit = 2**14 if self.slow else 2**18
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=limit)
        remainder = b""
        path = f"/v1/studies/{run}/events"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        while part := await reader.read(limit):
            now = time.monotonic()
            self.began = self.began or now
            lines, _, remainder = (remainder + part).rpartition(b"\n")
            self.told |= {int(id): now for id in EVENT.findall(lines)}
            if self.slow:
                await asyncio.sleep(0.1)
        self.ended = time.monotonic()
        writer.close()


def ask(url: str, body: object = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())


def study(cases: int, seed: int) -> dict[str, object]:
    rows = ({"input": f"Question {seed}.{n}?", "candidates": ["one"]} for n in range(cases))
    text = "".join(json.dumps(row) + "\n" for row in rows)
    run = {"files": {"cases.jsonl": text}, "concurrency": 8}
    return {"kind": "evaluate", "cases": ["cases.jsonl"], "judge": "reference", "run": run}


def read(pid: int) -> Process:
    """Return the figures of the server's process."""
    process = read_process(pid)
    assert process is not None
    return process


async def measure(url: str, pid: int, cases: int, watchers: list[Watcher], seed: int) -> None:
    began = time.monotonic()
    start = read(pid)
    run = str((await asyncio.to_thread(ask, f"{url}/v1/studies", study(cases, seed)))["id"])
    before = read(pid).resident
    most = before
    tasks = [asyncio.create_task(watcher.watch(url, run)) for watcher in watchers]
    status = ""
    while not all(task.done() for task in tasks) or status != "finished":
        await asyncio.sleep(0.5)
        most = max(most, read(pid).resident)
        status = str((await asyncio.to_thread(ask, f"{url}/v1/studies/{run}"))["status"])
    await asyncio.gather(*tasks)
    took = time.monotonic() - began
    end = read(pid)
    print(f"{len(watchers):>4} watchers: {took:.1f} s, CPU {end.cpu - start.cpu:.1f} s,", end=" ")
    print(
        f"memory {before / MIB:.0f} MiB before, at most {most / MIB:.0f},"
        f" {end.resident / MIB:.0f} after"
    )
    if watchers:
        report(cases, watchers)


def report(cases: int, watchers: list[Watcher]) -> None:
    every = {id for watcher in watchers for id in watcher.told}
    firsts = {id: min(watcher.told.get(id, 1e99) for watcher in watchers) for id in every}
    there = max(watcher.began for watcher in watchers)  # before that some were only coming
    firsts = {id: at for id, at in firsts.items() if at > there}
    missed = sum(cases - len(watcher.told) for watcher in watchers)
    print(f"     missed: {missed} records; {len(firsts)} were made when all were there")
    for name, slow in (("usual", False), ("slow", True)):
        some = [watcher for watcher in watchers if watcher.slow == slow]
        if not some:
            continue
        late = sorted(
            at - firsts[id] for watcher in some for id, at in watcher.told.items() if id in firsts
        )
        p99 = quantiles(late, n=100)[-1]
        last = max(watcher.ended for watcher in some) - min(watcher.ended for watcher in watchers)
        print(
            f"     {len(some)} {name}: told later than the first by {median(late) * 1000:.0f} ms"
            f" (median), {p99 * 1000:.0f} ms (p99), {late[-1] * 1000:.0f} ms (most);"
            f" the last ends {last:.2f} s after the first"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--slow", type=float, default=0.1)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    slow = round(options.watchers * options.slow)
    watchers = [Watcher(n < slow) for n in range(options.watchers)]
    with tempfile.TemporaryDirectory() as folder, serve_in_process("--latency", "0.02") as model:
        words = ["-m", "textevolve", "serve", "--model", f"{model}#any", "--port", "PORT"]
        with start_server(*words, "--store", f"{folder}/store.db") as (pid, port):
            url = f"http://127.0.0.1:{port}"
            asyncio.run(measure(url, pid, options.cases, [], 0))
            asyncio.run(measure(url, pid, options.cases, watchers, 1))


if __name__ == "__main__":
    main()
