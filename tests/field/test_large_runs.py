"""Runs of many rows that slow down towards their end, and runs that are given again after a part of
them has failed: calls are counted, not times."""

import json
import sys
import threading
from contextlib import closing

import pytest
from asked import record, write_rows

from textevolve.llm.testing import Answer
from textevolve.store.dialects import driver_of
from textevolve.store.records import RecordFilter, read_behind
from textevolve.store.repository import Store

COMMAND = ("compare", "-d", "rows.jsonl", "--label", "sum", "--metric")


def number_rows(count):
    return [
        {"id": f"r{n}", "n": n, "sum": str(2 * n), "a": str(2 * n), "b": str(n)}
        for n in range(count)
    ]


def count_calls(cli, home, count):
    """Return how many Python functions are called by a comparison of two columns with so many
    rows."""
    write_rows(home / "rows.jsonl", number_rows(count))
    calls = 0

    def count_call(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    threading.setprofile(count_call)
    sys.setprofile(count_call)
    try:
        outcome = cli(*COMMAND, "exact", "--outputs", "a", "--outputs", "b")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert outcome.code == 0, outcome.err
    return calls


@pytest.mark.slow
def test_a_row_costs_the_same_in_a_large_run(cli, home):
    count_calls(cli, home, 2)  # which imports what the others use
    few, more, many = (count_calls(cli, home, count) for count in (40, 120, 360))
    a_row_of_few = (more - few) / 80
    a_row_of_many = (many - more) / 240
    assert a_row_of_many < 1.15 * a_row_of_few
    assert a_row_of_many < LIMIT


LIMIT = 450
"""The most calls of Python functions for a row with two outputs: 400 on 30 November 2026, 626 when
each cell was a task, a record became a row four times and each value was parsed and written by
itself, and 1,200 when each output read the signature of its metric and passed to another thread."""


def count_steps(connection, run_id, place):
    """Return how many steps SQLite takes to read the five records behind a place."""
    steps = []
    raw = driver_of(connection)
    raw.set_progress_handler(lambda: steps.append(place), 1)
    read_behind(connection, run_id, RecordFilter(), after=(place, ""), limit=5)
    raw.set_progress_handler(None, 1)
    return len(steps)


def test_the_last_records_are_read_like_the_first(cli, home):
    write_rows(home / "rows.jsonl", number_rows(200))
    cli(*COMMAND, "exact", "--outputs", "a", "--outputs", "b")
    with closing(Store(home / "store.db")) as store:
        first, last = (
            store.read(count_steps, store.get_run("last").id, place) for place in (5, 390)
        )
    assert last < 1.5 * first


def test_only_failed_rows_are_asked_again(cli, home, server, model):
    write_rows(home / "rows.jsonl", number_rows(12))
    (home / "double.txt").write_text("Double {n}.")
    fails = True

    def answer(body):
        number = int(body["messages"][-1]["content"].removeprefix("Double ").removesuffix("."))
        return Answer(status=400) if fails and number % 3 == 0 else str(2 * number)

    bodies = record(server, answer)
    command = (*COMMAND, "exact", "-p", "double.txt", "-m", model, "--json")
    assert cli(*command).code == 3
    failing = {str(body["messages"]) for body in bodies}
    assert len(failing) == 12
    fails = False
    bodies.clear()
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    assert len(bodies) == 4
    assert json.loads(outcome.out)["variants"][0]["mean"]["value"] == 1


def test_samples_of_a_row_stay_different_in_the_journal(cli, home, server, model):
    write_rows(home / "rows.jsonl", number_rows(2))
    (home / "double.txt").write_text("Double {n}.")
    bodies = record(server, lambda _body: str(len(bodies)))
    command = ("-p", "double.txt", "-m", model, "--samples", "3", "--temperature", "0.7")
    texts = []
    for metric in ("exact", "contains"):
        assert cli(*COMMAND, metric, *command, "-o", "out.jsonl").code == 0
        rows = map(json.loads, (home / "out.jsonl").read_text().splitlines())
        texts.append([(row["row"], row["sample"], row["text"], row["seconds"]) for row in rows])
    assert len(bodies) == 6
    assert len({text for _, _, text, _ in texts[0]}) == 6
    assert texts[0] == texts[1]  # with the seconds of the first run, which asked
