"""Schedulers as processes on one store: two of them, and those that are killed in the midst."""

import json
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing

import pytest

pytest.importorskip("apscheduler")

from postgres_server import BOTH, address_of
from textevolve.jobs.job_spec import JobSpec
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.store import ResourceStore, open_store
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import database_time

pytestmark = [pytest.mark.slow, BOTH]

JOBS, CASES = 24, 6
STARTED = "running jobs of"


def at_once(_job, now):
    return now - 1


def make_study(home, url, name, cases=CASES):
    rows = [{"id": str(n), "input": f"{name} {n}?", "candidates": ["1", "2"]} for n in range(cases)]
    path = home / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "evaluate", "cases": [str(path)], "judge": "probe", "model": f"{url}#any"}


@pytest.fixture
def resources(location):
    with closing(ResourceStore(address_of(location))) as opened:
        opened.ensure_namespace("default")
        yield opened


@pytest.fixture
def work(spawn):
    """Starts a scheduler as a process; it runs when this returns."""

    def start(*more):
        process = spawn("jobs", "work", *more)
        assert STARTED in process.stderr.readline()
        # What it says later must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        return process

    return start


def wait_until(done):
    until = time.monotonic() + 240
    while not done():
        assert time.monotonic() < until
        time.sleep(0.1)


def newest(resources, name):
    runs = resources.read(
        stored_jobs.list_job_runs, resources.read(stored_jobs.get_job, "default", name)
    )
    return runs[0] if runs else None


def count_kept(location, resources):
    """The calls of the job's run that are in the journal."""
    found = newest(resources, "nightly")
    if found is None or not found.run_id:
        return 0
    with open_store(location) as store:
        return sum(1 for _ in store.calls(found.run_id))


def has_ended(resources, name):
    found = newest(resources, name)
    return found is not None and found.ended is not None


def test_two_schedulers_run_each_job_exactly_once(home, resources, work):
    names = [f"job-{number:02}" for number in range(JOBS)]
    with ScriptedServer(lambda _body, _call: Answer(delay=0.01)) as server:
        for name in names:
            study = make_study(home, server.url, name)
            resources.write(
                stored_jobs.create_job,
                "default",
                JobSpec(name=name, study=study, every="1d"),
                at_once,
            )
        begun = resources.database.read(database_time)
        both = [work(), work()]
        wait_until(lambda: all(has_ended(resources, name) for name in names))
        for process in both:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        asked = Counter(json.dumps(one, sort_keys=True) for one in server.requests)
        assert server.calls == sum(asked.values())
        assert set(asked.values()) == {1}
    jobs = resources.read(stored_jobs.list_jobs, "default")
    assert all(job.due > begun and not job.working for job in jobs)
    histories = [resources.read(stored_jobs.list_job_runs, job) for job in jobs]
    assert [len(one) for one in histories] == [1] * JOBS
    assert {run.status for one in histories for run in one} == {"finished"}
    assert len({run.run_id for one in histories for run in one}) == JOBS


@pytest.mark.parametrize("after", [0, 3, 9])
def test_a_killed_schedulers_job_is_taken_over_and_its_run_resumed(
    home, location, resources, work, stalling, after
):
    """The scheduler is killed while the server holds its calls back."""
    with ScriptedServer(stalling(after)) as server:
        study = make_study(home, server.url, "nightly")
        spec = JobSpec(name="nightly", study=study, every="1d", concurrency=1)
        resources.write(stored_jobs.create_job, "default", spec, at_once)
        killed = work()
        # What was answered and is not kept yet would be asked twice, too.
        wait_until(lambda: server.calls > after and count_kept(location, resources) >= after)
        killed.kill()
        killed.wait()
        asked = [json.dumps(one["messages"]) for one in server.requests]
        interrupted = newest(resources, "nightly")
        assert interrupted.status == "interrupted"
        assert interrupted.run_id
        with open_store(location) as store:
            assert store.get_run(interrupted.run_id).status == "interrupted"
        # The run asks the same model at the same address.
        server.script = None
        following = work()
        wait_until(lambda: has_ended(resources, "nightly"))
        following.send_signal(signal.SIGTERM)
        assert following.wait(60) == 0
        found = resources.read(
            stored_jobs.list_job_runs, resources.read(stored_jobs.get_job, "default", "nightly")
        )
        assert [(one.id, one.run_id) for one in found] == [(interrupted.id, interrupted.run_id)]
        assert found[0].status == "finished"
        repeated = Counter(json.dumps(one["messages"]) for one in server.requests)
        twice = [text for text, number in repeated.items() if number > 1]
        assert len(twice) <= len(asked) - after
        assert set(twice) <= set(asked[after:])


STOPPED = """
import asyncio, os, signal, sys
from textevolve.jobs.performing import JobDesk
from textevolve.jobs.scheduler import work_on_jobs
from textevolve.reach import Reach
from textevolve.settings import Settings
from textevolve.store import ResourceStore, open_store

settings = Settings(store=sys.argv[1])
say = lambda text: print(text, flush=True)
with open_store(settings.store) as store:
    desk = JobDesk(
        settings, ResourceStore(sys.argv[1]), store, lambda _: Reach(), say, lease_seconds=3.0
    )
    asyncio.run(work_on_jobs(desk))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be stopped there")
def test_a_scheduler_that_slept_too_long_notices_that_it_lost_the_job(
    home, location, resources, spawn, stalling
):
    with ScriptedServer(stalling(3)) as server:
        study = make_study(home, server.url, "nightly")
        spec = JobSpec(name="nightly", study=study, every="1d", concurrency=1)
        resources.write(stored_jobs.create_job, "default", spec, at_once)
        sleeper = spawn(address_of(location), script=STOPPED)
        wait_until(lambda: server.calls > 3)
        sleeper.send_signal(signal.SIGSTOP)
        other = spawn(address_of(location), script=STOPPED)
        # The lease of the job ends; the run is still held by the process that sleeps.
        assert "begins" in other.stdout.readline()
        server.script = None
        assert not has_ended(resources, "nightly")
        sleeper.send_signal(signal.SIGCONT)
        assert "begins" in sleeper.stdout.readline()
        assert "is not ours any more" in sleeper.stdout.readline()
        assert "finished" in other.stdout.readline()
        (run,) = resources.read(
            stored_jobs.list_job_runs, resources.read(stored_jobs.get_job, "default", "nightly")
        )
        assert run.status == "finished"
