"""`textevolve jobs`: studies that are kept and run by a clock."""

from __future__ import annotations

import _thread
import asyncio
import inspect
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from textevolve.agents.resources import split_name
from textevolve.cli import GATED, INTERRUPTED, PARTLY, options, say
from textevolve.cli.drawing import open_console
from textevolve.cli.results import check_outputs, print_json
from textevolve.cli.sessions import NamespaceOption
from textevolve.cli.spec_options import keyword, parameters_of, read_given
from textevolve.cli.study import RunOptions, execute, shape_command, telling_warnings
from textevolve.engine import sync
from textevolve.errors import TextEvolveError
from textevolve.jobs.job_report import report_job, report_jobs, show_time
from textevolve.jobs.job_spec import JobSpec, name_from_root, read_job, write_job_study
from textevolve.jobs.performing import (
    JobDesk,
    JobOutcome,
    begin_job_run,
    confine_job,
    end_job_run,
    keep_claim,
)
from textevolve.jobs.scheduler import AT_ONCE, work_on_jobs
from textevolve.jobs.schedules import check_schedule, next_due
from textevolve.reach import Reach
from textevolve.report.terminal import print_report
from textevolve.server.options import ServerOptions
from textevolve.server.studies.confinement import reach_of
from textevolve.settings import Settings, read_settings
from textevolve.store import jobs as stored_jobs
from textevolve.store.jobs import JobClaim, JobRunStatus
from textevolve.store.repository import Store, open_store
from textevolve.store.served import ServedRun
from textevolve.studies.kinds import find_study
from textevolve.studies.study_file import read_study_file

app = typer.Typer(**options.PLAIN)

JobName = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or NAMESPACE/NAME.")]
StudyFile = Annotated[str, typer.Argument(metavar="FILE", help="The study, as a YAML file.")]
Replace = Annotated[bool, typer.Option("--replace", help="Change the job if it is there already.")]

RUN_OPTIONS = ("output", "as_json", "turns", "store")
STATUSES: Mapping[int, JobRunStatus] = {0: "finished", PARTLY: "incomplete", GATED: "gated"}
"""By the exit code of a run."""


def add(**given: Any) -> None:
    """Keep a study, and when it is to run. `textevolve jobs work`, or a server, then runs it."""
    settings, _ = read_settings({"store": given["store"]})
    space, name = split_name(given["name"], given["namespace"] or settings.namespace)
    study, own = read_study_file(given["file"])
    fields = read_given(JobSpec, {**given, "name": name, "study": None})
    spec = JobSpec(**fields, study=write_job_study(study, name_from_root(study, own)))
    check_schedule(spec, time.time())
    with closing(Store(settings.memory_location)) as resources:
        if space == settings.namespace:
            resources.ensure_namespace(space)
        known = given["replace"] and name in [
            one.name for one in resources.read(stored_jobs.list_jobs, space)
        ]
        change = stored_jobs.update_job if known else stored_jobs.create_job
        job = resources.write(change, space, spec, next_due)
    due = show_time(job.due, spec.time_zone) or "never"
    typer.echo(f"{'changed' if known else 'added'} the job {space}/{name}; it runs next: {due}")


_FIELDS = [one for one in parameters_of(JobSpec) if one.name not in ("name", "study", "sent")]
app.command("add")(
    shape_command(
        add,
        [
            keyword("name", JobName, inspect.Parameter.empty),
            keyword("file", StudyFile, inspect.Parameter.empty),
            *_FIELDS,
            keyword("replace", Replace, False),
            keyword("namespace", NamespaceOption),
        ],
        ("store",),
    )
)


@app.command("list")
def list_jobs(
    namespace: NamespaceOption = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """List the jobs, and when each runs next."""
    with _open(store) as (settings, resources):
        space = namespace or settings.namespace
        known = space in resources.namespace_names()
        jobs = resources.read(stored_jobs.list_jobs, space) if known or namespace else []
        found = [(one, resources.read(stored_jobs.list_job_runs, one, 1)) for one in jobs]
    if as_json:
        for job, runs in found:
            print_json({**asdict(job), "last": asdict(runs[0]) if runs else None})
    elif found:
        print_report(report_jobs(space, found), open_console())
    else:
        typer.echo(
            f"no jobs in the namespace '{space}'; make one with: textevolve jobs add NAME FILE.yaml"
        )


@app.command()
def show(
    name: JobName,
    limit: Annotated[int, typer.Option(help="How many runs, the newest first.", min=1)] = 20,
    namespace: NamespaceOption = None,
    as_json: options.Json = False,
    store: options.StoreFile = None,
) -> None:
    """Show a job whole, and what became of it each time."""
    with _open(store) as (settings, resources):
        space, own = split_name(name, namespace or settings.namespace)
        job = resources.read(stored_jobs.get_job, space, own)
        runs = resources.read(stored_jobs.list_job_runs, job, limit)
    if as_json:
        print_json({**asdict(job), "runs": [asdict(one) for one in runs]})
    else:
        print_report(report_job(job, runs), open_console())


@app.command()
def pause(
    name: JobName, namespace: NamespaceOption = None, store: options.StoreFile = None
) -> None:
    """Let a job run no more, until it is resumed; what is under way goes on."""
    with _open(store) as (settings, resources):
        space, own = split_name(name, namespace or settings.namespace)
        resources.write(stored_jobs.pause_job, space, own)
    typer.echo(f"paused the job {space}/{own}; go on with: textevolve jobs resume {space}/{own}")


@app.command()
def resume(
    name: JobName, namespace: NamespaceOption = None, store: options.StoreFile = None
) -> None:
    """Let a paused job run again; times that went by are left out."""
    with _open(store) as (settings, resources):
        space, own = split_name(name, namespace or settings.namespace)
        resources.write(stored_jobs.resume_job, space, own, next_due)
    typer.echo(f"resumed the job {space}/{own}")


@app.command()
def remove(
    name: JobName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    namespace: NamespaceOption = None,
    store: options.StoreFile = None,
) -> None:
    """Remove a job with its history; the runs that it made stay."""
    with _open(store) as (settings, resources):
        space, own = split_name(name, namespace or settings.namespace)
        resources.read(stored_jobs.get_job, space, own)
        if not yes:
            typer.confirm(f"Remove the job {space}/{own}?", abort=True)
        resources.write(stored_jobs.delete_job, space, own)
    typer.echo(f"removed the job {space}/{own}")


@telling_warnings()
def run(name: str, namespace: str | None = None, **given: Any) -> None:
    """Run a job now, here, whenever it is due; it stays due then."""
    wanted = RunOptions(**given)
    with _open(wanted.store) as (settings, resources), open_store(settings.store) as store:
        space, own = split_name(name, namespace or settings.namespace)
        spec = read_job(resources.read(stored_jobs.get_job, space, own))
        check_outputs(find_study(spec.study["kind"]), wanted.output or (), turns=wanted.turns)
        desk = _set_desk(settings, resources, store)
        claim = resources.write(stored_jobs.claim_job, space, own, desk.lease_seconds)
        with keep_claim(desk, claim, _thread.interrupt_main):
            code = _run_here(desk, claim, replace(wanted, gates=spec.gates))
    raise typer.Exit(code)


def _run_here(desk: JobDesk, claim: JobClaim, wanted: RunOptions) -> int:
    """Do the work with the display of all runs, and note what came of it; the exit code."""
    spec, space = read_job(claim.job), claim.job.namespace
    try:
        with confine_job(desk, claim.job):
            made = sync.run(begin_job_run(desk, claim))
            settings = spec.settings(desk.settings, space)
            code = execute(desk.store, made, settings, spec.launch(space), wanted)
    except TextEvolveError as error:
        end_job_run(desk, claim, JobOutcome("failed", str(error)))
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
        say("stopped")
    end_job_run(desk, claim, JobOutcome(STATUSES.get(code, "stopped")))
    return code


app.command("run")(
    shape_command(
        run,
        [
            keyword("name", JobName, inspect.Parameter.empty),
            keyword("namespace", NamespaceOption),
        ],
        RUN_OPTIONS,
    )
)


@app.command()
@telling_warnings()
def work(
    at_once: Annotated[
        int, typer.Option(help="How many jobs are worked on at the same time.", min=1)
    ] = AT_ONCE,
    store: options.StoreFile = None,
) -> None:
    """Run jobs when they are due, until Ctrl-C. Several may work on the same store."""
    with _open(store) as (settings, resources), open_store(settings.store) as opened:
        if settings.namespace not in resources.namespace_names():
            resources.ensure_namespace(settings.namespace)
        desk = _set_desk(settings, resources, opened)
        say(f"running jobs of {settings.memory_location} when they are due; Ctrl-C ends this")
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            sync.run(work_on_jobs(desk, at_once))
    say("stopped; what was under way is gone on with by the next scheduler")


def _set_desk(settings: Settings, resources: Store, store: Store) -> JobDesk:
    """Jobs that clients of a server made may reach no more here than what they sent."""

    def reach(served: ServedRun) -> Reach:
        return reach_of(served, ServerOptions(), settings, store)

    return JobDesk(settings, resources, store, reach, say)


@contextmanager
def _open(store: str | None) -> Generator[tuple[Settings, Store]]:
    settings, _ = read_settings({"store": store})
    with closing(Store(settings.memory_location)) as resources:
        yield settings, resources
