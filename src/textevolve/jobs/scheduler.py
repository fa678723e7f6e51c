"""The scheduler: it runs jobs when they are due, several concurrently. Any number of schedulers may
share a store, on one machine or on several.

A scheduler holds a job by a lease that it renews. The run is recorded with the job before any call,
so that another scheduler that takes the job over resumes the same run. A scheduler that loses its
lease stops; the driver's own lease on the run prevents two processes from performing it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from textevolve.engine.local import cancel
from textevolve.errors import StoreError, TextEvolveError, describe_error, public_message
from textevolve.jobs.job_spec import next_due, read_job
from textevolve.report import wording
from textevolve.runs import driver
from textevolve.runs.gates import Gated, GateWatch
from textevolve.runs.stored import StudyRun
from textevolve.runs.study import Row, read_study
from textevolve.settings import Settings
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import JobClaim, JobRunStatus
from textevolve.store.repository import Store
from textevolve.store.served import ServedRun, read_marks

log = logging.getLogger("textevolve.jobs")

AT_ONCE = 4
"""The number of jobs that one scheduler runs concurrently."""
LOOK_SECONDS = 5.0
"""The seconds between two looks for jobs that others have added, or have left unfinished."""
LEASE_SECONDS = 60.0
"""The seconds for which a job stays with a scheduler that no longer renews its lease."""
RENEWALS = 4
"""The number of renewals within the duration of a lease."""


@dataclass(frozen=True, slots=True)
class JobDesk:
    """The settings and stores with which a scheduler runs jobs.

    Attributes:
        resources: The store of the jobs.
        store: The store of their runs.
        announce: A function that receives a message when a job starts or ends.
    """

    settings: Settings
    resources: Store
    store: Store
    announce: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a job's run: its status, and a detail such as the reason of a failure."""

    status: JobRunStatus
    detail: str = ""


async def work_on_jobs(desk: JobDesk, at_once: int = AT_ONCE) -> None:
    """Run due jobs, at most `at_once` concurrently, until the task is cancelled. Jobs that are
    running then are released, and the next scheduler resumes them."""
    running: set[asyncio.Task[JobOutcome | None]] = set()
    try:
        while True:
            wait = LOOK_SECONDS
            try:
                while len(running) < at_once:
                    claim = await asyncio.to_thread(desk.resources.claim_due_job, LEASE_SECONDS)
                    if claim is None:
                        break
                    running.add(asyncio.create_task(perform_claim(desk, claim)))

                due = await asyncio.to_thread(desk.resources.read, stored_jobs.seconds_to_next)
                if due is not None and len(running) < at_once:
                    wait = min(max(due, 0.05), LOOK_SECONDS)
            except StoreError as error:
                log.warning("the scheduler cannot read the jobs from the store: %s", error)

            pause = asyncio.create_task(asyncio.sleep(wait))
            await asyncio.wait((pause, *running), return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
            running = {task for task in running if not task.done()}
    finally:
        await cancel(running)


async def perform_claim(desk: JobDesk, claim: JobClaim) -> JobOutcome | None:
    """Run a job that this scheduler has claimed, store its outcome, and return it. Errors of the
    run are outcomes as well. Return None if another scheduler has taken over the job, or if the
    outcome could not be stored. If the task is cancelled, the job is released."""
    name = f"{claim.job.namespace}/{claim.job.name}"
    work = asyncio.create_task(_attempt(desk, claim))
    lease = asyncio.create_task(_keep_lease(desk, claim))
    desk.announce(f"job {name}: begins")

    try:
        await asyncio.wait((work, lease), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            desk.announce(f"job {name}: another scheduler has taken it over; stopped")
            return None
        outcome = work.result()
        write = desk.resources.write
        end = stored_jobs.end_claim
        await asyncio.to_thread(write, end, claim, outcome.status, outcome.detail, next_due)
        desk.announce(f"job {name}: {outcome.status}{outcome.detail and f': {outcome.detail}'}")
        return outcome
    except asyncio.CancelledError:
        desk.announce(f"job {name}: released; the next scheduler resumes it")
        raise
    except StoreError as error:  # the lease is another's, or the database is away
        desk.announce(f"job {name}: its outcome could not be stored: {error}")
        return None
    finally:
        await cancel((work, lease))
        await asyncio.shield(asyncio.to_thread(_release, desk, claim))


async def _keep_lease(desk: JobDesk, claim: JobClaim) -> None:
    """Renew the lease of a job, and return when it is lost, for example because the database does
    not answer."""
    until = time.monotonic() + LEASE_SECONDS
    while (now := time.monotonic()) < until:
        await asyncio.sleep(LEASE_SECONDS / RENEWALS)
        with suppress(StoreError, TimeoutError):  # it may answer again before the lease ends
            async with asyncio.timeout(until - now):
                renew = stored_jobs.renew_claim
                if not await asyncio.to_thread(desk.resources.write, renew, claim, LEASE_SECONDS):
                    return

            until = now + LEASE_SECONDS


def _release(desk: JobDesk, claim: JobClaim) -> None:
    with suppress(StoreError):  # then its lease ends by itself
        desk.resources.write(stored_jobs.release_claim, claim)


async def _attempt(desk: JobDesk, claim: JobClaim) -> JobOutcome:
    try:
        earlier = await asyncio.to_thread(_find_earlier, desk, claim)
        return await _perform(desk, claim, earlier or await _begin_run(desk, claim))
    except TextEvolveError as error:
        log.warning("job %s failed: %s", claim.job.name, error)
        return JobOutcome("failed", public_message(error))
    except Exception as error:
        log.exception("job %s failed", claim.job.name)
        return JobOutcome("failed", describe_error(error))


async def _begin_run(desk: JobDesk, claim: JobClaim) -> StudyRun:
    """Return the run for a claimed job, and record it with the job. It is a new run, or, unless the
    job is `fresh`, the run that the same study with the same rows already has.

    Raises:
        TextEvolveError: the study cannot be run. ConflictError: another scheduler has the job now.
    """
    spec = read_job(claim.job)
    settings = spec.settings(desk.settings, claim.job.namespace)
    marks = await asyncio.to_thread(desk.resources.read, read_marks)
    space = marks.get(claim.job.namespace)
    space_id = space.id if space else ""
    plan = await driver.plan_run(
        read_study(spec.study)[1],
        settings,
        spec.launch(claim.job.namespace),
        home=desk.settings.namespace,
        owner=space_id,
        fresh=f"{claim.job.id} {claim.run.due!r}" if spec.fresh else "",
    )

    def register() -> StudyRun:
        run = plan.register(desk.store)
        desk.resources.write(stored_jobs.note_job_run, claim, run.id)

        if desk.store.get_served(run.id) is None:
            # Servers leave a job's run alone: schedulers resume it.
            now = time.time()
            owned = ServedRun(
                run.id,
                claim.job.namespace,
                "",
                now,
                "limited",
                {"name": claim.job.name},
                namespace_id=space_id,
            )
            desk.store.serve_run(owned)

        return run

    return await asyncio.to_thread(register)


def _find_earlier(desk: JobDesk, claim: JobClaim) -> StudyRun | None:
    """Return the run of an earlier attempt at this scheduled time. None if there is none, if it was
    deleted, or if it cannot be resumed because prompts or judges' files have changed."""
    if not claim.run.run_id:
        return None
    with suppress(StoreError):
        run = StudyRun(desk.store.get_run(claim.run.run_id))
        driver.require_unchanged(run, {})
        desk.resources.write(stored_jobs.note_job_run, claim, run.id)
        return run

    return None


async def _perform(desk: JobDesk, claim: JobClaim, run: StudyRun) -> JobOutcome:
    spec = read_job(claim.job)
    settings = spec.settings(desk.settings, claim.job.namespace)
    finished_before = run.record.status == "finished" and not claim.run.run_id
    launch = spec.launch(claim.job.namespace)
    watch = await asyncio.to_thread(GateWatch, desk.store, run, spec.gates, settings)
    if not watch.judges.holds:
        return judge_outcome((), watch.judges, known=False)

    async def perform() -> None:
        async with aclosing(driver.perform(desk.store, run, settings, launch)) as records:
            async for record in records:
                watch.add(run.study.row(record))

    await driver.work_alone(desk.store, run.id, perform)
    gated = await asyncio.to_thread(watch.check)

    return judge_outcome([*watch.unscored.values()], gated, known=finished_before)


def judge_outcome(unscored: Sequence[Row], gated: Gated, *, known: bool) -> JobOutcome:
    """Return the outcome of a run by its rows without a score and its gates: `gated` if a gate
    fails, `incomplete` if there are such rows and no gates, otherwise `finished`. `known`: the run
    was finished before, so that no model was called."""
    details = [str(gate) for gate in gated.outcomes if not gate.holds]
    status: JobRunStatus = "gated" if details else "finished"

    if unscored:
        number = wording.count(len(unscored), "record")
        reason = wording.shorten(unscored[0].reason, 200)
        status = status if gated.outcomes else "incomplete"
        details.append(f"{number} without a score ({reason})")
    elif known and not details:
        details.append("nothing new: the same run as before")

    return JobOutcome(status, "; ".join(details))
