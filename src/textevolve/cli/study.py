"""The commands that run studies, one for each kind, generated from the fields of its specification.

The module contains no code for a particular kind: all differences are in the specification, in the
study's report, and in its descriptions of events.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any, get_type_hints

import typer

from textevolve.cli import options, say
from textevolve.cli.late import estimate, remote_runs, trackers
from textevolve.cli.results import remove_old_tests, show_report
from textevolve.cli.spec_options import give_parameters, keyword, parameters_of, read_given
from textevolve.cli.working import execute
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.ledger import log
from textevolve.mappings import omit, pick
from textevolve.report.blocks import Report
from textevolve.report.files import check_target
from textevolve.report.wording import count, money
from textevolve.runs import driver
from textevolve.runs.gates import Gates
from textevolve.runs.stored import StudyRun
from textevolve.runs.stored_runs import check_outputs, reject_overwriting
from textevolve.runs.study import AnyStudy, StudySpec, find_study, read_study_file
from textevolve.settings import read_settings
from textevolve.spec import files_read
from textevolve.store.repository import open_store
from textevolve.wiring import Limits


def print_estimate(data: Mapping[str, Any], reason: str, *, as_json: bool = False) -> None:
    """Print the estimate of calls, tokens and cost. `reason`: why the model was chosen."""
    if as_json:
        typer.echo(json.dumps(data))
        return
    facts = {"model": f"{data['model']} ({reason})"} if data["model"] else {}
    if "models" in data:
        calls = ", ".join(f"{name} {number:,}" for name, number in data["models"].items())
        facts["calls by model"] = calls
    facts["cases"] = f"{data['cases']:,}"
    facts["expected"] = "the median of rehearsals with made-up answers, and their range"
    learned = data["answers_learned"]
    facts["answers"] = (
        f"as long as {count(learned, 'answer')} to these rows in the journal"
        if learned
        else "of about 900 characters without reasoning, which is a guess; after a run of a few"
        " rows their lengths are expected"
    )
    place = f'[prices."{data["model"]}"]'
    facts["cost"] = f"not known: give a price in the settings under {place}"
    for name, figure in data["expected"].items():
        write = money if name == "cost" else _round
        middle, low, high = (write(figure[end]) for end in ("median", "low", "high"))
        facts[name.replace("_", " ")] = middle if low == high else f"{middle} ({low} to {high})"

    if (most := data.get("most_calls")) is not None:
        low, high = (_round(data["expected"]["calls"][end]) for end in ("low", "high"))
        facts["calls"] = f"at most {most:,}; typically {low} to {high}"

    if "costs" in data:
        facts["prices"] = data["costs"]
    note = "No model was called. Calls that the journal answers are not counted."
    show_report(Report("", note, [], facts))


def _round(value: float) -> str:
    """Round a number to three significant digits, since more would suggest a false precision."""
    return f"{int(float(f'{value:.3g}')) if value >= 1000 else round(value):,}"


@dataclass(frozen=True)
class RunOptions:
    """The options that all commands that run a study have, besides the fields of the
    specification."""

    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A file for the results: .json, .jsonl, .csv, .parquet, .html or .md; - is"
            " standard output. Repeatable.",
            rich_help_panel=options.RUN,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(help="A name for the run.", metavar="NAME", rich_help_panel=options.RUN),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="The most model calls at the same time.",
            metavar="INTEGER",
            rich_help_panel=options.RUN,
        ),
    ] = None
    batch: options.Batch = False
    on: options.On = None
    max_cost: options.MaxCost = None
    max_tokens: options.MaxTokens = None
    max_calls: options.MaxCalls = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Stop after this many seconds.", metavar="NUMBER", rich_help_panel=options.RUN
        ),
    ] = None
    dry_run: options.DryRun = False
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print results as JSON.", rich_help_panel=options.RUN),
    ] = False
    junit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write records and gates as JUnit XML.",
            rich_help_panel=options.ADVANCED,
        ),
    ] = None
    server: options.ServerAddress = None
    store: options.StoreFile = None
    annotate: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Send the scores to the spans that were judged, at phoenix:URL or mlflow:URL.",
            rich_help_panel=options.RUN,
        ),
    ] = None
    gates: Gates = field(default_factory=Gates)


# The names of the options of all commands that run a study.
SHARED = tuple(option.name for option in fields(RunOptions) if option.name != "gates")


def make_command(kind: str) -> Callable[..., None]:
    """Return the command of a kind of study, with the fields of its specification and the options
    of all runs. Without a kind it is the command that runs the study of a file."""
    if not kind:
        return make_file_command()
    study = find_study(kind)

    def command(**values: Any) -> None:
        if values["junit"] is not None:
            remove_old_tests(values["junit"])  # before anything can fail
        study_spec = study.spec(**read_given(study.spec, values))
        # A field of the specification may have the name of a gate, which the command lacks then.
        others = omit(values, study.spec.model_fields)
        raise typer.Exit(run_study(study, study_spec, _take_run_options(others)))

    command.__name__ = kind
    command.__doc__ = study.spec.__doc__ or ""
    gates = [gate for gate in parameters_of(Gates) if gate.name not in study.spec.model_fields]
    if not study.spec.scored:
        gates = [gate for gate in gates if gate.name == "max_failed"]
    parameters = [*parameters_of(study.spec), *gates]
    names = [name for name in SHARED if name != "annotate" or study.spec.of_spans]

    return shape_command(command, parameters, names)


def make_file_command() -> Callable[..., None]:
    """Return the command `textevolve run FILE`, which runs the study that a YAML file describes."""

    def command(file: str, **values: Any) -> None:
        if values["junit"] is not None:
            remove_old_tests(values["junit"])
        study, spec = read_study_file(file)
        raise typer.Exit(run_study(study, spec, _take_run_options(values), source=file))

    argument = Annotated[
        str,
        typer.Argument(
            help="The YAML file of the study: `kind: NAME`, then the fields of that kind."
        ),
    ]
    command.__name__ = "run"
    command.__doc__ = "Run a study that a YAML file describes."

    return shape_command(command, [keyword("file", argument, ...), *parameters_of(Gates)])


def _take_run_options(values: Mapping[str, Any]) -> RunOptions:
    return RunOptions(**pick(values, SHARED), gates=Gates(**read_given(Gates, values)))


def shape_command(
    command: Callable[..., None],
    parameters: Sequence[inspect.Parameter],
    shared_names: Sequence[str] = SHARED,
) -> Callable[..., None]:
    """Return the command with a signature for typer: its own parameters, and those of all runs
    whose names are listed."""
    shared = get_type_hints(RunOptions, include_extras=True)
    more = [
        keyword(option.name, shared[option.name], option.default)
        for option in fields(RunOptions)
        if option.name in shared_names
    ]

    return give_parameters(command, [*parameters, *more])


@contextmanager
def telling_warnings() -> Generator[None]:
    """Print the log warnings of this package as messages within the block, as well as log records
    with a message for users (`shown`)."""
    handler = logging.Handler(logging.INFO)
    level = log.level

    def emit(record: logging.LogRecord) -> None:
        message = getattr(record, "shown", "")
        if getattr(record, "at_end", False):
            return  # shown when the run has ended
        if message or record.levelno >= logging.WARNING:
            say(message or f"warning: {record.getMessage()}")

    handler.emit = emit
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@telling_warnings()
def run_study(
    study: AnyStudy, spec: StudySpec, run_options: RunOptions, source: str = "command line"
) -> int:
    """Run a study on this machine, or on the server of the settings, or print its estimate with
    `--dry-run`; return the exit code."""
    if run_options.output:
        check_outputs(study, run_options.output, files_read(spec))
    if run_options.junit is not None:
        if run_options.junit == "-":
            raise InputError("--junit -: standard output has the report already; name a file")
        check_target(run_options.junit)
        reject_overwriting([run_options.junit], files_read(spec))

    settings = read_settings(
        model=spec.plain_model,
        store=run_options.store,
        concurrency=run_options.concurrency,
        batch=run_options.batch or None,
        on=run_options.on,
        server=run_options.server,
    )
    if run_options.annotate is not None:
        # What is wrong with it is said before the run costs anything.
        trackers.open_tracker(run_options.annotate, settings)
    server = None if settings.server is None else remote_runs.remote_server(settings)
    if server is not None:
        if run_options.dry_run:
            raise InputError(
                "--dry-run estimates the calls of this machine alone; add --server none"
            )

        launch = take_launch(run_options)
        detail = sync.run(server.begin(spec, launch))
        with remote_runs.MirrorStore(server.address) as mirror:
            follow = partial(server.follow, detail, store=mirror)
            run = StudyRun(mirror.take_run(detail))
            return execute(mirror, run, settings, launch, run_options, follow)

    launch = take_launch(run_options, source)
    cases = driver.read_cases(study, spec, settings)
    asks_models = not run_options.dry_run
    plan = sync.run(driver.plan_run(spec, settings, launch, cases, asks_models=asks_models))
    if run_options.dry_run:
        expected = sync.run(estimate.forecast(study, plan.stored, list(cases), settings))
        print_estimate(expected, plan.stored.why, as_json=run_options.as_json)
        return 0

    with open_store(settings.store) as store:
        return execute(store, plan.register(store), settings, plan.launch, run_options)


def take_launch(run_options: RunOptions, source: str = "") -> driver.Launch:
    """Return the launch options of a run.

    Raises:
        InputError: a limit is below 0, or no number.
    """
    return driver.Launch(
        name=run_options.name or "",
        source=source,
        limits=Limits(run_options.max_cost, run_options.max_tokens, run_options.max_calls),
        time_limit=run_options.time_limit,
    )
