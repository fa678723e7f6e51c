"""Events of runs: none is missed, whoever works on the run and however slow the watcher is."""

import asyncio
import json
import threading

import pytest
from plain_http import Watcher, watch

from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.server.studies.feed import Feed, record_json
from textevolve.store import open_store
from textevolve.store.records import Kept

CASES = "".join(
    json.dumps({"id": f"c{n}", "input": f"Question {n}?", "candidates": ["one", "two"]}) + "\n"
    for n in range(8)
)
STUDY = {
    "kind": "evaluate",
    "cases": ["cases.jsonl"],
    "judge": "probe",
    "run": {"files": {"cases.jsonl": CASES}, "concurrency": 1},
}


def records_of(events):
    return [(int(id), data["key"]) for id, name, data in events if name == "record"]


@pytest.fixture
def slow():
    with ScriptedServer(lambda _body, _number: Answer(delay=0.02)) as upstream:
        yield f"{upstream.url}#any"


def test_a_run_is_told_from_its_beginning_to_its_end(serve, ask, slow):
    url = serve(model=slow)
    run = ask(f"{url}/v1/studies", STUDY)[1]
    events = watch(url, run["id"])
    assert events[0][1] == "status"
    assert events[-1] == (None, "status", {"status": "finished", "reason": ""})
    found = records_of(events)
    assert [key for _, key in found] == [f"{n}" for n in range(8)]
    assert found == sorted(found)
    last = [data for _, name, data in events if name == "progress"][-1]
    assert (last["cases"], last["records"]) == (8, {"scored": 8})
    assert last["spent"]["calls"] == 48
    told = next(data for _, name, data in events if name == "record")
    page = ask(f"{url}/v1/studies/{run['id']}/records?limit=1")[1]["data"]
    assert told == page[0]


def test_whoever_comes_back_misses_nothing(serve, ask, slow):
    url = serve(model=slow)
    run = ask(f"{url}/v1/studies", STUDY)[1]
    found, last, status, turns = [], None, "", 0
    while status != "finished":
        turns += 1
        with Watcher(url, run["id"], last) as watcher:
            for id, name, data in watcher:
                status = data.get("status") if name == "status" else status
                if name == "record":
                    found.append(data["key"])
                    last = id
                    if len(found) % 3 == 0:
                        break
    assert turns > 2
    assert found == [f"{n}" for n in range(8)]


def kept(n, key=None):
    body = json.dumps({"n": n, "text": "x" * 200}).encode()
    return Kept(key or f"k{n}", n, f"c{n}", 0.5, "scored", "", body)


@pytest.fixture
def run_of(home):
    with open_store(home / "feed.db") as store:
        run = store.create_run({"kind": "evaluate", "spec": {}}, "feed", "", "")
        store.add_cases(run.id, [])
        yield store, run.id


def test_a_record_that_changes_while_it_is_read_comes_again(run_of):
    store, run_id = run_of
    state = ["running"]
    feed = Feed(store, lambda _run, _served: (state[0], ""))
    store.keep_records(run_id, [kept(n) for n in range(250)])
    stop = threading.Event()

    def change():
        for n in range(40):
            store.keep_records(run_id, [kept(1000 + n, f"k{n * 6}")])
        state[0] = "finished"
        stop.set()

    async def watch():
        found = {}
        async for part in feed.watch(run_id):
            for line in part.split(b"\n"):
                if line.startswith(b"data: ") and b'"key"' in line:
                    told = json.loads(line[6:])
                    found[told["key"]] = told["record"]["n"]
            await asyncio.sleep(0.01)
        return found

    changing = threading.Thread(target=change)
    changing.start()
    found = asyncio.run(watch())
    changing.join()
    now = {one.key: json.loads(one.body)["n"] for one in store.iterate_records(run_id)}
    assert found == now


@pytest.mark.parametrize(
    ("body", "value"),
    [(b'{"a": NaN}', "NaN"), (b'{"a": -Infinity}', "-Infinity"), (b'{\n"a": null}', None)],
)
def test_a_record_is_strict_json_in_one_line(body, value):
    told = record_json(Kept("k", 0, "c\n", None, "scored", "", body))
    assert b"\n" not in told
    assert json.loads(told, parse_constant=pytest.fail)["record"] == {"a": value}
