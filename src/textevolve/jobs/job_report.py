"""Reports on jobs and their history, as JSON-ready data and as blocks of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from textevolve.jobs.job_spec import describe_schedule, read_job
from textevolve.mappings import omit
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, Texts
from textevolve.store.jobs import StoredJob, StoredJobRun

JOBS = tuple(map(Column, ("job", "kind", "schedule", "state", "next", "last", "ended", "run")))
HISTORY = tuple(map(Column, ("due", "state", "started", "ended", "run", "detail")))


def show_time(when: float | None, zone: ZoneInfo) -> str:
    """Format a time (seconds since 1970) to the minute in a time zone, with the short name of the
    zone; None becomes an empty text."""
    return "" if when is None else f"{datetime.fromtimestamp(when, zone):%Y-%m-%d %H:%M %Z}"


def describe_state(job: StoredJob, last: StoredJobRun | None) -> str:
    """Return the state of a job: running, paused, interrupted (its newest run was), waiting for its
    next time, or ended (it never runs again). `last`: its newest run, if any."""
    if job.working:
        return "running"
    if job.paused:
        return "paused"
    if last is not None and last.status == "interrupted":
        return "interrupted"

    return "waiting" if job.due is not None else "ended"


def describe_job(job: StoredJob, runs: Sequence[StoredJobRun]) -> dict[str, Any]:
    """Return a job as JSON-ready data, with the newest of its runs, which is the first. The field
    `due`, its next time, is null if the job never runs again."""
    spec = read_job(job)
    last = next(iter(runs), None)
    return {
        "id": job.id,
        "namespace": job.namespace,
        **spec.model_dump(mode="json"),
        "created": job.created,
        "updated": job.updated,
        "paused": job.paused,
        "due": job.due,
        "schedule": describe_schedule(spec),
        "state": describe_state(job, last),
        "last": describe_job_run(last) if last else None,
    }


def describe_job_run(run: StoredJobRun) -> dict[str, Any]:
    return omit(asdict(run), ["job_id"])


def write_job_yaml(job: StoredJob) -> str:
    """Return the specification of a job as YAML."""
    return yaml.safe_dump(dict(job.spec), sort_keys=False, allow_unicode=True)


def report_jobs(namespace: str, jobs: Sequence[tuple[StoredJob, StoredJobRun | None]]) -> Report:
    """Report the jobs of a namespace, each with its newest run."""
    rows: list[list[str]] = []
    for job, last in jobs:
        spec = read_job(job)
        result = ["", "", ""]
        if last:
            result = [last.status, show_time(last.ended, spec.time_zone), last.run_id]
        rows.append(
            [
                job.name,
                str(spec.study.get("kind", "")),
                describe_schedule(spec),
                describe_state(job, last),
                show_time(None if job.paused else job.due, spec.time_zone),
                *result,
            ]
        )

    sentence = f"{wording.count(len(rows), 'job')} in {namespace}"

    return Report("jobs", sentence, [Table("", JOBS, rows)])


def report_job(job: StoredJob, runs: Sequence[StoredJobRun]) -> Report:
    """Report a job with its history, the newest run first."""
    spec = read_job(job)
    state = describe_state(job, runs[0] if runs else None)
    rows = [
        [
            show_time(run.due, spec.time_zone),
            run.status,
            show_time(run.started, spec.time_zone),
            show_time(run.ended, spec.time_zone),
            run.run_id,
            wording.shorten(run.detail, 200),
        ]
        for run in runs
    ]
    facts = {
        "schedule": describe_schedule(spec),
        "state": state,
        "next": show_time(None if job.paused else job.due, spec.time_zone) or "never",
    }
    blocks = [Table("History", HISTORY, rows), Texts("The job", [("", write_job_yaml(job))])]
    title = f"job {job.namespace}/{job.name}"

    return Report(title, f"{spec.study.get('kind')}, {state}", blocks, facts)
