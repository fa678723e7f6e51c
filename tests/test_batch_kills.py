"""Runs in batch jobs that are cut off: killed at any moment, or interrupted. Whatever happens, no
request is put into two jobs, and the figures are those of a run that was not cut off."""

import json
import random
import time

import pytest

from textevolve.llm.testing import ScriptedBatches, ScriptedServer

QUICK = "[batches]\nquiet = 0.05\npoll = [0.05, 0.2]\n"
CASES = 4
CALLS = CASES * 3 * 2
OPTIONS = ("--convergence", "none", "--readout", "verbalized")
KILLS = 2
pytestmark = [pytest.mark.slow, pytest.mark.guard]


@pytest.fixture
def command(home, monkeypatch):
    config = home / "quick.toml"
    config.write_text(QUICK)
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(config))
    rows = [{"input": f"Which is {n}?", "candidates": ["This.", "That."]} for n in range(CASES)]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ScriptedServer(batches=ScriptedBatches(0.3)) as server:
        yield server, ("evaluate", "cases.jsonl", "-m", f"{server.url}#m", *OPTIONS)


def without_seconds(rows):
    if isinstance(rows, dict):
        return {k: without_seconds(v) for k, v in rows.items() if k not in ("seconds", "attempts")}
    return [without_seconds(row) for row in rows] if isinstance(rows, list) else rows


def wait_until(condition, process):
    until = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)


def test_killed_again_and_again_nothing_is_lost_or_asked_twice(home, command, spawn, cli):
    server, asks = command
    full_outcome = cli(*asks, "--json", "--store", home / "whole.db")
    assert server.calls == CALLS
    rng = random.Random(0)
    for number in range(KILLS):
        begun = server.batches.uploads
        process = spawn(*asks, "--batch")
        # Once a job is on its way, at some moment of its life.
        wait_until(lambda begun=begun: server.batches.uploads > begun, process)
        time.sleep(rng.uniform(0, 0.6) if number % 3 else 0.0)
        process.kill()
        process.communicate()
    outcome = cli(*asks, "--batch", "--json")
    assert outcome.code == 0, outcome.err
    assert without_seconds(outcome.rows) == without_seconds(full_outcome.rows)
    assert server.calls == 2 * CALLS
    prompts = [json.dumps(request) for request in list(server.requests)[CALLS:]]
    assert len(prompts) == len(set(prompts))
    assert server.batches.files == {} or server.batches.uploads > len(server.batches.jobs)
