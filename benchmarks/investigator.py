"""How often judges of trajectories notice a fault beyond the characters that they are shown.

    python benchmarks/investigator.py --model MODEL [--judges trajectory investigator]
        [--store build/investigator.db]

Twelve traces of support agents, each twice: as it should be, and with one planted fault, 5,000 to
9,000 characters into the result of a call: a refused payment, an error, a value that contradicts
the answer, an instruction that is not followed. A judge notices the fault if it gives the faulty
trace a lower score; equal scores count half, and traces without both scores are counted apart. The
answers are stored, so the script can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from textevolve import Case, Client, Limits, Settings, Usage
from textevolve.statistics.intervals import wilson_interval
from textevolve.trajectory import ToolUse, Trajectory

RECORDS = 160
"""The records in the result of the call with the fault: about 14,000 characters."""


@dataclass(frozen=True)
class Trace:
    """A task of an agent, its answer, and one record of a result, as it should be and with the
    fault."""

    task: str
    tool: str
    answer: str
    sound: dict[str, Any]
    faulty: dict[str, Any]


ROWS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TRACES = tuple(Trace(**row) for row in ROWS)


def make_cases() -> list[Case]:
    """Return both forms of each trace."""
    cases: list[Case] = []
    for number, trace in enumerate(TRACES):
        place = random.Random(number).randrange(60, 100)
        filler: list[dict[str, Any]] = [
            {"id": n, "entry": f"{trace.tool} entry {n}", "checked": "2026-01-15", "size": n % 90}
            for n in range(RECORDS)
        ]
        for name, record in (("sound", trace.sound), ("faulty", trace.faulty)):
            result = json.dumps([*filler[:place], record, *filler[place:]])
            calls = (
                ToolUse("find_customer", {"task": trace.task}, "found"),
                ToolUse(trace.tool, {"all": True}, result),
            )
            record_of_work = Trajectory(tool_calls=calls)
            identity = f"{number}-{name}"
            cases.append(Case(trace.task, (trace.answer,), identity, trajectory=record_of_work))

    return cases


def measure(client: Client, judge: str) -> dict[str, Any]:
    """Judge all cases, and count the pairs in which the faulty trace has the lower score."""
    results = list(client.evaluate_batch(make_cases(), judge=judge))
    scores = {result.case.id: result.scores[0] for result in results}
    usage = sum((result.usage for result in results), Usage())
    pairs = [(scores[f"{n}-sound"], scores[f"{n}-faulty"]) for n in range(len(TRACES))]
    noticed = 0.0
    scored = 0
    for sound, faulty in pairs:
        if sound is None or faulty is None:
            continue
        scored += 1
        noticed += (sound > faulty) + 0.5 * (sound == faulty)
    interval = asdict(wilson_interval(noticed, scored)) if scored else None

    return {
        "judge": judge,
        "pairs": scored,
        "without_score": len(pairs) - scored,
        "noticed": noticed,
        "interval": interval,
        "calls": usage.calls,
        "tokens": usage.tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--judges", nargs="+", default=["trajectory", "investigator"])
    parser.add_argument("--store", default="build/investigator.db")
    parser.add_argument("--calls", type=int, default=2000, help="the most calls")
    options = parser.parse_args()
    settings = Settings(store=options.store, model=options.model)
    figures: list[dict[str, Any]] = []

    with Client(settings=settings, limits=Limits(calls=options.calls)) as client:
        for judge in options.judges:
            figures.append(measure(client, judge))
            print(json.dumps(figures[-1]))

    sys.exit(any(entry["without_score"] for entry in figures))


if __name__ == "__main__":
    main()
