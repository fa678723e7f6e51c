"""The way to a PostgreSQL server breaks for a while."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from postgres_server import address_of
from relay import Relay
from textevolve.errors import StoreError
from textevolve.settings import StoreAddress
from textevolve.store import postgres, tables
from textevolve.store.repository import Store, open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def relay(request):
    server = request.getfixturevalue("postgres")
    with Relay(Path(server.folder) / "data" / ".s.PGSQL.5432") as opened:
        yield opened


@pytest.fixture
def address(relay, postgres_name):
    """The way through the relay."""
    return StoreAddress(f"postgresql://postgres@127.0.0.1:{relay.port}/{postgres_name}")


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
        text = resources.database.read(lambda c: {row.name for row in c.execute(names)})
        assert {"before", "after"} <= text
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
