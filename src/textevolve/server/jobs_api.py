"""`/v1/namespaces/{namespace}/jobs`: studies that run by a clock, added and watched over HTTP.

A job that a client added is confined as its studies are (`POST /v1/studies`): it reads the files
that were sent along, and reaches what its client may. The server's own scheduler, or any other on
the same store, runs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, Literal, TypeAlias, cast

from fastapi import APIRouter, Depends, Query, Request, Response

from textevolve.errors import InputError, NotFoundError
from textevolve.jobs.job_report import describe_job, describe_job_run
from textevolve.jobs.job_spec import JobSpec, SentBy, read_job, write_job_study
from textevolve.jobs.scheduler import JobDesk, served_of, work_on_jobs
from textevolve.jobs.schedules import check_schedule, next_due
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.errors import respond
from textevolve.server.state import ServerState, server_of
from textevolve.server.studies.beginning import read_part
from textevolve.store import Store
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import StoredJob
from textevolve.studies import driver
from textevolve.studies.study_file import read_study


async def check_seen(request: Request, namespace: str) -> None:
    check_namespace(request.scope["textevolve.caller"], namespace)


router = APIRouter(
    prefix="/v1/namespaces/{namespace}/jobs", tags=["jobs"], dependencies=[Depends(check_seen)]
)

JobReader: TypeAlias = Annotated[Caller, Depends(needs("read"))]
JobAdmin: TypeAlias = Annotated[Caller, Depends(needs("admin"))]
JobAction: TypeAlias = Literal["run", "pause", "resume"]

log = logging.getLogger("textevolve.server")


@asynccontextmanager
async def open_scheduler(server: ServerState) -> AsyncGenerator[None]:
    """Run jobs when they are due, unless the server was started with --no-jobs."""
    if not (server.options.jobs and server.options.serves):
        yield
        return
    desk = JobDesk(
        server.runner.settings,
        server.resources,
        server.store,
        server.runner.reach_of,
        log.info,
        server.runner.accounts.limit,
    )
    work = asyncio.create_task(work_on_jobs(desk), name="jobs")
    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


@router.get("")
def list_jobs(request: Request, caller: JobReader, namespace: str) -> Response:
    """The jobs of a namespace, by name, each with its newest run."""
    resources, jobs = server_of(request).resources, list[dict[str, Any]]()
    for job in resources.read(stored_jobs.list_jobs, namespace):
        with suppress(NotFoundError):  # somebody removed it meanwhile
            jobs.append(_describe(resources, job))
    return respond({"data": jobs})


@router.post("", status_code=201)
async def create_job(
    request: Request, caller: JobAdmin, namespace: str, given: dict[str, Any]
) -> Response:
    """Keep a study, and when it is to run. `files`: what it reads, by the names in it."""
    server = server_of(request)
    await asyncio.to_thread(server.resources.read, stored_jobs.list_jobs, namespace)
    spec = await _read_spec(server, caller, namespace, given)
    job = await asyncio.to_thread(
        server.resources.write, stored_jobs.create_job, namespace, spec, next_due
    )
    return respond(await asyncio.to_thread(_describe, server.resources, job), 201)


@router.get("/{name}")
def get_job(request: Request, caller: JobReader, namespace: str, name: str) -> Response:
    """One job."""
    resources = server_of(request).resources
    job = resources.read(stored_jobs.get_job, namespace, name)
    return respond(_describe(resources, job))


@router.delete("/{name}", status_code=204)
def delete_job(request: Request, caller: JobAdmin, namespace: str, name: str) -> Response:
    """Remove a job with its history; the runs that it made stay."""
    server = server_of(request)
    job = server.resources.read(stored_jobs.get_job, namespace, name)
    server.resources.write(stored_jobs.delete_job, namespace, name)
    server.runner.uploads.drop((read_job(job).sent or SentBy()).files)
    return Response(status_code=204)


@router.post("/{name}/{action}", status_code=202)
def change_job(
    request: Request, caller: JobAdmin, namespace: str, name: str, action: JobAction
) -> Response:
    """Make it due now, let it run no more until it is resumed, or let it run again: times that went
    by are left out."""
    resources = server_of(request).resources
    if action == "resume":
        job = resources.write(stored_jobs.resume_job, namespace, name, next_due)
    else:
        change = stored_jobs.pause_job if action == "pause" else stored_jobs.hasten_job
        job = resources.write(change, namespace, name)
    return respond(_describe(resources, job), 202)


@router.get("/{name}/history")
def list_history(
    request: Request,
    caller: JobReader,
    namespace: str,
    name: str,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """The runs of a job, the newest first."""
    resources = server_of(request).resources
    job = resources.read(stored_jobs.get_job, namespace, name)
    runs = resources.read(stored_jobs.list_job_runs, job, limit)
    return respond({"data": [describe_job_run(run) for run in runs]})


def _describe(resources: Store, job: StoredJob) -> dict[str, Any]:
    """Describe a job as it is after its newest run was read, whose end moves its next time."""
    runs = resources.read(stored_jobs.list_job_runs, job, 1)
    current = resources.read(stored_jobs.get_job, job.namespace, job.name)
    return describe_job(current, runs[0] if runs else None)


async def _read_spec(
    server: ServerState, caller: Caller, namespace: str, given: dict[str, Any]
) -> JobSpec:
    """Return a job's specification; its client is told at once what its runs would fail at.

    Raises:
        InputError: something in it cannot be used.
    """
    fields = {name: value for name, value in given.items() if name not in ("files", "sent")}
    files = read_part({"files": given.get("files", {})}).files
    seen = None if caller.namespaces is None else tuple(sorted(caller.namespaces))
    folder = await asyncio.to_thread(server.runner.uploads.keep, files)
    sent = SentBy(key=caller.key, namespaces=seen, files=folder)
    spec = JobSpec(**fields, sent=sent)
    check_schedule(spec, time.time())
    if seen is not None and spec.gates.no_worse_than is not None:
        raise InputError("gates: no_worse_than names runs, which keys of some namespaces may not")
    if not isinstance(fields.get("study"), dict):
        raise InputError("study: must be an object: the kind of study, and its fields")
    job = StoredJob("", namespace, spec.name, 0.0, 0.0, False, None, False, spec.model_dump())
    settings = spec.settings(server.runner.settings, namespace)
    with server.runner.confine(served_of(job)):
        study, own = await asyncio.to_thread(read_study, cast("dict[str, Any]", fields["study"]))
        await driver.specify(study, own, settings, asks_models=False)
        cases = driver.read_cases(study, own, settings)
        await asyncio.to_thread(lambda: next(iter(cases), None))
    return spec.model_copy(update={"study": write_job_study(study, own)})
