"""Pages about jobs (scheduled studies): the list of them, and each job with its history."""

from __future__ import annotations

import time

from fastapi import APIRouter, Depends, Request, Response

from textevolve.jobs.job_report import describe_job, write_job_yaml
from textevolve.server.identity import MayRead
from textevolve.server.jobs_api import RUNS, check_seen, describe_jobs
from textevolve.server.pages.drawing import Page, draw
from textevolve.server.state import Server
from textevolve.store import jobs as stored_jobs

JOBS = 100
"""The number of jobs on one page."""

router = APIRouter()


@router.get("/jobs")
def show_jobs(request: Request, server: Server, caller: MayRead, page: int = 1) -> Response:
    names = [name for name in server.resources.namespace_names() if caller.sees(name)]
    jobs = [job for name in names for job in describe_jobs(server.resources, name)]
    part = Page(request, max(1, page), JOBS, len(jobs))
    return draw(request, "jobs.html", jobs=jobs[part.start :][:JOBS], page=part)


@router.get("/jobs/{namespace}/{name}", dependencies=[Depends(check_seen)])
def show_job(
    request: Request, server: Server, caller: MayRead, namespace: str, name: str
) -> Response:
    job = server.resources.read(stored_jobs.get_job, namespace, name)
    return draw(
        request,
        "job.html",
        job=describe_job(job, ()),
        written=write_job_yaml(job),
        times=server.resources.read(stored_jobs.list_job_runs, job, RUNS),
        zone=time.strftime("%Z"),
    )
