"""Jobs as they are kept: who has one, what it was due for, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from textevolve.errors import ConflictError, InputError
from textevolve.spec import Frozen
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import database_time
from textevolve.store.repository import Store

HOUR = 3600.0


class Plan(Frozen):
    """As much of a job's specification as the store looks at."""

    name: str
    study: Mapping[str, Any] = {}
    note: str = ""


def now_of(resources):
    return resources.database.read(database_time)


def at_once(_job, now):
    return now - 1


def in_an_hour(_job, now):
    return now + HOUR


def never(_job, _now):
    return None


def make(resources, name="nightly", due=at_once, namespace="acme", **spec):
    return resources.write(stored_jobs.create_job, namespace, Plan(name=name, **spec), due)


def test_a_job_is_kept_listed_changed_and_removed(resources):
    study = {"kind": "evaluate", "data": "\u00e4.jsonl", "judge": ["a", "b\ud800"]}
    made = make(resources, due=in_an_hour, study=study)
    assert made.spec == {"name": "nightly", "study": study}
    assert made.due - now_of(resources) == pytest.approx(HOUR, abs=60)
    assert (made.paused, made.working, made.namespace) == (False, False, "acme")
    make(resources, "another", due=never)
    assert [one.name for one in resources.read(stored_jobs.list_jobs, "acme")] == [
        "another",
        "nightly",
    ]
    assert resources.read(stored_jobs.list_jobs, "other") == []
    changed = resources.write(
        stored_jobs.update_job, "acme", Plan(name="nightly", note="new"), never
    )
    assert (changed.id, changed.due) == (made.id, None)
    assert changed.spec == {"name": "nightly", "note": "new"}
    with pytest.raises(InputError, match="NUL character"):
        make(resources, "bad", study={"data": "\0"})
    with pytest.raises(InputError, match=r"exists already .*jobs add --replace acme/nightly"):
        make(resources)
    resources.write(stored_jobs.delete_job, "acme", "nightly")
    with pytest.raises(InputError, match=r"there is no job 'nightly'.*textevolve jobs add"):
        resources.read(stored_jobs.get_job, "acme", "nightly")


def test_what_is_not_due_or_is_paused_is_not_claimed(resources):
    make(resources, "later", due=in_an_hour)
    make(resources, "never", due=never)
    make(resources, "paused")
    resources.write(stored_jobs.pause_job, "acme", "paused")
    assert resources.claim_due_job(60) is None
    assert HOUR - 60 < resources.read(stored_jobs.seconds_to_next) <= HOUR
    resources.write(stored_jobs.hasten_job, "acme", "later")
    assert resources.claim_due_job(60).job.name == "later"
    with pytest.raises(ConflictError, match="is paused"):
        resources.write(stored_jobs.hasten_job, "acme", "paused")
    with pytest.raises(ConflictError, match="is running already"):
        resources.write(stored_jobs.hasten_job, "acme", "later")


def test_the_one_that_waits_longest_comes_first_and_nobody_else_gets_it(resources, memory_location):
    make(resources, "second", due=lambda _job, now: now - 10)
    make(resources, "first", due=lambda _job, now: now - 20)
    other = Store(memory_location)
    try:
        claims = [resources.claim_due_job(60), other.claim_due_job(60)]
        assert [claim.job.name for claim in claims] == ["first", "second"]
        assert other.claim_due_job(60) is None
        assert other.read(stored_jobs.get_job, "acme", "first").working
    finally:
        other.close()


def test_a_lease_that_has_ended_is_lost_and_who_lost_it_notes_nothing(resources):
    make(resources)
    lost = resources.claim_due_job(-1)
    resources.write(stored_jobs.note_job_run, lost, "run-1")
    assert (
        resources.read(
            stored_jobs.list_job_runs, resources.read(stored_jobs.get_job, "acme", "nightly")
        )[0].status
        == "interrupted"
    )
    taken = resources.claim_due_job(60)
    assert taken.run.id == lost.run.id
    assert taken.run.run_id == "run-1"
    assert not resources.write(stored_jobs.renew_claim, lost, 60)
    with pytest.raises(ConflictError, match="another scheduler has taken it over"):
        resources.write(stored_jobs.note_job_run, lost, "run-2")
    with pytest.raises(ConflictError, match="another scheduler has taken it over"):
        resources.write(stored_jobs.end_claim, lost, "finished", "", never)
    resources.write(stored_jobs.release_claim, lost)
    assert resources.write(stored_jobs.renew_claim, taken, 60)
    assert resources.claim_due_job(60) is None


def test_what_goes_by_in_a_pause_is_left_out_but_not_what_was_broken_off(resources):
    make(resources)
    resources.write(stored_jobs.pause_job, "acme", "nightly")
    assert resources.write(stored_jobs.resume_job, "acme", "nightly", in_an_hour).due > now_of(
        resources
    )
    resources.write(stored_jobs.hasten_job, "acme", "nightly")
    claim = resources.claim_due_job(60)
    resources.write(stored_jobs.pause_job, "acme", "nightly")
    resources.write(stored_jobs.release_claim, claim)
    assert resources.claim_due_job(60) is None
    resources.write(stored_jobs.resume_job, "acme", "nightly", in_an_hour)
    assert resources.claim_due_job(60).run.id == claim.run.id


def test_many_claims_at_once_give_each_job_once(resources, memory_location):
    names = [f"job-{number}" for number in range(12)]
    for name in names:
        make(resources, name)
    texts, stores = list[str](), [Store(memory_location) for _ in range(4)]

    def claim_all(store):
        while (claim := store.claim_due_job(60)) is not None:
            texts.append(claim.job.name)

    threads = [threading.Thread(target=claim_all, args=(single_store,)) for single_store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(texts) == sorted(names)
