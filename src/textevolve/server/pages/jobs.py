"""Jobs: all that run by a clock, and each with its history."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response

from textevolve.jobs.job_report import write_job_yaml
from textevolve.jobs.job_spec import read_job
from textevolve.jobs.schedules import describe_schedule
from textevolve.server.jobs_api import check_seen
from textevolve.server.pages.drawing import Page, draw
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import server_of
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import StoredJob, StoredJobRun

JOBS = 100
"""Jobs on one page."""
RUNS = 50
"""The newest runs of a job, which its page shows."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class ShownJob:
    """`last`: its newest run."""

    stored: StoredJob
    last: StoredJobRun | None = None

    @property
    def full_name(self) -> str:
        return f"{self.stored.namespace}/{self.stored.name}"

    @property
    def kind(self) -> str:
        return str(self.stored.spec["study"].get("kind", ""))

    @property
    def schedule(self) -> str:
        return describe_schedule(read_job(self.stored))


@router.get("/jobs")
def show_jobs(request: Request, caller: RunReader, page: int = 1) -> Response:
    resources = server_of(request).resources
    names = [name for name in resources.namespace_names() if caller.sees(name)]
    jobs = [job for name in names for job in resources.read(stored_jobs.list_jobs, name)]
    part = Page(request, max(1, page), JOBS, len(jobs))
    shown: list[ShownJob] = []
    for job in jobs[part.start :][:JOBS]:
        newest = resources.read(stored_jobs.list_job_runs, job, 1)
        shown.append(ShownJob(job, newest[0] if newest else None))
    return draw(request, "jobs.html", jobs=shown, page=part)


@router.get("/jobs/{namespace}/{name}", dependencies=[Depends(check_seen)])
def show_job(request: Request, caller: RunReader, namespace: str, name: str) -> Response:
    resources = server_of(request).resources
    job = resources.read(stored_jobs.get_job, namespace, name)
    return draw(
        request,
        "job.html",
        job=ShownJob(job),
        written=write_job_yaml(job),
        times=resources.read(stored_jobs.list_job_runs, job, RUNS),
        zone=time.strftime("%Z"),
    )
