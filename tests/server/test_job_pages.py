"""Pages of jobs."""

import time

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


def test_a_job_has_its_history(browser_of, resources):
    for n in range(60):
        run_once(resources, "failed", f"for the reason {n}.")
    resources.write(stored_jobs.pause_job, "acme", "nightly")
    _, page = browser_of.get("/jobs/acme/nightly")
    said = Outline(page).text
    assert "for the reason 59." in said
    assert f"time zone, {time.strftime('%Z')}." in said
    assert "for the reason 9." not in said
    assert "paused" in said
    assert "kind: evaluate" in said


@pytest.mark.slow
def test_they_stand_in_a_browser(serve, resources, page, check_page):
    run_once(resources, "failed", "the model is gone, and nobody knows why. " * 8)
    page.goto(f"{serve()}/jobs/acme/nightly")
    check_page(page)
    page.get_by_role("button", name="Pause acme/nightly").click()
    page.get_by_role("button", name="Resume acme/nightly").click()
    page.get_by_text("Remove", exact=True).click()
    page.get_by_role("button", name="Remove for good").click()
    page.get_by_role("heading", name="Jobs").wait_for()
    assert page.get_by_text("acme/nightly").count() == 0
