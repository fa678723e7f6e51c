"""Schedulers as processes on one store: some are killed in the midst, and some sleep."""

import json
import signal
import threading
import time
from collections import Counter

import pytest

pytest.importorskip("cronsim")

from textevolve.llm.testing import ScriptedServer

pytestmark = [pytest.mark.slow, pytest.mark.guard]

CASES, ANSWERED = 6, 3
STARTED = "running jobs of"


@pytest.fixture
def add(location, home, cli, query):
    """Keeps a job that is due at once."""

    def make(url, name, *more):
        rows = [
            {"id": str(n), "input": f"{name} {n}?", "candidates": ["1", "2"]} for n in range(CASES)
        ]
        path = home / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        study = {"kind": "evaluate", "cases": [str(path)], "judge": "probe", "model": f"{url}#any"}
        (home / f"{name}.yaml").write_text(json.dumps(study))
        outcome = cli("jobs", "add", name, f"{name}.yaml", "--cron", "0 0 1 1 *", *more)
        assert outcome.code == 0, outcome.err
        query(("UPDATE jobs SET due = ? WHERE name = ?", (time.time() - 1, name)))

    return make


@pytest.fixture
def show(cli):
    """A job with its history, the newest first."""

    def read(name):
        outcome = cli("jobs", "show", name, "--json")
        assert outcome.code == 0, outcome.err
        return outcome.rows[0]

    return read


@pytest.fixture
def work(spawn):
    """Starts a scheduler as a process; it runs when this returns."""

    def start(*more):
        process = spawn("jobs", "work", *more)
        assert STARTED in process.stderr.readline()
        # What it says later must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        return process

    return start


def wait_until(done):
    until = time.monotonic() + 240
    while not done():
        assert time.monotonic() < until
        time.sleep(0.1)


def has_ended(job):
    return bool(job["runs"]) and job["runs"][0]["ended"] is not None


def test_a_killed_schedulers_job_is_taken_over_and_its_run_resumed(
    add, show, work, cli, query, stalling
):
    """The scheduler is killed while the server holds its calls back."""
    with ScriptedServer(stalling(ANSWERED)) as server:
        add(server.url, "nightly", "--concurrency", "1")
        killed = work()
        # What was answered and is not kept yet would be asked twice, too.
        wait_until(
            lambda: (
                server.calls > ANSWERED and query("SELECT count(*) FROM calls")[0][0] >= ANSWERED
            )
        )
        killed.kill()
        killed.wait()
        prompts = [json.dumps(request["messages"]) for request in server.requests]
        (interrupted,) = show("nightly")["runs"]
        assert interrupted["status"] == "interrupted"
        assert interrupted["run_id"]
        (run,) = cli("runs", "list", "--json").rows
        assert (run["id"], run["status"]) == (interrupted["run_id"], "interrupted")
        # The run asks the same model at the same address.
        server.script = None
        following = work()
        wait_until(lambda: has_ended(show("nightly")))
        following.send_signal(signal.SIGTERM)
        assert following.wait(60) == 0
        (run,) = show("nightly")["runs"]
        assert (run["id"], run["run_id"]) == (interrupted["id"], interrupted["run_id"])
        assert run["status"] == "finished"
        repeated = Counter(json.dumps(request["messages"]) for request in server.requests)
        twice = [text for text, number in repeated.items() if number > 1]
        assert len(twice) <= len(prompts) - ANSWERED
        assert set(twice) <= set(prompts[ANSWERED:])
