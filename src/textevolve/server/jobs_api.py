"""`/v1/namespaces/{namespace}/jobs`: scheduled studies, which can be listed, started, paused and
removed.

The command line adds jobs. The server's own scheduler runs them when they are due, or another
scheduler on the same store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response

from textevolve.jobs.job_report import describe_job, describe_job_run
from textevolve.jobs.job_spec import next_due
from textevolve.jobs.scheduler import JobDesk, work_on_jobs
from textevolve.server.errors import log, respond
from textevolve.server.identity import MayAdminister, MayRead, check_namespace
from textevolve.server.state import Server, ServerState
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import StoredJob
from textevolve.store.repository import Store


async def check_seen(request: Request, namespace: str) -> None:
    check_namespace(request.scope["textevolve.caller"], namespace)


router = APIRouter(
    prefix="/v1/namespaces/{namespace}/jobs", tags=["jobs"], dependencies=[Depends(check_seen)]
)


RUNS = 50
"""The number of a job's latest runs that its description contains."""


@asynccontextmanager
async def open_scheduler(server: ServerState) -> AsyncGenerator[None]:
    """Run jobs when they are due, unless the server was started with --no-jobs or only shows
    pages."""
    options = server.options
    if not (options.jobs and options.serves and options.resumes):
        yield
        return
    desk = JobDesk(server.runner.settings, server.resources, server.store, log.info)
    work = asyncio.create_task(work_on_jobs(desk), name="jobs")

    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


@router.get("")
def list_jobs(server: Server, caller: MayRead, namespace: str) -> Response:
    """The jobs of a namespace, by name, each with its newest run."""
    return respond({"data": describe_jobs(server.resources, namespace)})


@router.get("/{name}")
def get_job(server: Server, caller: MayRead, namespace: str, name: str) -> Response:
    """One job, with its newest runs."""
    job = server.resources.read(stored_jobs.get_job, namespace, name)
    runs = server.resources.read(stored_jobs.list_job_runs, job, RUNS)
    return respond({**describe_job(job, runs), "history": list(map(describe_job_run, runs))})


@router.delete("/{name}", status_code=204)
def delete_job(server: Server, caller: MayAdminister, namespace: str, name: str) -> Response:
    """Remove a job with its history; the runs that it made stay."""
    server.resources.write(stored_jobs.delete_job, namespace, name)
    return Response(status_code=204)


@router.post("/{name}/{action}", status_code=202)
def change_job(
    server: Server,
    caller: MayAdminister,
    namespace: str,
    name: str,
    action: Literal["run", "pause", "resume"],
) -> Response:
    """Make it due now, let it run no more until it is resumed, or let it run again: times that went
    by are left out."""
    resources = server.resources
    if action == "resume":
        job = resources.write(stored_jobs.resume_job, namespace, name, next_due)
    else:
        change = stored_jobs.pause_job if action == "pause" else stored_jobs.hasten_job
        job = resources.write(change, namespace, name)

    return respond(_describe(resources, job), 202)


def describe_jobs(resources: Store, namespace: str) -> list[dict[str, Any]]:
    return [_describe(resources, job) for job in resources.read(stored_jobs.list_jobs, namespace)]


def _describe(resources: Store, job: StoredJob) -> dict[str, Any]:
    return describe_job(job, resources.read(stored_jobs.list_job_runs, job, 1))
