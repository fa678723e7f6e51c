"""A team keeps thousands of runs in one store, and the pages that list them ask again and again."""

import shutil

import pytest

from textevolve.runs.report import find_history, list_studies
from textevolve.store import served
from textevolve.store.repository import open_store
from textevolve.store.served import RunSearch, ServedRun

MANY = 60


def describe(number, kind="evaluate"):
    data = "odd.jsonl" if number % 2 else "even.jsonl"
    return {"version": 2, "kind": kind, "spec": {"cases": [data], "judge": "probe"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "store.db"
    with open_store(path) as store:
        for number in range(MANY):
            run = store.create_run(describe(number), f"f{number}", f"run {number}", "Köln")
            store.finish_run(run.id, "finished")
        store.create_run(describe(0, "serve"), "calls", "calls")
    return path


@pytest.fixture
def store(made, tmp_path):
    with open_store(shutil.copy(made, tmp_path)) as store:
        yield store


def search(store, start=0, limit=10, sees=None, **fields):
    return store.read(served.search_runs, sees, RunSearch(**fields), start, limit)


def test_page_has_its_runs(store):
    page = search(store, 10, hidden=("serve",))
    assert [run.name for run in page.runs] == [f"run {n}" for n in range(MANY - 11, MANY - 21, -1)]
    assert page.total == MANY
    assert page.kinds == ["evaluate", "serve"]


def test_few_runs_are_parsed(store, monkeypatch):
    parsed = []
    row_to_record = served.row_to_record

    def count(connection, row):
        parsed.append(row.id)
        return row_to_record(connection, row)

    monkeypatch.setattr(served, "row_to_record", count)
    search(store)
    search(store, text="nothing has this")
    assert len(parsed) == 10


def test_searches_find_all_texts(store):
    assert search(store, text="KÖLN").total == MANY
    assert search(store, text='"judge": "probe"').total == MANY + 1
    assert search(store, text="odd.jsonl").total == MANY / 2
    assert search(store, kind="serve").total == 1
    assert search(store, status="interrupted").total == 1


def test_previous_run_is_found(store):
    page = search(store, 1, 4)
    listed = list_studies(store, page.runs)
    names = {run.id: run.name for run in search(store, 0, MANY).runs}
    assert [names[row.earlier] for row in listed] == ["run 57", "run 56", "run 55", "run 54"]
    assert [run.name for run in find_history(store, page.runs[0])][:2] == ["run 59", "run 57"]


def test_tenant_sees_its_runs(store):
    first, second, *_ = search(store, 1).runs
    for run, space in ((first, "acme"), (second, "beta")):
        store.serve_run(ServedRun(run.id, space, "k", 1.0, "running", {}))
    page = search(store, sees=lambda row: row.namespace == "acme")
    assert [run.id for run in page.runs] == [first.id]
    assert page.total == 1


def test_damaged_runs_are_listed(store):
    (newest,) = search(store, 1, 1).runs
    with open_store(store.location) as other:
        other.write(
            lambda connection: connection.exec_driver_sql(
                "UPDATE runs SET spec = x'7b226b' WHERE id = ?", (newest.id,)
            )
        )
    page = search(store, status="failed")
    assert [run.id for run in page.runs] == [newest.id]
    assert "damaged" in page.kinds
