"""One time that a job runs: its lease is kept, the driver of studies does the work, and what came
of it is noted.

The run is noted with the job before anything is asked, so that whoever takes the job over goes on
with that run. Who has lost the job's lease stops; the driver's own lease keeps two processes from
working on one run.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from dataclasses import dataclass

from textevolve.errors import BusyError, StoreError, TextEvolveError, public_message
from textevolve.jobs.job_spec import SentBy, read_job
from textevolve.jobs.schedules import next_due
from textevolve.reach import Reach, confine
from textevolve.report import wording
from textevolve.settings import Settings
from textevolve.store import Store
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import JobClaim, JobRunStatus, StoredJob
from textevolve.store.runs import RunRecord
from textevolve.store.served import ServedRun
from textevolve.studies import driver
from textevolve.studies.baseline import check_run, find_baseline
from textevolve.studies.driver import Launch
from textevolve.studies.gates import Gated
from textevolve.studies.kinds import find_study
from textevolve.studies.stored import read_stored
from textevolve.studies.study import Row
from textevolve.studies.study_file import read_study

log = logging.getLogger("textevolve.jobs")

LEASE_SECONDS = 60.0
"""How long a job stays with a scheduler that is not heard of any more."""
RENEWALS = 4
"""How often a lease is renewed in that time."""
LOOK_SECONDS = 1.0
"""How often it is looked whether a run is free by now."""


@dataclass(frozen=True)
class JobDesk:
    """What jobs are run with. `reach_of`: what the runs of clients may reach; `account`: holds them
    to what is left to their key and namespace. `announce`: hears of what begins and ends, in a line
    each."""

    settings: Settings
    resources: Store
    store: Store
    reach_of: Callable[[ServedRun], Reach]
    announce: Callable[[str], None] = log.info
    account: Callable[[ServedRun, Launch], Launch] = lambda _served, launch: launch
    lease_seconds: float = LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """`again`: whether another attempt may help."""

    status: JobRunStatus
    detail: str = ""
    again: bool = False


@contextmanager
def keep_claim(desk: JobDesk, claim: JobClaim, lose: Callable[[], None]) -> Generator[None]:
    """Renew the lease of a job, from a thread of its own. `lose` is called from a thread, once,
    when the lease is another's, or could not be renewed before its end."""
    seconds, ended = desk.lease_seconds, threading.Event()
    lost, until = threading.Lock(), [time.monotonic() + seconds]

    def tell() -> None:
        if lost.acquire(blocking=False) and not ended.is_set():
            lose()

    def renew() -> None:
        while not ended.wait(seconds / RENEWALS):
            asked = time.monotonic()
            with suppress(StoreError):  # the database may answer again before the lease ends
                if not desk.resources.write(stored_jobs.renew_claim, claim, seconds):
                    tell()
                    break
                until[0] = asked + seconds

    def watch() -> None:
        """A database that is asked may not answer for a long time."""
        while not ended.wait(seconds / RENEWALS / 4):
            if time.monotonic() > until[0]:
                tell()
                break

    threads = [threading.Thread(target=work, daemon=True) for work in (renew, watch)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        threads[1].join()


async def perform_claim(desk: JobDesk, claim: JobClaim) -> None:
    """Do what a job is due for, and note what came of it; nothing of what it does is raised. Where
    this is cancelled, or the lease lost, the job is given back in the middle."""
    name, loop = f"{claim.job.namespace}/{claim.job.name}", asyncio.get_running_loop()
    lost = threading.Event()
    work = asyncio.create_task(_attempt(desk, claim))

    def lose() -> None:
        lost.set()
        loop.call_soon_threadsafe(work.cancel)

    desk.announce(f"job {name}: begins")
    try:
        with keep_claim(desk, claim, lose):
            outcome = await work
            await asyncio.to_thread(end_job_run, desk, claim, outcome)
        desk.announce(f"job {name}: {describe_outcome(outcome)}")
    except asyncio.CancelledError:
        if not lost.is_set():
            desk.announce(f"job {name}: is given back; the next scheduler goes on with it")
            raise
        desk.announce(f"job {name}: is not ours any more; stopped")
    except StoreError as error:  # the lease is another's, or the database is away
        desk.announce(f"job {name}: its end could not be noted: {error}")
    finally:
        await asyncio.shield(asyncio.to_thread(_release, desk, claim))


def _release(desk: JobDesk, claim: JobClaim) -> None:
    with suppress(StoreError):  # then its lease ends by itself
        desk.resources.write(stored_jobs.release_claim, claim)


def describe_outcome(outcome: JobOutcome) -> str:
    return f"{outcome.status}{f': {outcome.detail}' if outcome.detail else ''}"


def end_job_run(desk: JobDesk, claim: JobClaim, outcome: JobOutcome) -> None:
    """Note how it ended, and when the job is due next.

    Raises:
        ConflictError: the job is another's by now.
    """
    spec = read_job(claim.job)
    by_hand = claim.run.cause == "hand"
    again = outcome.again and not by_hand and claim.run.attempt <= spec.retries

    def due(job: StoredJob, now: float) -> float | None:
        if by_hand:
            return job.due
        return now + spec.retry_wait if again else next_due(job, now)

    status = "retrying" if again else outcome.status
    desk.resources.write(stored_jobs.end_claim, claim, status, outcome.detail, due)


def served_of(job: StoredJob, run_id: str = "") -> ServedRun:
    """A run of a job, as one that belongs to the job's namespace. A server leaves it alone: it is
    for schedulers to go on with it."""
    sent = read_job(job).sent or SentBy()
    seen = None if sent.namespaces is None else list(sent.namespaces)
    launch = {"name": job.name, "files": sent.files, "namespaces": seen}
    return ServedRun(run_id, job.namespace, sent.key, time.time(), "limited", launch)


def confine_job(desk: JobDesk, job: StoredJob) -> AbstractContextManager[None]:
    """Within the block a job that a client made reaches no more than that client may."""
    return confine(desk.reach_of(served_of(job)) if read_job(job).sent else None)


async def _attempt(desk: JobDesk, claim: JobClaim) -> JobOutcome:
    try:
        with confine_job(desk, claim.job):
            return await _perform(desk, claim, await begin_job_run(desk, claim))
    except TextEvolveError as error:
        log.warning("job %s failed: %s", claim.job.name, error)
        return JobOutcome("failed", public_message(error), again=True)
    except Exception as error:
        log.exception("job %s failed", claim.job.name)
        return JobOutcome("failed", f"{type(error).__name__}: {error}", again=True)


async def begin_job_run(desk: JobDesk, claim: JobClaim) -> RunRecord:
    """The run of a claim: what was begun before and can be gone on with, or what its study makes
    now. It is noted with the job.

    Raises:
        TextEvolveError: the study cannot be run. ConflictError: the job is another's by now.
    """
    spec = read_job(claim.job)
    begun = await asyncio.to_thread(_find_begun, desk, claim)
    if begun is not None:
        return begun
    settings = spec.settings(desk.settings, claim.job.namespace)
    study, own = read_study(spec.study)
    stored = await driver.specify(study, own, settings)
    if spec.fresh:
        apart = f"{claim.job.id} {claim.run.due!r}"
        stored = stored.model_copy(update={"fresh": apart})
    if settings.namespace != desk.settings.namespace:  # there the same study is another run
        described = {**stored.described, "namespace": settings.namespace}
        stored = stored.model_copy(update={"described": described})
    launch = spec.launch(claim.job.namespace)

    def register() -> RunRecord:
        cases = driver.read_cases(study, own, settings.store, settings)
        run = driver.register_run(desk.store, study, stored, cases, launch)
        desk.resources.write(stored_jobs.note_job_run, claim, run.id)
        if desk.store.get_served(run.id) is None:
            desk.store.serve_run(served_of(claim.job, run.id))
        return run

    return await asyncio.to_thread(register)


def _find_begun(desk: JobDesk, claim: JobClaim) -> RunRecord | None:
    """The run that was begun for this claim; None where there is none, or where it was removed, or
    cannot be gone on with since prompts or files behind its judges have changed."""
    if not claim.run.run_id:
        return None
    with suppress(StoreError):
        run = desk.store.get_run(claim.run.run_id)
        stored = read_stored(run)
        driver.refuse_changed(run, find_study(stored.kind), stored, {})
        desk.resources.write(stored_jobs.note_job_run, claim, run.id)  # of an earlier attempt
        return run
    return None


async def _perform(desk: JobDesk, claim: JobClaim, run: RunRecord) -> JobOutcome:
    spec = read_job(claim.job)
    settings = spec.settings(desk.settings, claim.job.namespace)
    study = find_study(read_stored(run).kind)
    known = run.status == "finished" and not claim.run.run_id
    baseline = await asyncio.to_thread(find_baseline, desk.store, run, spec.gates, settings)
    launch, rows = spec.launch(claim.job.namespace), dict[str, Row]()
    if spec.sent is not None:
        launch = desk.account(served_of(claim.job, run.id), launch)
    while True:
        await _wait_until_free(desk.store, run.id)
        try:
            async with aclosing(driver.perform(desk.store, run, settings, launch)) as records:
                async for record in records:
                    row = study.row(record)
                    rows[row.key] = row
            break
        except BusyError:  # somebody was faster, or has taken it over: it is waited for once more
            await asyncio.sleep(LOOK_SECONDS)
    checked = (desk.store, run, rows.values(), spec.gates, baseline)
    gated = await asyncio.to_thread(check_run, *checked)
    return judge_outcome(rows, gated, known=known)


async def _wait_until_free(store: Store, run_id: str) -> None:
    """Wait for another process that works on the run, such as a scheduler that has lost the job
    and is about to stop."""
    while (await asyncio.to_thread(store.get_run, run_id)).status == "running":  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)


def judge_outcome(rows: Mapping[str, Row], gated: Gated, *, known: bool) -> JobOutcome:
    """What came of a run. `known`: it was finished before, so nothing was asked."""
    lacking = [row for row in rows.values() if row.status != "scored"]
    again = any(row.status == "failed" for row in lacking)
    said = ""
    if lacking:
        number = wording.count(len(lacking), "record")
        said = f"{number} without a score ({wording.shorten(lacking[0].reason, 200)})"
    if gated.outcomes:
        failing = [str(one) for one in gated.outcomes if not one.holds]
        status: JobRunStatus = "gated" if failing else "finished"
        return JobOutcome(
            status, "; ".join([*failing, *([said] if said else [])]), bool(failing) and again
        )
    if lacking:
        return JobOutcome("incomplete", said, again)
    return JobOutcome("finished", "nothing new: the same run as before" if known else "")
