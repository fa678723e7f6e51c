"""Pages of jobs."""

import pytest
from agent_world import Browser

from pages import Outline
from textevolve.agents.resources import NamespaceSpec
from textevolve.jobs.job_spec import JobSpec
from textevolve.jobs.schedules import next_due
from textevolve.store import Store, kinds
from textevolve.store import jobs as stored_jobs

STUDY = {"kind": "evaluate", "data": "rows.jsonl"}


@pytest.fixture
def resources(home):
    store = Store(str(home / "store.db"))
    for name in ("acme", "other"):
        store.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=name))
    for name, cron in (("nightly", "0 3 * * *"), ("yearly", "0 0 1 1 *")):
        store.write(
            stored_jobs.create_job,
            "acme",
            JobSpec(name=name, study=STUDY, zone="Europe/Vienna", cron=cron),
            next_due,
        )
    yield store
    store.close()


@pytest.fixture
def browser_of(serve, resources):
    return Browser(serve(jobs=False))


def run_once(resources, status, detail="", run_id=""):
    resources.write(stored_jobs.hasten_job, "acme", "nightly")
    claim = resources.claim_due_job(60)
    if run_id:
        resources.write(stored_jobs.note_job_run, claim, run_id)
    resources.write(stored_jobs.end_claim, claim, status, detail, next_due)


def test_jobs_are_listed_with_what_they_did_last(browser_of, resources):
    run_once(resources, "failed", "the model is gone")
    run_once(resources, "finished", run_id="20260101-abcd")
    _, page = browser_of.get("/jobs")
    said = Outline(page).text
    assert all(one in said for one in ("acme/nightly", "acme/yearly", "evaluate", "0 3 * * *"))
    assert "Europe/Vienna" in said
    assert "finished" in said
    assert 'href="/runs/20260101-abcd"' in page
    assert "failed" not in said
