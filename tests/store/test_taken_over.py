"""Runs that go from one process to another: who was late ends with one line, and what is finished
stays finished."""

from __future__ import annotations

import json
import signal
import time

import pytest
from test_lease import LATE, ask

from postgres_server import address_of
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.store import open_store

pytestmark = pytest.mark.slow

CASES, CALLS, IN_FLIGHT = 8, 6, 2
SQLITE = pytest.mark.parametrize("location", ["sqlite"], indirect=True)


@pytest.fixture
def evaluate(home, location, monkeypatch):
    """The arguments of a run over a few cases; both stores are those of all commands."""
    rows = [
        {"id": f"{n}", "input": f"What is {n}?", "candidates": ["1", "2"]} for n in range(CASES)
    ]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("TEXTEVOLVE_STORE", address_of(location))

    def command(server, *more):
        model = f"{server.url}#scripted"
        concurrency = ("--concurrency", str(IN_FLIGHT))
        return ("evaluate", "cases.jsonl", "--judge", "probe", "-m", model, *concurrency, *more)

    return command


def wait_until(process, done):
    until = time.monotonic() + 120
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


@SQLITE
def test_a_process_that_was_asleep_ends_with_one_line(evaluate, location, spawn, cli):
    """Another machine had the run meanwhile, and has finished it."""
    begin = 3 * CALLS

    def script(_body, call):
        return Answer(delay=4) if begin < call <= begin + IN_FLIGHT else None

    with ScriptedServer(script) as server:
        late = spawn(*evaluate(server))
        wait_until(late, lambda: server.calls >= begin + IN_FLIGHT)
        time.sleep(1)  # by now it writes nothing, and only waits for its answers
        late.send_signal(signal.SIGSTOP)
        with open_store(location) as store:
            (run,) = store.list_runs()
            assert run.status == "running"
            ask(store, LATE)
        taken = cli("runs", "resume", run.id)
        late.send_signal(signal.SIGCONT)
        assert taken.code == 0, taken.err
        out, said = late.communicate(timeout=120)
        assert late.returncode == 1, said
        taken_by = f"error: run {run.id}: was taken and finished by another process while this"
        assert [line for line in said.splitlines() if line.startswith(taken_by)], said
        assert "Traceback" not in out + said
        assert server.calls <= CASES * CALLS + 2 * IN_FLIGHT
    with open_store(location) as store:
        assert store.get_run(run.id).status == "finished"
        assert store.count_records(run.id) == {"scored": CASES}
        keys = {call.key for call in store.calls(run.id)}
        assert len(keys) == CASES * CALLS
    assert cli("config", "store", "check").code == 0
