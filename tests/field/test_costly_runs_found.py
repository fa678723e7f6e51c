"""A team looks in a store of many runs for those of a day, of a data set, the slow and the dear."""

import asyncio
import time
from functools import partial

import pytest

from postgres_server import BOTH
from textevolve.errors import StoreError
from textevolve.evaluation import Usage
from textevolve.llm.model import JournalEntry, Message, Request, Response
from textevolve.store import served
from textevolve.store.repository import open_store
from textevolve.store.resource_rows import update_where
from textevolve.store.runs import read_spending
from textevolve.store.served import RunSearch
from textevolve.store.tables import runs

pytestmark = BOTH
DAY = 86_400


def entry(name, number, started, seconds, cost):
    request = Request(messages=(Message("user", (f"question {number}",)),))
    usage = Usage(1, 10, 0, 2, cost)
    response = Response("Yes.", "stop", usage)
    return JournalEntry(f"{name} {number}", "m", request, response, None, started, seconds, 1)


@pytest.fixture
def store(location):
    with open_store(location) as store:
        for name, day, costs in (
            ("old", 3, (0.25, 0.5)),
            ("dear", 2, (4.0, 1.0)),
            ("unpriced", 1, (4.0, None)),
            ("silent", 0, ()),
        ):
            spec = {"version": 2, "kind": "evaluate", "spec": {"cases": [f"{name}.jsonl"]}}
            run = store.create_run(spec, name, name)
            begun = time.time() - day * DAY
            store.write(partial(set_begun, run_id=run.id, at=begun))
            with store.lease(run.id):
                for number, cost in enumerate(costs):
                    # The second call begins after a pause of an hour.
                    call = entry(name, number, begun + 3600 * number, 40.0, cost)
                    asyncio.run(store.journal(run.id).append(call))
                    # Another one begins while it is under way, and ends half of it later.
                    call = entry(name, f"{number} b", begun + 3600 * number + 20, 40.0, 0.0)
                    asyncio.run(store.journal(run.id).append(call))
            store.finish_run(run.id, "finished")
        yield store


def set_begun(connection, run_id, at):
    update_where(connection, runs, {"created": at}, id=run_id)


def names_of(store, **fields):
    return [
        run.name for run in store.read(served.search_runs, None, RunSearch(**fields), 0, 9).runs
    ]


def test_calls_say_what_runs_took(store):
    ids = {run.name: run.id for run in store.list_runs()}
    spending = store.read(read_spending, [ids["dear"], ids["unpriced"], ids["silent"]])
    assert spending[ids["dear"]].seconds == pytest.approx(120.0)
    assert spending[ids["dear"]].cost == 5.0
    assert spending[ids["unpriced"]].cost is None
    assert ids["silent"] not in spending


def test_pauses_take_no_time(store):
    assert names_of(store, seconds=121.0) == []


def test_dear_and_slow_runs_are_found(store):
    assert names_of(store, cost=1.0) == ["dear"]
    assert names_of(store, cost=0.75) == ["dear", "old"]
    assert names_of(store, seconds=119.0) == ["unpriced", "dear", "old"]
    assert names_of(store, seconds=119.0, cost=9.0) == []
    assert len(names_of(store)) == 4


def test_days_limit_the_list(store):
    now = time.time()
    assert names_of(store, since=now - 2.5 * DAY, until=now - 0.5 * DAY) == ["unpriced", "dear"]


def test_data_sets_are_found(store):
    found = names_of(store, accepts=lambda run: run.spec["spec"]["cases"] == ["dear.jsonl"])
    assert found == ["dear"]


def test_the_end_of_an_id_names_a_run(store):
    for run in store.list_runs():
        assert store.get_run(run.id.rpartition("-")[2]).id == run.id
    with pytest.raises(StoreError, match="not in this store"):
        store.get_run(store.list_runs()[0].id[-2:])
