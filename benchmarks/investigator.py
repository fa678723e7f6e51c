"""How often judges of trajectories notice a fault beyond the characters that they are shown.

    python benchmarks/investigator.py --model MODEL [--judges trajectory investigator]
        [--store build/investigator.db] [--json FILE]

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
from typing import Any

import textevolve
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


TRACES = (
    Trace(
        "Refund order 1042 and tell me the amount.",
        "list_refunds",
        "Order 1042 was refunded: 39 euros.",
        {"order": 1042, "status": "refunded", "euros": 39},
        {"order": 1042, "status": "refused", "euros": 39},
    ),
    Trace(
        "Cancel the flight of Ms Berg and confirm it.",
        "list_bookings",
        "The flight of Ms Berg is cancelled.",
        {"name": "Berg", "flight": "OSL-BGO", "state": "cancelled"},
        {"name": "Berg", "flight": "OSL-BGO", "state": "error: already departed"},
    ),
    Trace(
        "How many rooms are free in Tromso on 4 May?",
        "list_rooms",
        "Seven rooms are free in Tromso on 4 May.",
        {"city": "Tromso", "day": "4 May", "free": 7},
        {"city": "Tromso", "day": "4 May", "free": 0},
    ),
    Trace(
        "Send invoice 77 to Mr Lund.",
        "send_batch",
        "Invoice 77 was sent to Mr Lund.",
        {"invoice": 77, "to": "lund@example.com", "result": "sent"},
        {"invoice": 77, "to": "lunde@example.com", "result": "mailbox unknown"},
    ),
    Trace(
        "Is part A-13 in stock?",
        "search_stock",
        "Part A-13 is in stock.",
        {"part": "A-13", "stock": 12},
        {"part": "A-13", "stock": 0, "note": "discontinued"},
    ),
    Trace(
        "Change my address to Storgata 5, and say when it takes effect.",
        "update_addresses",
        "Your address is Storgata 5 from today on.",
        {"customer": "me", "address": "Storgata 5", "from": "today"},
        {"customer": "me", "address": "Storgata 50", "from": "next month"},
    ),
    Trace(
        "Which supplier has the lowest price for steel?",
        "compare_prices",
        "Nordstaal has the lowest price.",
        {"supplier": "Nordstaal", "price": 410, "lowest": True},
        {"supplier": "Vestjern", "price": 398, "lowest": True},
    ),
    Trace(
        "Restart the server and check that it is healthy.",
        "read_log",
        "The server was restarted and is healthy.",
        {"event": "restart", "health": "ok"},
        {"event": "restart", "health": "failed: disk full"},
    ),
    Trace(
        "Book a table for six, without nuts on the menu.",
        "book_table",
        "A table for six is booked, and the menu has no nuts.",
        {"guests": 6, "allergens": "none"},
        {"guests": 6, "allergens": "contains hazelnuts"},
    ),
    Trace(
        "Delete the test accounts only.",
        "delete_accounts",
        "Only test accounts were deleted.",
        {"account": "test-9", "kind": "test", "deleted": True},
        {"account": "anna", "kind": "customer", "deleted": True},
    ),
    Trace(
        "Translate the manual and keep all warnings.",
        "translate",
        "The manual is translated, with all warnings.",
        {"part": "warnings", "kept": 14, "of": 14},
        {"part": "warnings", "kept": 11, "of": 14},
    ),
    Trace(
        "Transfer 200 euros from savings and tell me the new balance.",
        "transfer",
        "200 euros were transferred; the balance is 800 euros.",
        {"transfer": 200, "state": "done", "balance": 800},
        {"transfer": 200, "state": "pending approval", "balance": 1000},
    ),
)


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
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    settings = Settings(store=options.store, model=options.model)
    figures: list[dict[str, Any]] = []

    with Client(settings=settings, limits=Limits(calls=options.calls)) as client:
        for judge in options.judges:
            figures.append(measure(client, judge))
            print(json.dumps(figures[-1]))

    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"version": textevolve.__version__, "figures": figures}, file)
    sys.exit(any(entry["without_score"] for entry in figures))


if __name__ == "__main__":
    main()
