"""Jobs: all that run by a clock, and each with its history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import yaml
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.errors import TextEvolveError
from textevolve.jobs.job_spec import read_job
from textevolve.jobs.schedules import describe_schedule, next_due
from textevolve.server.access import check_namespace
from textevolve.server.pages.agents import Owner
from textevolve.server.pages.drawing import Page, draw
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import server_of
from textevolve.store import Store
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import StoredJob, StoredJobRun

JOBS = 100
"""Jobs on one page."""
TIMES = 50
"""Times of one job on one page."""

JobAction: TypeAlias = Literal["pause", "resume", "run", "remove"]

router = APIRouter()


@dataclass(frozen=True, slots=True)
class ShownJob:
    """`schedule`: in words, or what is wrong with it; `last`: the newest time that it ran."""

    stored: StoredJob
    schedule: str
    last: StoredJobRun | None = None

    @property
    def full_name(self) -> str:
        return f"{self.stored.namespace}/{self.stored.name}"

    @property
    def kind(self) -> str:
        return str(self.stored.spec.get("study", {}).get("kind", ""))

    @property
    def state(self) -> str:
        if self.stored.working:
            return "running"
        return "paused" if self.stored.paused else ""


@router.get("/jobs")
async def show_jobs(request: Request, caller: RunReader, page: int = 1) -> Response:
    resources = server_of(request).resources

    def read() -> tuple[Page, list[ShownJob]]:
        names = [one for one in resources.namespace_names() if caller.sees(one)]
        found = [job for name in names for job in resources.read(stored_jobs.list_jobs, name)]
        shown = Page(request, max(1, page), JOBS, len(found))
        return shown, [_show(resources, one) for one in found[shown.start :][:JOBS]]

    shown, jobs = await asyncio.to_thread(read)
    return draw(request, "jobs.html", jobs=jobs, page=shown)


def _show(resources: Store, job: StoredJob) -> ShownJob:
    newest = resources.read(stored_jobs.list_job_runs, job, limit=1)
    return ShownJob(job, _schedule(job), newest[0] if newest else None)


def _schedule(job: StoredJob) -> str:
    try:
        return describe_schedule(read_job(job))
    except TextEvolveError as error:  # a later version wrote it
        return f"cannot be read: {error}"


@router.get("/jobs/{namespace}/{name}")
async def show_job(
    request: Request, caller: RunReader, namespace: str, name: str, before: int | None = None
) -> Response:
    """`before`: only what is older than the time with this number."""
    check_namespace(caller, namespace)
    resources = server_of(request).resources

    def read() -> tuple[StoredJob, Sequence[StoredJobRun]]:
        job = resources.read(stored_jobs.get_job, namespace, name)
        return job, resources.read(stored_jobs.list_job_runs, job, TIMES + 1, before)

    job, times = await asyncio.to_thread(read)
    older = f"before={times[TIMES - 1].id}" if len(times) > TIMES else ""
    spec = {name: value for name, value in job.spec.items() if name != "sent"}
    return draw(
        request,
        "job.html",
        job=ShownJob(job, _schedule(job)),
        written=yaml.safe_dump(spec, sort_keys=False, allow_unicode=True),
        times=times[:TIMES],
        before=before,
        older=older,
        zone=time.strftime("%Z"),
    )


@router.post("/jobs/{namespace}/{name}/{action}")
async def change_job(
    request: Request, caller: Owner, namespace: str, name: str, action: JobAction
) -> Response:
    """`run` makes it due now, for the next scheduler that looks."""
    check_namespace(caller, namespace)
    resources = server_of(request).resources
    work: dict[JobAction, Callable[[], object]] = {
        "pause": lambda: resources.write(stored_jobs.pause_job, namespace, name),
        "resume": lambda: resources.write(stored_jobs.resume_job, namespace, name, next_due),
        "run": lambda: resources.write(stored_jobs.hasten_job, namespace, name),
        "remove": lambda: resources.write(stored_jobs.delete_job, namespace, name),
    }
    await asyncio.to_thread(work[action])
    where = "/jobs" if action == "remove" else f"/jobs/{namespace}/{name}"
    return RedirectResponse(where, 303)
