"""Jobs (studies that run on a schedule), their leases, and the outcomes of their runs.

A scheduler claims a due job with a lease, which it must renew; without the lease it cannot write.
All times are those of the database's clock, so schedulers on several machines agree.
`textevolve.jobs` interprets specifications and schedules; here a specification is JSON. All
functions take a connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from sqlalchemy import Row, func, insert, select
from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError
from textevolve.store import tables
from textevolve.store.dialects import database_time
from textevolve.store.lease import new_lease, no_lease, process_lives
from textevolve.store.resource_rows import (
    ResourceTable,
    build,
    delete_where,
    fetch_one,
    insert_row,
    list_rows,
    mapping_of,
    require_row,
    update_row,
    update_where,
)

JobRunStatus: TypeAlias = Literal[
    "running", "interrupted", "finished", "incomplete", "gated", "failed"
]
"""The outcome of one run of a job. `interrupted`: its scheduler has died or released the job before
the end, and the next scheduler resumes the run. `incomplete`: it ended, but some records have no
score. `gated`: it ended, but a gate (a required result) is not met."""

JOB = ResourceTable(
    "job", "jobs", tables.jobs, "jo", "add {} study.yaml", "add --replace {} study.yaml"
)
"""The table of jobs, with the commands that change it."""

_jobs = tables.jobs
_runs = tables.job_runs


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A stored job. Times are seconds since 1970. `paused`: whether it does not run until it is
    resumed. `due`: the next time to run, or a missed one; None: it never runs again. `working`:
    whether a scheduler works on it now."""

    id: str
    namespace: str
    name: str
    created: float
    updated: float
    paused: bool
    due: float | None
    working: bool
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredJobRun:
    """One execution of a job. `due`: the time for which it was scheduled. `started`, `ended`: its
    times; `ended` is None until it has finished. `run_id`: the run that it started or resumed,
    empty before there is one. `detail`: details of the outcome, such as the reason of a failure."""

    id: int
    job_id: str
    due: float
    started: float
    ended: float | None
    status: JobRunStatus
    run_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class JobClaim:
    """A job that this process works on, as long as it renews its lease. `run`: the current
    execution. `token`: identifies the lease."""

    job: StoredJob
    run: StoredJobRun
    token: str


NextDue: TypeAlias = Callable[[StoredJob, float], float | None]
"""A function that returns when a job is due next after a time, both in seconds since 1970; None:
never again. It may be called several times."""


def create_job(
    connection: Connection, namespace: str, spec: BaseModel, next_due: NextDue
) -> StoredJob:
    """Create a job with the `name` in its specification.

    Raises:
        InputError: the name is taken, or a text cannot be stored.
    """
    id = insert_row(connection, JOB, spec, namespace, {"paused": False, "spec": _dump(spec)})

    return _set_due(connection, id, next_due)


def update_job(
    connection: Connection, namespace: str, spec: BaseModel, next_due: NextDue
) -> StoredJob:
    """Replace the specification of a job; a running study continues with the old one.

    Raises:
        InputError: the job does not exist.
    """
    job = get_job(connection, namespace, getattr(spec, "name"))  # noqa: B009
    update_row(connection, JOB, job.id, spec=_dump(spec))

    return _set_due(connection, job.id, next_due)


def get_job(connection: Connection, namespace: str, name: str) -> StoredJob:
    """Return the job with this name.

    Raises:
        InputError: the job does not exist.
    """
    row = require_row(connection, JOB, name, namespace)
    return _read(row, database_time(connection))


def list_jobs(connection: Connection, namespace: str) -> list[StoredJob]:
    """List the jobs of a namespace, sorted by name."""
    now = database_time(connection)
    return [_read(row, now) for row in list_rows(connection, JOB, namespace)]


def delete_job(connection: Connection, namespace: str, name: str) -> None:
    """Delete a job with its history. Its runs are kept; a scheduler that works on it loses its
    lease.

    Raises:
        InputError: the job does not exist.
    """
    job = get_job(connection, namespace, name)
    delete_where(connection, _runs, job_id=job.id)
    delete_where(connection, _jobs, id=job.id)


def pause_job(connection: Connection, namespace: str, name: str) -> StoredJob:
    """Pause a job until it is resumed; a current run continues.

    Raises:
        InputError: the job does not exist.
    """
    update_row(connection, JOB, get_job(connection, namespace, name).id, paused=True)
    return get_job(connection, namespace, name)


def resume_job(connection: Connection, namespace: str, name: str, next_due: NextDue) -> StoredJob:
    """Resume a paused job. Missed times are skipped; an unfinished run is resumed.

    Raises:
        InputError: the job does not exist.
    """
    job = get_job(connection, namespace, name)
    update_row(connection, JOB, job.id, paused=False)
    newest = _newest_run(connection, job.id)
    if job.paused and (newest is None or newest.ended is not None):
        return _set_due(connection, job.id, next_due)

    return get_job(connection, namespace, name)


def hasten_job(connection: Connection, namespace: str, name: str) -> StoredJob:
    """Make a job due now, so that the next scheduler that checks runs it.

    Raises:
        InputError: the job does not exist. ConflictError: the job is paused, or running.
    """
    job = get_job(connection, namespace, name)
    if job.paused:
        raise ConflictError(f"job {name}: is paused; resume it first")
    if job.working:
        raise ConflictError(
            f"job {name}: is running already; `textevolve jobs show` has its progress"
        )

    return _set_due(connection, job.id, lambda _job, now: now)


def list_job_runs(connection: Connection, job: StoredJob, limit: int = 20) -> list[StoredJobRun]:
    """List the `limit` newest executions of a job, the newest first."""
    query = select(_runs).where(_runs.c.job_id == job.id).order_by(_runs.c.id.desc()).limit(limit)
    return [_read_run(row, working=job.working) for row in connection.execute(query)]


# Work


def seconds_to_next(connection: Connection) -> float | None:
    """Return the seconds until the next job is due, among the jobs that are not paused and have no
    lease; negative if one is overdue, None if no such job is due again."""
    waiting = (_jobs.c.paused.is_(False), _jobs.c.lease_token.is_(None))
    due = connection.execute(select(func.min(_jobs.c.due)).where(*waiting)).scalar_one()
    return None if due is None else due - database_time(connection)


def list_due_jobs(connection: Connection) -> list[str]:
    """List the ids of the jobs that can be claimed, the longest overdue first."""
    now = database_time(connection)
    due = (_jobs.c.paused.is_(False), _jobs.c.due <= now)
    rows = connection.execute(JOB.query().where(*due).order_by(_jobs.c.due, _jobs.c.id))
    return [row.id for row in rows if _is_free(row, now)]


def claim_due_job(connection: Connection, id: str, seconds: float) -> JobClaim | None:
    """Claim a job for this process, for `seconds`. Return None if the job cannot be claimed any
    more: it is gone, paused, not due, or claimed by another process."""
    query = JOB.query().where(_jobs.c.id == id).with_for_update(skip_locked=True, of=_jobs)
    row = connection.execute(query).one_or_none()
    now = database_time(connection)
    if row is None or row.paused or row.due is None or row.due > now or not _is_free(row, now):
        return None
    lease = new_lease()
    update_where(connection, _jobs, {**lease, "lease_until": now + seconds}, id=id)
    run = _take_up(connection, id, row.due, now)

    return JobClaim(_get(connection, id), run, lease["lease_token"])


def renew_claim(connection: Connection, claim: JobClaim, seconds: float) -> bool:
    """Renew the lease of a job for `seconds` from now; return False if the job is gone or another
    process has claimed it."""
    until = {"lease_until": database_time(connection) + seconds}
    return update_where(connection, _jobs, until, **_leased_row(claim)) == 1


def note_job_run(connection: Connection, claim: JobClaim, run_id: str) -> None:
    """Note the run that a job has created, before the run makes its first call.

    Raises:
        ConflictError: another process has claimed the job.
    """
    _require_own(connection, claim)
    update_where(connection, _runs, {"run_id": run_id}, id=claim.run.id)


def end_claim(
    connection: Connection,
    claim: JobClaim,
    status: JobRunStatus,
    detail: str,
    next_due: NextDue,
) -> None:
    """Note the outcome of a job's run and when the job is due next, and release the job.

    Raises:
        ConflictError: another process has claimed the job.
    """
    _require_own(connection, claim)
    job = _get(connection, claim.job.id)
    now = database_time(connection)
    end = {"status": status, "detail": detail, "ended": now}
    update_where(connection, _runs, end, id=claim.run.id)
    update_where(
        connection, _jobs, {"due": next_due(job, now), **no_lease(_jobs)}, **_leased_row(claim)
    )


def release_claim(connection: Connection, claim: JobClaim) -> None:
    """Release an unfinished job, which the next scheduler resumes."""
    update_where(connection, _jobs, no_lease(_jobs), **_leased_row(claim))


def _take_up(connection: Connection, job_id: str, due: float, now: float) -> StoredJobRun:
    """Return the execution for a claim: the interrupted one, or a new one."""
    run = _newest_run(connection, job_id)
    if run is None or run.ended is not None:
        values = {"job_id": job_id, "due": due, "cause": "schedule", "started": now, "attempt": 1}
        values |= {"status": "running", "run_id": "", "detail": ""}
        run = connection.execute(insert(_runs).values(values).returning(*_runs.c)).one()

    return _read_run(run, working=True)


def _newest_run(connection: Connection, job_id: str) -> Row[Any] | None:
    query = select(_runs).where(_runs.c.job_id == job_id).order_by(_runs.c.id.desc()).limit(1)
    return connection.execute(query).one_or_none()


def _leased_row(claim: JobClaim) -> dict[str, str]:
    return {"id": claim.job.id, "lease_token": claim.token}


def _require_own(connection: Connection, claim: JobClaim) -> None:
    if fetch_one(connection, _jobs, **_leased_row(claim)) is None:
        raise ConflictError(
            f"job {claim.job.name}: another scheduler has taken it over, or it was removed:"
            " see textevolve jobs list"
        )


def _is_free(row: Row[Any], now: float) -> bool:
    """Check whether a job is free: its lease has ended, or its process is known to be dead."""
    if row.lease_token is None or row.lease_until < now:
        return True
    return process_lives(row) is False


def _get(connection: Connection, id: str) -> StoredJob:
    row = connection.execute(JOB.query().where(_jobs.c.id == id)).one()
    return _read(row, database_time(connection))


def _set_due(connection: Connection, id: str, next_due: NextDue) -> StoredJob:
    due = next_due(_get(connection, id), database_time(connection))
    update_where(connection, _jobs, {"due": due}, id=id)
    return _get(connection, id)


def _dump(spec: BaseModel) -> str:
    return json.dumps(spec.model_dump(mode="json", exclude={"name"}, exclude_defaults=True))


def _read(row: Row[Any], now: float) -> StoredJob:
    spec = {"name": row.name, **json.loads(row.spec)}
    return build(StoredJob, {**mapping_of(row), "working": not _is_free(row, now), "spec": spec})


def _read_run(row: Row[Any], *, working: bool) -> StoredJobRun:
    values = mapping_of(row)
    if row.ended is None and not working:
        values["status"] = "interrupted"
    return build(StoredJobRun, values)
