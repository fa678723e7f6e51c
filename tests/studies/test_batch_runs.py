"""Studies in batch jobs: the same figures as without, through every door, and what is said."""

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.llm.testing import BatchFault, ScriptedBatches, ScriptedServer
from textevolve.protocol.batches import read_result_line, write_request_line
from textevolve.store.repository import open_store

QUICK = "batch = false\n[batches]\nquiet = 0.02\npoll = [0.01, 0.05]\n"
CASES = 3
OPTIONS = ("--convergence", "none", "--readout", "verbalized")


@pytest.fixture
def batched(home, monkeypatch):
    """A server that takes batch jobs, and settings that do not wait long."""
    config = home / "quick.toml"
    config.write_text(QUICK)
    monkeypatch.setenv("TEXTEVOLVE_CONFIG", str(config))
    with ScriptedServer(batches=ScriptedBatches(0.02)) as server:
        yield server


@pytest.fixture
def cases(home):
    path = home / "cases.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["input", "candidate_1", "candidate_2"])
        writer.writerows([f"Which is {n}?", f"It is {n}.", "It is not."] for n in range(CASES))
    return path


def found(rows):
    """What must not differ."""
    if isinstance(rows, dict):
        return {k: found(v) for k, v in rows.items() if k not in ("seconds", "run", "attempts")}
    return [found(row) for row in rows] if isinstance(rows, list) else rows


def keys(path):
    with open_store(path) as store:
        return sorted(call.key for call in store.calls(store.get_run("last").id))


@pytest.mark.parametrize("options", [OPTIONS])
def test_the_same_run_has_the_same_keys_and_figures(home, cli, batched, cases, options):
    command = ("evaluate", cases, "-m", f"{batched.url}#m", *options, "--json", "--store")
    outcome = cli(*command, home / "a.db", "--batch")
    assert outcome.code == 0, outcome.err
    jobs = len(batched.batches.jobs)
    assert jobs < batched.calls
    plain = cli(*command, home / "b.db")
    assert len(batched.batches.jobs) == jobs
    assert found(outcome.rows) == found(plain.rows)
    assert keys(home / "a.db") == keys(home / "b.db")


@pytest.mark.slow
def test_open_jobs_are_cancelled_and_the_run_goes_on(home, cli, batched, cases):
    """The server ends what is under way, so that a part is answered and the rest is asked anew."""
    batched.batches.faults = {1: BatchFault.POLLS_FAIL}.get
    batched.batches.seconds = 3600.0
    command = ("evaluate", cases, "-m", f"{batched.url}#m", *OPTIONS, "--batch")
    stopped = cli(*command, "--time-limit", 1)
    assert stopped.code == 3, stopped.err
    refused = cli("runs", "delete", "last", "-y")
    assert refused.code == 1
    assert "cancel-batch" in refused.err
    assert "is cancelled" in cli("runs", "cancel-batch", "last").out
    batched.batches.seconds = 0.02
    resumed = cli("runs", "resume", "last", "--batch", "--json")
    assert resumed.code == 0, resumed.err
    assert "no batch job is open" in cli("runs", "cancel-batch", "last").out


@given(st.text(), st.text(min_size=1))
def test_a_line_says_what_was_asked_word_for_word(text, key):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    line = write_request_line(key, body)
    assert line.count(b"\n") == 1
    payload = json.loads(line)
    assert payload["body"] == body
    assert (payload["custom_id"], payload["url"]) == (key, "/v1/chat/completions")


@given(st.binary() | st.text().map(str.encode))
def test_no_line_of_results_is_too_odd_to_be_read(raw):
    answered_line = read_result_line(raw)
    assert answered_line is None or isinstance(answered_line.key, str)
