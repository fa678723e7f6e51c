"""Judgements of a memory system against a loopback server that takes 200 ms: one stream or phases?

    python benchmarks/memory_throughput.py [--users 12] [--sessions 12] [--in-flight 64]
                                           [--latency 0.2] [--adding 0]

Made data, fed to a system that keeps what users say, word for word. `ideal` is the time that
perfect overlap would take: ceil(calls / in flight) x latency, where a question takes two calls, its
answer and its judgement. `--adding`: seconds that the system takes for each session, so that
feeding and judging have to go on side by side; the ideal is then at least the time of feeding.
Beside the wall time stands the least that it could take if judging began when all is fed.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sitting import describe_machine
from textevolve.cli.results import calm_collector
from textevolve.events import CallFinished, Event
from textevolve.llm.testing import serve_in_process
from textevolve.memory_eval.dataset import DialogueTurn, user_to_line
from textevolve.memory_eval.judging import MemoryJudgement
from textevolve.memory_eval.synthesis import synthesise
from textevolve.memory_eval.systems import Capabilities
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.settings import Settings
from textevolve.store.repository import open_store
from textevolve.studies.memory_eval import USERS_IN_FLIGHT, MemoryEvaluationSpec
from textevolve.user_code import name_object


class Echo:
    """Keeps what users say; takes its time for it."""

    name = "echo"
    capabilities = Capabilities()

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.held: dict[str, list[str]] = {}

    async def add(self, dialogue: Sequence[DialogueTurn], user: str, /) -> Sequence[str]:
        await asyncio.sleep(self.seconds)
        texts = [turn.content for turn in dialogue if turn.role == "user"]
        self.held.setdefault(user, []).extend(texts)
        return texts

    async def search(self, query: str, user: str, limit: int, /) -> Sequence[str]:
        return self.held[user][-limit:]

    async def answer(self, question: str, memories: Sequence[str], /) -> str:
        raise AssertionError("it promises no answers")

    async def aclose(self) -> None:
        pass


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--users", type=int, default=12)
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--adding", type=float, default=0.0)
    options = parser.parse_args()
    print(describe_machine())
    calm_collector()
    server = ("--latency", str(options.latency))
    with tempfile.TemporaryDirectory() as name, serve_in_process(*server) as url:
        folder = Path(name)
        path = folder / "data.jsonl"
        users = synthesise(options.users, options.sessions)
        path.write_text("".join(user_to_line(user) + "\n" for user in users), encoding="utf-8")
        system = Echo(options.adding)
        objects: dict[str, object] = {name_object(system): system}
        (system_name,), model = objects, f"{url}#scripted"
        spec = MemoryEvaluationSpec(data=str(path), system=system_name, model=model)
        settings = Settings(concurrency=options.in_flight)
        judged, calls = 0, 0

        def hear(event: Event) -> None:
            nonlocal calls
            if isinstance(event, CallFinished):
                calls += event.usage.calls * (not event.replayed)

        async with open_store(folder / "run.db") as store:
            launch = Launch(listener=hear, objects=objects)
            plan = await driver.plan_run(spec, settings, launch)
            run = plan.register(store)
            began, cpu = time.perf_counter(), time.process_time()
            async for item in driver.perform(store, run, settings, plan.launch):
                judged += isinstance(item, MemoryJudgement)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    feeding = math.ceil(options.users / USERS_IN_FLIGHT) * options.sessions * options.adding
    judging = math.ceil(calls / options.in_flight) * options.latency
    ideal = max(judging, feeding)
    print(
        f"{options.users} users, {options.users * options.sessions} sessions,"
        f" {judged:,} judgements, {calls:,} calls, {options.in_flight} in flight,"
        f" {options.latency * 1000:.0f} ms a call,"
        f" {options.adding * 1000:.0f} ms a session"
    )
    print(
        f"wall {wall:.2f} s, ideal {ideal:.2f} s, wall/ideal {wall / ideal:.2f}, CPU/call"
        f" {cpu * 1000 / calls:.2f} ms; in phases at best {feeding + judging:.2f} s"
    )


if __name__ == "__main__":
    asyncio.run(main())
