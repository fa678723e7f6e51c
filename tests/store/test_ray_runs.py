"""Runs that are spread over a Ray cluster are those that one process makes, also where a worker or
the driver ends on the way. The cluster is one of this machine, started once."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from flat_verbs import evaluate_batch
from postgres_server import address_of
from textevolve.engine import ray as spreading
from textevolve.errors import ClusterError
from textevolve.evaluation import EvaluationResult
from textevolve.llm.testing import ScriptedServer
from textevolve.runs.cluster import share_limits
from textevolve.settings import PoolMember, PoolSettings, Provider, Settings
from textevolve.store.repository import open_store

CASES, CALLS, AT_ONCE = 12, 72, 4
DEBATE = ("--convergence", "none", "--readout", "verbalized")


class Cluster(NamedTuple):
    address: str
    token: str


@pytest.fixture(scope="module")
def cluster():
    """The cluster that this process drives."""
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    os.environ.pop("RAY_ADDRESS", None)
    spreading.load("ray")  # before anything else does, so that it listens on loopback
    ray = pytest.importorskip("ray")

    spreading._join(ray, "")
    address = ray.get_runtime_context().gcs_address
    assert address.startswith("127.0.0.1:")
    token = Path.home() / ".ray" / "auth_token"  # which tests with a home of their own do not see
    yield Cluster(address, token.read_text() if token.exists() else "")
    ray.shutdown()
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture
def cases(home):
    path = home / "cases.jsonl"
    rows = [
        {"input": f"Which is {n}?", "candidates": [f"It is {n}. ", "It is not."]}
        for n in range(CASES)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def hired(monkeypatch):
    """The workers that were hired, to be killed."""
    matches, hire = [], spreading._hire

    def note(*given):
        matches.append(hire(*given))
        return matches[-1]

    monkeypatch.setattr(spreading, "_hire", note)
    return matches


def found_in(location):
    """What a run found and used, but for times."""
    with open_store(location) as store:
        run = store.get_run("last")
        records = [
            (
                iterate_record.key,
                iterate_record.position,
                iterate_record.case,
                iterate_record.score,
                iterate_record.status,
                iterate_record.passed,
            )
            for iterate_record in store.iterate_records(run.id)
        ]
        totals = store.run_totals(run.id)
    return run.status, sorted(records), totals.spent, totals.failed


@pytest.mark.alone
def test_a_spread_run_is_the_run_of_one_process(cluster, cli, cases, home, location, server, model):
    command = ("evaluate", cases, *DEBATE, "-m", model, "--concurrency", AT_ONCE)
    here = cli(*command, "--store", home / "here.db", "-o", home / "here.csv")
    assert here.code == 0, here.err
    calls = server.calls
    there = cli(*command, "--store", address_of(location), "--on", "ray", "-o", home / "there.csv")
    assert there.code == 0, there.err
    assert server.calls == 2 * calls
    assert found_in(location) == found_in(home / "here.db")
    assert found_in(location)[0] == "finished"


@pytest.mark.alone
def test_what_a_killed_worker_had_in_hand_is_done_by_another(cluster, cli, cases, home, hired):
    import ray

    def script(_body, call):
        if call == CALLS // 2:
            threading.Thread(target=ray.kill, args=(hired[0],)).start()
        return

    with ScriptedServer(script, latency=0.05) as server:
        command = ("evaluate", cases, *DEBATE, "-m", f"{server.url}#scripted")
        command += ("--concurrency", AT_ONCE)
        outcome = cli(*command, "--store", home / "there.db", "--on", "ray")
        assert outcome.code == 0, outcome.err
        assert len(hired) == 2
        twice = sum(number - 1 for number in server.seen.values())
        assert server.calls == CALLS + twice
        assert twice <= AT_ONCE
        cli(*command, "--store", home / "here.db")
    assert found_in(home / "there.db") == found_in(home / "here.db")


@pytest.mark.alone
def test_a_limit_holds_and_the_run_goes_on_elsewhere(cluster, cli, cases, home, server, model):
    command = ("evaluate", cases, *DEBATE, "-m", model, "--concurrency", AT_ONCE)
    stopped = cli(*command, "--on", "ray", "--max-calls", 20)
    assert stopped.code == 3
    assert server.calls == 20
    assert "the limit of 20 calls is reached" in stopped.err
    resumed = cli("runs", "resume", "--on", "none", "--concurrency", AT_ONCE)
    assert resumed.code == 0, resumed.err
    assert server.calls == CALLS
    cli(*command, "--store", home / "whole.db")
    assert found_in(home / "store.db") == found_in(home / "whole.db")


@pytest.mark.alone
def test_an_interrupted_command_tells_how_to_go_on(
    cluster, cli, cases, home, spawn, stalling, monkeypatch, calls_of
):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    monkeypatch.setenv("RAY_AUTH_TOKEN", cluster.token)
    with ScriptedServer(stalling(CALLS // 2)) as server:
        command = ("evaluate", cases, *DEBATE, "-m", f"{server.url}#scripted")
        process = spawn(*command, "--concurrency", AT_ONCE, "--on", "ray")
        until = time.monotonic() + 200
        while server.calls < CALLS // 2 + AT_ONCE and time.monotonic() < until:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert "Resume with: textevolve runs resume" in err
        assert "Traceback" not in out + err
        server.script = None
        before = server.calls
        assert cli("runs", "resume", "--concurrency", AT_ONCE).code == 0
        assert server.calls - before == CALLS - CALLS // 2
    assert found_in(home / "store.db")[0] == "finished"


@pytest.mark.alone
def test_code_of_the_users_own_travels_and_may_end_its_process(cluster, home):
    mark = home / "mark"

    async def judge(case):
        if case.id == "7" and not mark.exists():
            mark.touch()
            os._exit(1)
        return EvaluationResult(len(case.candidates[0]) / 100, passed=True)

    rows = [{"id": str(n), "input": "a", "candidates": ["b" * n]} for n in range(1, 21)]
    found = list(evaluate_batch(rows, judge=judge, on="ray", ordered=True, store=home / "own.db"))
    assert [one.result[0].score for one in found] == [n / 100 for n in range(1, 21)]
    assert mark.exists()


@pytest.mark.alone
def test_workers_that_keep_dying_end_the_run(cluster, home, monkeypatch):
    monkeypatch.setattr(spreading, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(spreading, "MOST_LOSSES", 2)

    async def judge(case):
        os._exit(1)

    rows = [{"input": "a", "candidates": ["b"]}]
    with pytest.raises(ClusterError, match="2 workers died one after the other"):
        list(evaluate_batch(rows, judge=judge, on="ray", store=home / "own.db"))


def test_what_cannot_be_spread_is_refused_in_one_line(cli, cases, model, monkeypatch):
    pytest.importorskip("ray")
    command = ("evaluate", cases, "-m", model)
    refused = cli(*command, "--on", "dask")
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 1
    closed = cli(*command, "--on", "ray://127.0.0.1:9")
    assert closed.code != 0
    assert "the Ray cluster at ray://127.0.0.1:9 cannot be reached" in closed.err
    assert "Traceback" not in closed.err


def test_workers_share_the_limits_a_minute():
    provider = Provider(base_url="http://localhost", requests_per_minute=90, tokens_per_minute=600)
    member = PoolMember(model="a/b", requests_per_minute=30)
    settings = Settings(providers={"a": provider}, pools={"p": PoolSettings(members=(member,))})
    shared = share_limits(settings, 3)
    assert shared.providers["a"].requests_per_minute == 30
    assert shared.providers["a"].tokens_per_minute == 200
    assert shared.pools["p"].members[0].requests_per_minute == 10
    assert shared.pools["p"].members[0].tokens_per_minute is None
