"""The way to a PostgreSQL server breaks in the middle of a run, for a while or for too long."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from test_lease import wait_until

from postgres_server import address_of
from relay import Relay
from textevolve.errors import StoreError
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.settings import StoreAddress
from textevolve.store import Store, open_store, postgres, tables

pytestmark = pytest.mark.slow

CASES, CALLS, IN_FLIGHT = 12, 6, 4
IMPATIENT = """
from textevolve.cli import main
from textevolve.store import postgres

postgres.PATIENCE_SECONDS = 2.0
main()
"""


@pytest.fixture
def relay(request):
    server = request.getfixturevalue("postgres")
    with Relay(Path(server.folder) / "data" / ".s.PGSQL.5432") as opened:
        yield opened


@pytest.fixture
def address(relay, postgres_name, monkeypatch, home):
    """The way through the relay, which is also that of all commands."""
    found = StoreAddress(f"postgresql://postgres@127.0.0.1:{relay.port}/{postgres_name}")
    monkeypatch.setenv("TEXTEVOLVE_STORE", address_of(found))
    rows = [
        {"id": f"{n}", "input": f"What is {n}?", "candidates": ["1", "2"]} for n in range(CASES)
    ]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def evaluate(server):
    model, concurrency = f"{server.url}#scripted", str(IN_FLIGHT)
    judge = ("--judge", "probe", "--concurrency", concurrency)
    return ("evaluate", "cases.jsonl", "-m", model, *judge)


def check(address, status="finished"):
    """All is there once; returns how many calls are."""
    with open_store(address) as store:
        (run,) = store.list_runs()
        assert run.status == status
        keys = [call.key for call in store.calls(run.id)]
        assert len(keys) == len(set(keys))
        if status == "finished":
            assert store.count_records(run.id) == {"scored": CASES}
        return len(keys)


def test_too_long_an_outage_ends_a_run_with_one_line(spawn, cli, address, relay):
    with ScriptedServer(lambda _body, _call: Answer(delay=0.1)) as server:
        run = spawn(*evaluate(server), script=IMPATIENT)
        wait_until(lambda: server.calls >= 20 or run.poll() is not None)
        relay.cut()
        out, said = run.communicate(timeout=200)
        asked = server.calls
        relay.restore()
        assert run.returncode == 1, said
        assert "Traceback" not in out + said
        (line,) = [one for one in said.splitlines() if one.startswith("error: ")]
        assert "postgresql://postgres@127.0.0.1" in line
        kept = check(address, "interrupted")
        assert asked - 2 * IN_FLIGHT <= kept <= asked
        assert cli("runs", "resume").code == 0
        assert server.calls == asked + CASES * CALLS - kept
    assert check(address) == CASES * CALLS


def test_other_reading_and_writing_waits_too(address, relay):
    """What is not of runs: namespaces, agents, jobs, keys."""
    resources = Store(address_of(address))
    try:
        resources.ensure_namespace("before")
        relay.cut()
        back = threading.Timer(1.0, relay.restore)
        back.start()
        resources.ensure_namespace("after")
        back.join()
        relay.cut()
        relay.restore()  # the connections of before are gone
        names = tables.namespaces.select()
        found = resources.database.read(lambda c: {row.name for row in c.execute(names)})
        assert {"before", "after"} <= found
    finally:
        resources.close()


def test_one_more_process_of_a_run_waits_for_the_server(address, relay, monkeypatch):
    relay.cut()
    later = threading.Timer(1.0, relay.restore)
    later.start()
    with open_store(address, patient=True) as store:
        assert store.list_runs() == []
    later.join()
    relay.cut()
    monkeypatch.setattr(postgres, "PATIENCE_SECONDS", 0.3)
    with pytest.raises(StoreError, match="no connection to the server"):
        open_store(address, patient=True)
    relay.restore()
    monkeypatch.setattr(postgres, "PATIENCE_SECONDS", 600.0)
    strange = StoreAddress(address.url.rsplit("/", 1)[0] + "/nowhere")
    with pytest.raises(StoreError, match="no such database"):
        open_store(strange, patient=True)
