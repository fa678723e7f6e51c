"""Events of runs: none is missed, whoever works on the run and however slow the watcher is."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from plain_http import Watcher, watch

from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.server.studies.reading import record_json
from textevolve.store.records import StoredRecord

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
    records = records_of(events)
    assert [key for _, key in records] == [f"{n}" for n in range(8)]
    assert records == sorted(records)
    last = [data for _, name, data in events if name == "progress"][-1]
    assert (last["cases"], last["records"]) == (8, {"scored": 8})
    assert last["spent"]["calls"] == 48
    message = next(data for _, name, data in events if name == "record")
    page = ask(f"{url}/v1/studies/{run['id']}/records?limit=1")[1]["data"]
    assert message == page[0]


def test_watchers_who_share_a_look_miss_nothing(serve, ask, slow):
    url = serve(model=slow)
    run = ask(f"{url}/v1/studies", STUDY)[1]
    with ThreadPoolExecutor(6) as pool:
        streams = list(pool.map(lambda _: watch(url, run["id"]), range(6)))
    for events in streams:
        assert [key for _, key in records_of(events)] == [f"{n}" for n in range(8)]
        assert events[-1] == (None, "status", {"status": "finished", "reason": ""})


@pytest.mark.slow
def test_whoever_comes_back_misses_nothing(serve, ask, slow):
    url = serve(model=slow)
    run = ask(f"{url}/v1/studies", STUDY)[1]
    matches, last, status, turns = [], None, "", 0
    while status != "finished":
        turns += 1
        with Watcher(url, run["id"], last) as watcher:
            for id, name, data in watcher:
                status = data.get("status") if name == "status" else status
                if name == "record":
                    matches.append(data["key"])
                    last = id
                    if len(matches) % 3 == 0:
                        break
    assert turns > 2
    assert matches == [f"{n}" for n in range(8)]


@pytest.mark.parametrize(
    ("body", "value"),
    [(b'{"a": NaN}', "NaN"), (b'{"a": -Infinity}', "-Infinity"), (b'{\n"a": null}', None)],
)
def test_a_record_is_strict_json_in_one_line(body, value):
    content = record_json(StoredRecord("k", 0, "c\n", None, "scored", "", body))
    assert b"\n" not in content
    assert json.loads(content, parse_constant=pytest.fail)["record"] == {"a": value}
