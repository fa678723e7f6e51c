"""How jobs and their history are shown to people: as blocks of a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import yaml

from textevolve.jobs.job_spec import JobSpec, read_job
from textevolve.jobs.schedules import describe_schedule
from textevolve.report import wording
from textevolve.report.blocks import Block, Column, Report, Table, Texts
from textevolve.store.jobs import StoredJob, StoredJobRun


def show_time(when: float | None, zone: ZoneInfo) -> str:
    """A time in a zone, with its offset; empty where there is none."""
    return "" if when is None else f"{datetime.fromtimestamp(when, zone):%Y-%m-%d %H:%M %Z}"


def describe_state(job: StoredJob, last: StoredJobRun | None) -> str:
    """What a job is doing, in a word or two."""
    if job.working:
        return "running"
    if job.paused:
        return "paused"
    if last is not None and last.status in ("interrupted", "retrying"):
        return last.status
    return "waiting" if job.due is not None else "ended"


def report_jobs(
    namespace: str, found: Sequence[tuple[StoredJob, Sequence[StoredJobRun]]]
) -> Report:
    """The jobs of a namespace, each with its newest run, if there is one."""
    columns = ("job", "kind", "schedule", "state", "next", "last", "ended", "run")
    rows = [_row(job, runs[0] if runs else None) for job, runs in found]
    table = Table("", [Column(name) for name in columns], rows)
    return Report("jobs", f"{wording.count(len(rows), 'job')} in {namespace}", [table])


def _row(job: StoredJob, last: StoredJobRun | None) -> list[str]:
    spec = read_job(job)
    ended = last.status if last else ""
    return [
        job.name,
        str(spec.study.get("kind", "")),
        describe_schedule(spec),
        describe_state(job, last),
        show_time(None if job.paused else job.due, spec.time_zone),
        ended,
        show_time(last.ended if last else None, spec.time_zone),
        last.run_id if last else "",
    ]


def report_job(job: StoredJob, runs: Sequence[StoredJobRun]) -> Report:
    """A job whole, and what became of it each time, the newest first."""
    spec = read_job(job)
    facts = {
        "schedule": describe_schedule(spec),
        "state": describe_state(job, runs[0] if runs else None),
        "next": show_time(None if job.paused else job.due, spec.time_zone) or "never",
        **_told(spec),
    }
    columns = ("due", "cause", "attempt", "state", "started", "ended", "run", "detail")
    rows = [_history_row(one, spec.time_zone) for one in runs]
    study = yaml.safe_dump(dict(spec.study), sort_keys=False, allow_unicode=True)
    blocks: list[Block] = (
        [Table("History", [Column(name) for name in columns], rows)] if rows else []
    )
    blocks.append(Texts("The study", [("", study)]))
    title = f"job {job.namespace}/{job.name}"
    return Report(title, f"{spec.study.get('kind')}, {facts['state']}", blocks, facts)


def _told(spec: JobSpec) -> dict[str, str]:
    """What was asked of it beside the schedule."""
    given = spec.model_dump(mode="json", exclude_defaults=True)
    gates = {f"gate {name}": value for name, value in given.pop("gates", {}).items()}
    for name in ("name", "study", "cron", "every", "zone", "start", "end"):
        given.pop(name, None)
    return {name.replace("_", " "): str(value) for name, value in {**given, **gates}.items()}


def _history_row(run: StoredJobRun, zone: ZoneInfo) -> list[str]:
    return [
        show_time(run.due, zone),
        run.cause,
        str(run.attempt),
        run.status,
        show_time(run.started, zone),
        show_time(run.ended, zone),
        run.run_id,
        wording.shorten(run.detail, 200),
    ]
