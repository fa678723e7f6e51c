"""`textevolve jobs`: scheduled studies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

from textevolve.cli import FAILED, GATED, PARTLY, options, say
from textevolve.cli.options import NamespaceName, Yes
from textevolve.cli.results import open_named, print_json, print_list, show_report
from textevolve.cli.spec_options import read_given, takes
from textevolve.cli.study import telling_warnings
from textevolve.engine import sync
from textevolve.errors import ConflictError
from textevolve.jobs.job_report import report_job, report_jobs, show_time
from textevolve.jobs.job_spec import JobSpec, check_schedule, next_due, write_job_study
from textevolve.jobs.scheduler import AT_ONCE, LEASE_SECONDS, JobDesk, perform_claim, work_on_jobs
from textevolve.runs.study import read_study_file
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import JobRunStatus, StoredJob, StoredJobRun
from textevolve.store.repository import open_store

JobName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the job, or NAMESPACE/NAME.")
]
StudyFile = Annotated[str, typer.Argument(metavar="FILE", help="The YAML file of the study.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Change an existing job of this name; default: an error.")
]
EXIT_CODES: Mapping[JobRunStatus, int] = {"finished": 0, "incomplete": PARTLY, "gated": GATED}


@takes(JobSpec, "name", "study")
def add(
    name: JobName,
    file: StudyFile,
    replace: Replace = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
    **values: Any,
) -> None:
    """Store a study with its schedule."""
    with open_named(store, name, namespace) as (_, resources, space, name):
        study, study_spec = read_study_file(file)
        fields = read_given(JobSpec, {**values, "name": name, "study": None})
        spec = JobSpec(**fields, study=write_job_study(study, study_spec))
        check_schedule(spec, time.time())
        names = [job.name for job in resources.read(stored_jobs.list_jobs, space)]
        exists = replace and name in names
        change = stored_jobs.update_job if exists else stored_jobs.create_job
        job = resources.write(change, space, spec, next_due)

    due = show_time(job.due, spec.time_zone) or "never"
    typer.echo(f"{'changed' if exists else 'added'} the job {space}/{name}; it runs next: {due}")


def list_jobs(
    namespace: NamespaceName = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """List the jobs, and when each runs next."""
    rows: list[tuple[StoredJob, StoredJobRun | None]] = []
    with open_named(store, namespace=namespace) as (_, resources, space, _own):
        for job in resources.read(stored_jobs.list_jobs, space):
            runs = resources.read(stored_jobs.list_job_runs, job, 1)
            rows.append((job, runs[0] if runs else None))

    print_list(
        rows,
        lambda row: {**asdict(row[0]), "last": asdict(row[1]) if row[1] else None},
        lambda rows: show_report(report_jobs(space, rows)),
        f"no jobs in the namespace '{space}'; make one with: textevolve jobs add nightly study.yaml"
        ' --cron "0 3 * * *"',
        as_json=as_json,
    )


def show(
    name: JobName,
    limit: Annotated[
        int, typer.Option(help="The number of runs to show, the newest first.", min=1)
    ] = 20,
    namespace: NamespaceName = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """Show a job in full, with the outcomes of its runs."""
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        job = resources.read(stored_jobs.get_job, space, bare_name)
        runs = resources.read(stored_jobs.list_job_runs, job, limit)
    if as_json:
        print_json({**asdict(job), "runs": list(map(asdict, runs))})
    else:
        show_report(report_job(job, runs))


def pause(name: JobName, namespace: NamespaceName = None, store: options.StoreFile = None) -> None:
    """Pause a job until it is resumed; its current run continues."""
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        resources.write(stored_jobs.pause_job, space, bare_name)
    typer.echo(
        f"paused the job {space}/{bare_name}; resume with:"
        f" textevolve jobs resume {space}/{bare_name}"
    )


def resume(name: JobName, namespace: NamespaceName = None, store: options.StoreFile = None) -> None:
    """Resume a paused job; missed times are skipped."""
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        resources.write(stored_jobs.resume_job, space, bare_name, next_due)
    typer.echo(f"resumed the job {space}/{bare_name}")


def remove(
    name: JobName,
    yes: Yes = False,
    namespace: NamespaceName = None,
    store: options.StoreFile = None,
) -> None:
    """Remove a job with its history; its runs stay."""
    with open_named(store, name, namespace) as (_, resources, space, bare_name):
        resources.read(stored_jobs.get_job, space, bare_name)
        options.confirm(f"Remove the job {space}/{bare_name}?", yes)
        resources.write(stored_jobs.delete_job, space, bare_name)

    typer.echo(f"removed the job {space}/{bare_name}")


@telling_warnings()
def run(name: JobName, namespace: NamespaceName = None, store: options.StoreFile = None) -> None:
    """Run a job here and now, even if it is not due."""
    with (
        open_named(store, name, namespace) as (settings, resources, space, bare_name),
        open_store(settings.store) as runs,
    ):
        desk = JobDesk(settings, resources, runs, say)
        job = resources.write(stored_jobs.hasten_job, space, bare_name)
        claim = resources.write(stored_jobs.claim_due_job, job.id, LEASE_SECONDS)
        if claim is None:
            raise ConflictError(
                f"job {space}/{bare_name}: a scheduler has just started it; see `textevolve jobs"
                " show`"
            )

        outcome = sync.run(perform_claim(desk, claim))
        (newest,) = resources.read(stored_jobs.list_job_runs, claim.job, 1)

    if newest.run_id:
        say(f"run {newest.run_id}; show it with: textevolve runs show {newest.run_id}")
    raise typer.Exit(FAILED if outcome is None else EXIT_CODES.get(outcome.status, FAILED))


@telling_warnings()
def work(
    at_once: Annotated[
        int, typer.Option(help="The number of jobs that run at the same time.", min=1)
    ] = AT_ONCE,
    store: options.StoreFile = None,
) -> None:
    """Run jobs when they are due, until Ctrl-C. Several processes may use the same store."""
    with (
        open_named(store) as (settings, resources, _space, _own),
        open_store(settings.store) as runs,
    ):
        say(f"running jobs of {settings.memory_location} when they are due; Ctrl-C ends this")
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            sync.run(work_on_jobs(JobDesk(settings, resources, runs, say), at_once))

    say("stopped; the next scheduler resumes the current runs")
