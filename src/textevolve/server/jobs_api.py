"""`/v1/namespaces/{namespace}/jobs`: studies that run by a clock, made and watched over HTTP.

A job that a client made is confined as its studies are (`POST /v1/studies`): it reads the files
that were sent along, and reaches what its client may. The server's own scheduler, or any other on
the same store, runs it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, TypeAlias, cast

from fastapi import APIRouter, Depends, Query, Request, Response

from textevolve.errors import ConflictError, InputError
from textevolve.events import CallFinished, Event
from textevolve.jobs.job_report import describe_state
from textevolve.jobs.job_spec import JobSpec, SentBy, read_job, write_job_study
from textevolve.jobs.performing import JobDesk, served_of
from textevolve.jobs.scheduler import work_on_jobs
from textevolve.jobs.schedules import check_schedule, describe_schedule, next_due
from textevolve.reach import Reach, confine
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.errors import ApiError, respond
from textevolve.server.state import ServerState, server_of
from textevolve.server.studies.beginning import read_part
from textevolve.server.studies.confinement import reach_of
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import StoredJob, StoredJobRun
from textevolve.store.served import ServedRun
from textevolve.studies import driver
from textevolve.studies.driver import Launch
from textevolve.studies.study_file import read_study

router = APIRouter(prefix="/v1/namespaces/{namespace}/jobs", tags=["jobs"])

JobReader: TypeAlias = Annotated[Caller, Depends(needs("read"))]
JobAdmin: TypeAlias = Annotated[Caller, Depends(needs("admin"))]

NAME, STUDY, FILES, SENT = "name", "study", "files", "sent"

log = logging.getLogger("textevolve.server")


@asynccontextmanager
async def open_scheduler(server: ServerState) -> AsyncGenerator[None]:
    """Runs jobs when they are due, unless the operator wants none to be run here."""
    if not (server.options.jobs and server.options.serves):
        yield
        return
    work = asyncio.create_task(work_on_jobs(desk_of(server)), name="jobs")
    try:
        yield
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


def desk_of(server: ServerState) -> JobDesk:
    settings, reach = server.runner.settings, partial(_reach_of, server)
    return JobDesk(
        settings,
        server.resources,
        server.store,
        reach,
        log.info,
        account=partial(_account, server),
    )


def _reach_of(server: ServerState, served: ServedRun) -> Reach:
    return reach_of(served, server.options, server.runner.settings, server.store)


def _account(server: ServerState, served: ServedRun, launch: Launch) -> Launch:
    """A run that asks no more than what is left to its key and its namespace."""
    accounts = server.runner.accounts

    def hear(event: Event) -> None:
        if isinstance(event, CallFinished) and not event.replayed:
            accounts.note(served, event.usage.tokens)

    return replace(launch, listener=hear, halt=partial(accounts.ask, served))


@router.get("")
async def list_jobs(request: Request, caller: JobReader, namespace: str) -> Response:
    """The jobs of a namespace, by name, each with its newest run."""
    server = _enter(request, caller, namespace)
    found = await asyncio.to_thread(_list, server, namespace)
    return respond({"data": found})


@router.post("", status_code=201)
async def create_job(
    request: Request, caller: JobAdmin, namespace: str, given: dict[str, Any]
) -> Response:
    """Keep a study, and when it is to run. `files`: what it reads, by the names in it."""
    server = _enter(request, caller, namespace)
    name = given.get(NAME)
    if isinstance(name, str) and await asyncio.to_thread(_find, server, namespace, name):
        raise ApiError(409, "conflict", f"the job '{name}' is there already; change it by PATCH")
    spec = await _read_spec(server, caller, namespace, given)
    job = await asyncio.to_thread(
        server.resources.write, stored_jobs.create_job, namespace, spec, next_due
    )
    return respond(await asyncio.to_thread(_tell, server, job), 201)


@router.get("/{name}")
async def get_job(request: Request, caller: JobReader, namespace: str, name: str) -> Response:
    """One job."""
    server = _enter(request, caller, namespace)
    job = await _require(server, namespace, name)
    return respond(await asyncio.to_thread(_tell, server, job))


@router.patch("/{name}")
async def update_job(
    request: Request, caller: JobAdmin, namespace: str, name: str, given: dict[str, Any]
) -> Response:
    """Change what is given of a job; a null puts a field back to its default. What is under way
    goes on as it was begun."""
    server = _enter(request, caller, namespace)
    if given.get(NAME, name) != name:
        raise InputError("name: a job keeps its name; make another one")
    job = await _require(server, namespace, name)
    changed = {n: value for n, value in {**job.spec, **given}.items() if value is not None}
    spec = await _read_spec(server, caller, namespace, changed, None if STUDY in given else job)
    job = await asyncio.to_thread(
        server.resources.write, stored_jobs.update_job, namespace, spec, next_due
    )
    return respond(await asyncio.to_thread(_tell, server, job))


@router.delete("/{name}", status_code=204)
async def delete_job(request: Request, caller: JobAdmin, namespace: str, name: str) -> Response:
    """Remove a job with its history; the runs that it made stay."""
    server = _enter(request, caller, namespace)
    job = await _require(server, namespace, name)
    await asyncio.to_thread(server.resources.write, stored_jobs.delete_job, namespace, name)
    await asyncio.to_thread(server.runner.drop_files, (read_job(job).sent or SentBy()).files)
    return Response(status_code=204)


@router.post("/{name}/run", status_code=202)
async def run_job(request: Request, caller: JobAdmin, namespace: str, name: str) -> Response:
    """Make it due now."""
    server = _enter(request, caller, namespace)
    await _require(server, namespace, name)
    try:
        job = await asyncio.to_thread(
            server.resources.write, stored_jobs.hasten_job, namespace, name
        )
    except ConflictError as error:
        raise ApiError(409, "conflict", str(error)) from None
    return respond(await asyncio.to_thread(_tell, server, job), 202)


@router.post("/{name}/pause")
async def pause_job(request: Request, caller: JobAdmin, namespace: str, name: str) -> Response:
    """Let it run no more, until it is resumed."""
    server = _enter(request, caller, namespace)
    await _require(server, namespace, name)
    job = await asyncio.to_thread(server.resources.write, stored_jobs.pause_job, namespace, name)
    return respond(await asyncio.to_thread(_tell, server, job))


@router.post("/{name}/resume")
async def resume_job(request: Request, caller: JobAdmin, namespace: str, name: str) -> Response:
    """Let it run again; times that went by are left out."""
    server = _enter(request, caller, namespace)
    await _require(server, namespace, name)
    job = await asyncio.to_thread(
        server.resources.write, stored_jobs.resume_job, namespace, name, next_due
    )
    return respond(await asyncio.to_thread(_tell, server, job))


@router.get("/{name}/history")
async def list_history(
    request: Request,
    caller: JobReader,
    namespace: str,
    name: str,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    """What became of a job each time, the newest first; `next` is the `before` of the next page."""
    server = _enter(request, caller, namespace)
    job = await _require(server, namespace, name)
    found = await asyncio.to_thread(
        server.resources.read, stored_jobs.list_job_runs, job, limit, before
    )
    following = found[-1].id if len(found) == limit else None
    return respond({"data": [describe_job_run(one) for one in found], "next": following})


def describe_job(job: StoredJob, last: StoredJobRun | None) -> dict[str, Any]:
    """A job as JSON-ready data. `due`: null where it never runs again; `state`: what it does."""
    spec = read_job(job)
    return {
        "id": job.id,
        "namespace": job.namespace,
        **spec.model_dump(mode="json", exclude={SENT}),
        "created": job.created,
        "updated": job.updated,
        "paused": job.paused,
        "due": job.due,
        "schedule": describe_schedule(spec),
        "state": describe_state(job, last),
        "last": describe_job_run(last) if last else None,
    }


def describe_job_run(run: StoredJobRun) -> dict[str, Any]:
    return {name: value for name, value in asdict(run).items() if name != "job_id"}


def _enter(request: Request, caller: Caller, namespace: str) -> ServerState:
    check_namespace(caller, namespace)
    return server_of(request)


def _tell(server: ServerState, job: StoredJob) -> dict[str, Any]:
    """As it is after its newest run was read: the end of that is kept with the next time."""
    runs = server.resources.read(stored_jobs.list_job_runs, job, 1)
    now = server.resources.read(stored_jobs.get_job, job.namespace, job.name)
    return describe_job(now, runs[0] if runs else None)


def _list(server: ServerState, namespace: str) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for job in _jobs_of(server, namespace):
        with suppress(InputError):  # somebody removed it meanwhile
            found.append(_tell(server, job))
    return found


def _find(server: ServerState, namespace: str, name: str) -> StoredJob | None:
    return next((one for one in _jobs_of(server, namespace) if one.name == name), None)


def _jobs_of(server: ServerState, namespace: str) -> list[StoredJob]:
    if namespace not in server.resources.namespace_names():
        raise ApiError(404, "not_found", f"no namespace '{namespace}'")
    return server.resources.read(stored_jobs.list_jobs, namespace)


async def _require(server: ServerState, namespace: str, name: str) -> StoredJob:
    found = await asyncio.to_thread(_find, server, namespace, name)
    if found is None:
        raise ApiError(404, "not_found", f"no job '{name}' in the namespace '{namespace}'")
    return found


async def _read_spec(
    server: ServerState,
    caller: Caller,
    namespace: str,
    given: Mapping[str, Any],
    old: StoredJob | None = None,
) -> JobSpec:
    """A job as it will be kept, of which its client hears at once what its runs would fail at.
    `old`: one that keeps its study, which is still that of whoever sent it.

    Raises:
        InputError: something in it cannot be used.
    """
    fields = {name: value for name, value in given.items() if name not in (FILES, SENT)}
    files = read_part({"run": {FILES: given.get(FILES, {})}}).files
    seen = None if caller.namespaces is None else tuple(sorted(caller.namespaces))
    sent = SentBy(
        key=caller.key,
        namespaces=seen,
        files=await asyncio.to_thread(server.runner.take_files, files),
    )
    spec = JobSpec(**fields, sent=sent if old is None else read_job(old).sent)
    check_schedule(spec, time.time())
    if seen is not None and spec.gates.no_worse_than is not None:
        raise InputError("gates: no_worse_than names runs, which keys of some namespaces may not")
    if old is not None:
        return spec
    if not isinstance(fields.get(STUDY), dict):
        raise InputError("study: must be an object: the kind of study, and its fields")
    kept = await _check_study(server, namespace, spec, cast("dict[str, Any]", fields[STUDY]))
    return spec.model_copy(update={STUDY: kept})


async def _check_study(
    server: ServerState, namespace: str, spec: JobSpec, given: dict[str, Any]
) -> dict[str, Any]:
    job = StoredJob("", namespace, spec.name, 0.0, 0.0, False, None, False, spec.model_dump())
    settings = spec.settings(server.runner.settings, namespace)
    with confine(_reach_of(server, served_of(job))):
        study, own = await asyncio.to_thread(read_study, given)
        await driver.specify(study, own, settings, asks_models=False)
        cases = driver.read_cases(study, own, server.store.location, settings)
        await asyncio.to_thread(lambda: next(iter(cases), None))
    return write_job_study(study, own)
