"""Runs survive a PostgreSQL server that is away for a while; a finished run stays finished."""

import json
import time
from pathlib import Path

import pytest

from postgres_server import POSTGRES, address_of
from relay import Relay
from textevolve import Settings
from textevolve.llm.testing import Answer, ScriptedServer

pytestmark = [pytest.mark.slow, pytest.mark.guard]

CASES, CALLS = 12, 6


@pytest.fixture
def command(home):
    """The arguments of a run over a few cases."""
    rows = [
        {"id": f"{n}", "input": f"What is {n}?", "candidates": ["1", "2"]} for n in range(CASES)
    ]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def arguments(server):
        judge = ("--judge", "probe", "--concurrency", "4")
        return ("evaluate", "cases.jsonl", "-m", f"{server.url}#scripted", *judge)

    return arguments


def wait_until(process, done):
    late = time.monotonic() + 120
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < late
        time.sleep(0.02)


def test_a_run_goes_on_after_its_connections_broke(
    spawn, cli, command, postgres, postgres_name, monkeypatch
):
    """Several times, each while calls are in flight."""
    with (
        Relay(Path(postgres.folder) / "data" / ".s.PGSQL.5432") as relay,
        ScriptedServer(lambda _body, _call: Answer(delay=0.2)) as server,
    ):
        url = f"postgresql://postgres@127.0.0.1:{relay.port}/{postgres_name}"
        monkeypatch.setenv("TEXTEVOLVE_STORE", address_of(Settings(store=url).store))
        run = spawn(*command(server))
        for moment, seconds in ((5, 2.0), (30, 0.0)):
            wait_until(run, lambda moment=moment: server.calls >= moment)
            relay.cut()
            time.sleep(seconds)
            relay.restore()
        out, messages = run.communicate(timeout=200)
        assert run.returncode == 0, messages
        assert "Traceback" not in out + messages
        assert server.calls == CASES * CALLS
        assert len(cli("runs", "show", "--json").rows) == CASES
        assert cli("config", "store", "check").code == 0
        assert cli(*command(server)).code == 0
        assert server.calls == CASES * CALLS


@POSTGRES
def test_a_finished_run_that_is_killed_while_it_is_repeated_is_finished(
    location, spawn, cli, command
):
    """What failed is asked again; the run is in work while it is, and what it had stays."""
    replies = [Answer(status=413)]

    def script(body, _call):
        return replies[-1] if "What is 3?" in json.dumps(body) else None

    def statuses():
        return sorted(row["status"] for row in cli("runs", "show", "--json").rows)

    with ScriptedServer(script) as server:
        assert cli(*command(server)).code == 3
        before = statuses()
        assert before == ["failed", *["scored"] * (CASES - 1)]
        replies.append(Answer(delay=3600))
        calls = server.calls
        again = spawn(*command(server))
        wait_until(again, lambda: server.calls > calls)
        busy = cli(*command(server))
        assert (busy.code, busy.out) == (1, "")
        assert f"is run by process {again.pid} on" in busy.err
        again.kill()
        again.wait()
        (run,) = cli("runs", "list", "--json").rows
        assert run["status"] == "finished"
        assert statuses() == before
        replies.append(None)
        assert cli(*command(server)).code == 0
        assert statuses() == ["scored"] * CASES
