"""Labelling tasks, items and labels as they are kept, and what of them survives damage."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from textevolve.agents.resources import NamespaceSpec
from textevolve.errors import InputError
from textevolve.labelling.tasks import GivenLabel, LabelItem, LabelQuestion, TaskSpec
from textevolve.store import kinds, tables
from textevolve.store import labelling as stored_labels
from textevolve.store.repository import Store
from textevolve.store.sqlite import sqlite3
from textevolve.store.upkeep import check as check_store

PAIRS = TaskSpec(kind="pairs", source="rows.csv")
PAGE = 4096
KEPT = ("labelling_tasks", "labelling_items", "labels", "api_keys", "jobs", "job_runs")


def make_items(number, text="text"):
    return [
        LabelItem(n, f"id{n}", f"in {n}", (f"{text} {n} a", f"{text} b")) for n in range(number)
    ]


@pytest.fixture
def resources(memory_location):
    opened = Store(memory_location)
    for name in ("acme", "other"):
        opened.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=name))
    yield opened
    opened.close()


def test_a_task_is_kept_with_its_items_and_what_each_person_said(resources):
    items = make_items(700)
    items[3] = replace(items[3], input="half \ud800 and \0", variants=("x", "y"))
    made = resources.write(stored_labels.create_task, "acme", "mine", PAIRS, items)
    assert (made.positions, made.done, made.spec) == (700, {}, PAIRS)
    resources.write(
        stored_labels.keep_label, made, GivenLabel(3, "ann", "first", "why \ud800", swapped=True)
    )
    for answer in ("first", "tie"):  # the last one counts
        resources.write(stored_labels.keep_label, made, GivenLabel(3, "bob", answer))
    resources.write(stored_labels.keep_label, made, GivenLabel(1, " ann ", "skip"))
    kept, labels = resources.read(stored_labels.read_task, made.id)
    assert kept == items
    assert [(one.position, one.labeller, one.answer) for one in labels] == [
        (1, "ann", "skip"),
        (3, "ann", "first"),
        (3, "bob", "tie"),
    ]
    assert (labels[1].note, labels[1].swapped) == ("why \ud800", True)
    assert resources.read(stored_labels.find_task, "acme", "mine").done == {"ann": 2, "bob": 1}
    assert resources.read(stored_labels.read_labels, made.id, "bob") == [labels[2]]


@pytest.mark.parametrize(
    ("spec", "answer", "said"),
    [
        (PAIRS, "best", "one of: first, second, tie$"),
        (TaskSpec(kind="single", questions=(LabelQuestion(),)), "2", "one of: 0, 1$"),
    ],
)
def test_an_answer_that_there_is_not_is_refused(resources, spec, answer, said):
    task = resources.write(stored_labels.create_task, "acme", "mine", spec, make_items(2))
    with pytest.raises(InputError, match=said):
        resources.write(stored_labels.keep_label, task, GivenLabel(0, "ann", answer))
    with pytest.raises(InputError, match="no item 2"):
        resources.write(stored_labels.keep_label, task, GivenLabel(2, "ann", "skip"))
    with pytest.raises(InputError, match="name"):
        resources.write(stored_labels.keep_label, task, GivenLabel(0, "\u202e", "skip"))
    assert resources.read(stored_labels.get_task, task.id).done == {}


def test_tasks_are_of_one_namespace_and_end_with_it(resources):
    task = resources.write(stored_labels.create_task, "acme", "mine", PAIRS, make_items(2))
    other = resources.write(stored_labels.create_task, "other", "mine", PAIRS, make_items(1))
    for one in (task, other):
        resources.write(stored_labels.keep_label, one, GivenLabel(0, "ann", "tie"))
    with pytest.raises(InputError, match="there is a labelling task 'mine' already"):
        resources.write(stored_labels.create_task, "acme", "mine", PAIRS, make_items(1))
    with pytest.raises(InputError, match="nothing to label"):
        resources.write(stored_labels.create_task, "acme", "empty", PAIRS, [])
    with pytest.raises(InputError, match=r"no labelling task 'mien'.*did you mean 'mine'"):
        resources.read(stored_labels.find_task, "acme", "mien")
    resources.write(kinds.delete, kinds.NAMESPACES, "", "acme")
    assert [one.id for one in resources.read(stored_labels.list_tasks)] == [other.id]
    assert resources.read(stored_labels.read_task, task.id) == ([], [])
    resources.write(stored_labels.delete_task, other.id)
    assert resources.read(stored_labels.read_task, other.id) == ([], [])
    with pytest.raises(InputError, match="no such labelling task"):
        resources.read(stored_labels.get_task, other.id)


def test_people_and_tabs_at_once_lose_nothing(resources, memory_location):
    """Two people, each in two tabs, of which one is a server of its own."""
    task = resources.write(stored_labels.create_task, "acme", "mine", PAIRS, make_items(40))
    second = Store(memory_location)
    failures = []

    def work(store, who, positions):
        try:
            for position in positions:
                store.write(stored_labels.keep_label, task, GivenLabel(position, who, "first"))
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(store, who, range(start, 40, 2)))
        for store, start in ((resources, 0), (second, 1))
        for who in ("ann", "bob")
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    second.close()
    assert failures == []
    assert resources.read(stored_labels.get_task, task.id).done == {"ann": 40, "bob": 40}


@pytest.fixture
def filled(tmp_path):
    """A file with tasks, labels, keys and jobs."""
    path = tmp_path / "store.db"
    resources = Store(str(path))
    resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
    task = resources.write(
        stored_labels.create_task, "acme", "mine", PAIRS, make_items(60, "text " * 40)
    )
    for position in range(60):
        for who in ("ann", "bob"):
            note = f"because {position} " * 20
            resources.write(
                stored_labels.keep_label,
                task,
                GivenLabel(position, who, "first", note, created=float(position)),
            )
    jobs = tables.jobs.insert().values(
        id="jo_1",
        namespace_id="ns_1",
        name="nightly",
        created=1.0,
        updated=2.5,
        paused=False,
        due=None,
        lease_token=None,
        lease_until=None,
        spec="{}",
    )
    keys = tables.api_keys.insert().values(
        id="ke_1", name="ann", hash=b"h" * 32, created=1.0, expires=None, revoked=None, used=2.5,
        spec="{}",
    )  # fmt: skip
    history = tables.job_runs.insert().values(
        job_id="jo_1", due=1.0, started=1.5, ended=None, attempt=1, status="running", run_id="",
        detail="", cause="",
    )  # fmt: skip
    for statement in (jobs, keys, history):
        resources.database.write(lambda c, one=statement: c.execute(one))
    resources.close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def rows_of(path: Path):
    with closing(sqlite3.connect(path)) as raw:
        return {kind: set(raw.execute(f"SELECT * FROM {kind}")) for kind in KEPT}


def test_labels_keys_and_jobs_are_saved_whole(filled, tmp_path):
    copy = tmp_path / "copy.db"
    found = check_store(filled, copy)
    assert not found.damaged, found
    assert {
        kind: found.whole[kind] for kind in ("labels", "labelling_tasks", "api_keys", "jobs")
    } == {
        "labels": 120,
        "labelling_tasks": 1,
        "api_keys": 1,
        "jobs": 1,
    }
    assert rows_of(copy) == rows_of(filled)
    assert Store(str(copy)).read(stored_labels.find_task, "acme", "mine").done == {
        "ann": 60,
        "bob": 60,
    }
