"""Memory over a batch of 100,000 cases that are read lazily: does it stay flat?

    python benchmarks/flat_memory.py [--cases 100000]
    python benchmarks/flat_memory.py --code --cases 1000000

One agent, one round, a loopback server without latency, the journal on. `--code`: judged by a
function in place of a model, so that a million cases take minutes: all is the same but the calls.
Prints the resident memory of this process when the cases are in the store and after each tenth of
the results, and how large the store has become; at last the most memory there was.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes import own_memory
from sitting import describe_machine
from textevolve import Agent, AsyncClient, Case, EvaluationResult, Profile
from textevolve.llm.testing import serve_in_process

FILLER = "The tide follows the moon, and the moon is patient with the sea. "
PROFILE = Profile(agents=(Agent(name="Judge", persona="You judge fairly."),), rounds=1)


def make_cases(number: int) -> Iterator[dict[str, Any]]:
    for n in range(number):
        yield {
            "id": str(n),
            "input": f"Question {n}?",
            "candidates": [f"{n}. " + FILLER * 4, "No."],
        }


async def judge_length(case: Case) -> list[EvaluationResult]:
    return [EvaluationResult(min(1.0, len(text) / 400), True) for text in case.candidates]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--code", action="store_true", help="judged by a function, without a model")
    options = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder, serve_in_process() as url:
        store = Path(folder, "runs.db")
        began, done, scored = time.perf_counter(), 0, 0
        print(f"before: {own_memory() / 1e6:.0f} MB")
        cases = make_cases(options.cases)
        judged: dict[str, Any] = {"model": f"{url}#scripted", "profile": PROFILE}
        judged = {"judge": judge_length} if options.code else judged
        async for result in AsyncClient(store=store).evaluate_batch(cases, **judged):
            if not done:
                print(f"all cases are in the store: {own_memory() / 1e6:.0f} MB", flush=True)
            done += 1
            scored += result.failure is None
            if done % max(1, options.cases // 10) == 0:
                seconds = time.perf_counter() - began
                size = os.stat(store).st_size / 1e6
                print(
                    f"{done:7,} cases: {own_memory() / 1e6:5.0f} MB resident,"
                    f" {done / seconds:5.0f} cases/s, store {size:6.0f} MB",
                    flush=True,
                )
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        print(f"{scored:,} of {done:,} scored; at most {most:.0f} MB")


if __name__ == "__main__":
    asyncio.run(main())
