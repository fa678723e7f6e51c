"""Runs that are cut off: killed, interrupted, on a full disk; and those started a second time."""

import json
import re
import signal
import sqlite3
import time
from contextlib import closing

import pytest

from textevolve.llm.testing import ScriptedServer
from textevolve.settings import allow_file

pytestmark = pytest.mark.guard

CASES = 12
CALLS = CASES * 3 * 2
IN_FLIGHT = 4
OPTIONS = ("--convergence", "none", "--readout", "verbalized", "--concurrency", IN_FLIGHT)


def write_cases(folder, number=CASES, length=1):
    path = folder / "cases.jsonl"
    rows = [
        {"input": f"Which is {n}?", "candidates": [f"It is {n}. " * length, "It is not."]}
        for n in range(number)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def without_seconds(rows):
    """What must not differ between a run that was cut off and one that was not."""
    if isinstance(rows, dict):
        return {k: without_seconds(v) for k, v in rows.items() if k != "seconds"}
    return [without_seconds(row) for row in rows] if isinstance(rows, list) else rows


def wait_for(condition, process):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        outcome = process.poll() is not None
        if condition():
            return
        if outcome:
            pytest.fail(f"it ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.005)
    pytest.fail("it did not come to this within 60 seconds")


def kept_calls(path):
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute("SELECT count(*) FROM calls").fetchone()[0]


def runs_in(path):
    with closing(sqlite3.connect(path)) as raw:
        try:
            return [id for (id,) in raw.execute("SELECT id FROM runs")]
        except sqlite3.OperationalError:  # the tables are still being made
            return []


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on_and_the_run_is_in_work_for_nobody_else(
    home, spawn, cli, stalling, calls_of
):
    cases = write_cases(home)
    with ScriptedServer(stalling(10)) as server:
        command = ("evaluate", cases, "--model", f"{server.url}#m", *OPTIONS)
        process = spawn(*command, "-o", "results.jsonl")
        wait_for(lambda: server.calls >= 10, process)
        second_outcome = cli(*command)
        assert second_outcome.code == 1
        assert f"is run by process {process.pid} " in second_outcome.err
        assert second_outcome.err.splitlines()[-1].startswith("error: run ")
        process.send_signal(signal.SIGINT)
        _, answer = process.communicate(timeout=20)
        assert process.returncode == 130
        assert "Traceback" not in answer
        (run,) = runs_in(home / "store.db")
        assert answer.splitlines()[-1].endswith(f"Resume with: textevolve runs resume {run}")
        assert (home / "results.jsonl").exists()  # of what there is
        assert not list(home.glob(".*part"))
        assert calls_of(server) < CALLS
        server.script = None
        resumed = cli("runs", "resume", run, "-o", "results.jsonl")
        assert resumed.code == 0
        assert server.calls <= CALLS + IN_FLIGHT
        assert len((home / "results.jsonl").read_text().splitlines()) == CASES
        full_outcome = cli(
            "evaluate", cases, "-m", f"{server.url}#m", *OPTIONS, "--store", "b.db", "--json"
        )
    rows = [json.loads(line) for line in (home / "results.jsonl").read_text().splitlines()]
    assert without_seconds(rows) == without_seconds(full_outcome.rows)


def test_a_finished_run_needs_neither_server_nor_key_nor_a_call(home, cli, monkeypatch):
    (home / "textevolve.toml").write_text("")
    with ScriptedServer(key="sk-a-key-of-some-length") as server:
        (home / "textevolve.toml").write_text(
            f'[providers.mine]\nbase_url = "{server.url}"\nkey_env = "MINE_KEY"\n'
        )
        allow_file(home / "textevolve.toml")
        monkeypatch.setenv("MINE_KEY", "sk-a-key-of-some-length")
        command = ("evaluate", write_cases(home, 3), "--model", "mine/m", "--json", *OPTIONS)
        first_outcome = cli(*command)
        assert (first_outcome.code, server.calls) == (0, 18)
        again = cli(*command)
        assert (again.code, server.calls) == (0, 18)
        assert again.rows == first_outcome.rows
        assert "18 replayed" in again.err
    assert cli(*command).rows == first_outcome.rows  # the server is gone
    monkeypatch.delenv("MINE_KEY")
    (home / "textevolve.toml").unlink()
    assert cli("runs", "show", "--json").rows == first_outcome.rows
    assert cli("runs", "resume", "--json").rows == first_outcome.rows
    outcome = cli("runs", "show")
    assert "mine/m" in outcome.out
    assert "2 of 3 cases passed" in outcome.out
    assert len(runs_in(home / "store.db")) == 1


LIMITED = """
import resource, sys
from textevolve.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
sys.argv[0] = "textevolve"
main()
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_in_one_clear_line_and_nothing_is_lost(
    home, server, model, spawn, cli
):
    cases = write_cases(home, 40, length=100)
    command = ("evaluate", cases, "--model", model, *OPTIONS)
    process = spawn(*command, script=LIMITED)
    _, answer = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in answer
    assert re.match(r"error: store .*store\.db: the disk .+ free ?s", answer.splitlines()[-1])
    calls, kept = server.calls, kept_calls(home / "store.db")
    assert 0 < kept < 240
    with closing(sqlite3.connect(home / "store.db")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert cli("runs", "resume").code == 0
    assert server.calls == calls + 240 - kept
