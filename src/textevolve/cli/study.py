"""One command for every kind of study, made from the fields of its specification.

Nothing here knows a kind by name: what differs is in the specification, in the study's report, and
in the lines that it has for events.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, get_type_hints

import typer

from textevolve.cli import options, say
from textevolve.cli.drawing import show_report
from textevolve.cli.remote import run_there
from textevolve.cli.results import (
    check_outputs,
    refuse_overwriting,
)
from textevolve.cli.spec_options import give_parameters, parameters_of, read_given
from textevolve.cli.working import execute
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.remote.runs import remote_server
from textevolve.report.blocks import Report
from textevolve.report.files import check_target
from textevolve.report.wording import money
from textevolve.settings import read_settings
from textevolve.spec import files_read
from textevolve.store.repository import open_store
from textevolve.studies import driver
from textevolve.studies.gates import Gates
from textevolve.studies.kinds import find_study
from textevolve.studies.rehearsal import forecast
from textevolve.studies.study import AnyStudy, StudySpec
from textevolve.studies.study_file import read_study_file
from textevolve.wiring import Limits


def print_estimate(data: Mapping[str, Any], why: str, *, as_json: bool = False) -> None:
    """Print what is to be expected of calls, tokens and cost. `why`: how the model was found."""
    if as_json:
        typer.echo(json.dumps(data))
        return
    facts = {"model": f"{data['model']} ({why})"} if data["model"] else {}
    facts |= {"cases": f"{data['cases']:,}", **data.get("parts", {})}
    facts["expected"] = "the median of rehearsals with made-up answers, and their range"
    place = f'[prices."{data["model"]}"]'
    facts["cost"] = f"not known: give a price in the settings under {place}"
    for name, figure in data["expected"].items():
        write = money if name == "cost" else _round
        middle, low, high = (write(figure[end]) for end in ("median", "low", "high"))
        facts[name.replace("_", " ")] = middle if low == high else f"{middle} ({low} to {high})"
    if "costs" in data:
        facts["prices"] = data["costs"]
    note = "Nothing was asked. What the journal already holds would cost nothing."
    show_report(Report("", note, [], facts))


def _round(value: float) -> str:
    """A number to three digits: more would say what nobody knows."""
    return f"{int(float(f'{value:.3g}')) if value >= 1000 else round(value):,}"


@dataclass(frozen=True)
class RunOptions:
    """What every command that runs a study takes beside the specification."""

    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A file for the results: .json, .jsonl, .csv, .parquet, .html, .md; or -."
            " Repeatable.",
            rich_help_panel=options.RUN,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(help="A name for the run.", metavar="NAME", rich_help_panel=options.RUN),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(help="Calls in flight.", metavar="INTEGER", rich_help_panel=options.RUN),
    ] = None
    batch: options.Batch = False
    on: options.On = None
    max_cost: options.MaxCost = None
    max_tokens: options.MaxTokens = None
    max_calls: options.MaxCalls = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Stop after so many seconds.", metavar="NUMBER", rich_help_panel=options.RUN
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
    gates: Gates = field(default_factory=Gates)


SHARED = tuple(one.name for one in fields(RunOptions) if one.name != "gates")
LIMIT_OPTIONS = ("max_cost", "max_tokens", "max_calls", "time_limit")


def make_command(kind: str) -> Callable[..., None]:
    """The command of a kind: its specification's fields, and what all runs take. Without a kind it
    runs the study that a file describes."""
    if not kind:
        return make_file_command()
    study = find_study(kind)

    def command(**given: Any) -> None:
        own = study.spec(**read_given(study.spec, given))
        raise typer.Exit(run_study(study, own, _take_run_options(study.spec, given)))

    command.__name__, command.__doc__ = kind, study.spec.__doc__ or ""
    return shape_command(command, [*parameters_of(study.spec), *_gate_options(study.spec)])


def make_file_command() -> Callable[..., None]:
    """`textevolve run FILE`: any kind of study, as a YAML file describes it."""

    def command(file: str, **given: Any) -> None:
        study, spec = read_study_file(file)
        raise typer.Exit(run_study(study, spec, _take_run_options(None, given), source=file))

    argument = Annotated[str, typer.Argument(help="A YAML file: `kind: NAME`, then its fields.")]
    path = inspect.Parameter("file", inspect.Parameter.KEYWORD_ONLY, annotation=argument)
    command.__name__, command.__doc__ = "run", "Run a study that a YAML file describes."
    return shape_command(command, [path, *_gate_options(None)])


def _take_run_options(spec: type[StudySpec] | None, given: Mapping[str, Any]) -> RunOptions:
    gates = {one.name: given[one.name] for one in _gate_options(spec)}
    return RunOptions(
        **{name: given[name] for name in SHARED}, gates=Gates(**read_given(Gates, gates))
    )


def _gate_options(spec: type[StudySpec] | None) -> list[inspect.Parameter]:
    """The options of gates, but for one that the specification has under the same name."""
    own = () if spec is None else spec.model_fields
    return [one for one in parameters_of(Gates) if one.name not in own]


def shape_command(
    command: Callable[..., None],
    own: Sequence[inspect.Parameter],
    shared_names: Sequence[str] = SHARED,
) -> Callable[..., None]:
    """The command with a signature for typer: its own parameters, and of those of all runs the
    ones that are named."""
    shared = get_type_hints(RunOptions, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(one.name, keyword, default=one.default, annotation=shared[one.name])
        for one in fields(RunOptions)
        if one.name in shared_names
    ]
    return give_parameters(command, [*own, *more])


@contextmanager
def telling_warnings() -> Generator[None]:
    """What the library warns of in its log is said as a line for people; also what it notes there
    in words for them (`shown`)."""
    log, handler = logging.getLogger("textevolve"), logging.Handler(logging.INFO)
    level = log.level

    def tell(record: logging.LogRecord) -> None:
        shown = getattr(record, "shown", "")
        if shown or record.levelno >= logging.WARNING:
            say(shown or f"warning: {record.getMessage()}")

    handler.emit = tell
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@telling_warnings()
def run_study(
    study: AnyStudy, spec: StudySpec, wanted: RunOptions, source: str = "command line"
) -> int:
    """Run a study, or say what it may take; the exit code."""
    check_outputs(study, wanted.output or ())
    written = [*(wanted.output or ()), *([wanted.junit] if wanted.junit else [])]
    refuse_overwriting(written, files_read(spec))
    if wanted.junit is not None:
        if wanted.junit == "-":
            raise InputError("--junit: name a file; standard output has the report")
        check_target(wanted.junit)
    settings = read_settings(
        model=spec.plain_model,
        store=wanted.store,
        concurrency=wanted.concurrency,
        batch=wanted.batch or None,
        on=wanted.on,
        server=wanted.server,
    )
    if (server := remote_server(settings)) is not None:
        return run_there(server, study, spec, take_launch(wanted), wanted)
    objects: dict[str, object] = {}
    launch = take_launch(wanted, source, objects)
    cases = driver.read_cases(study, spec, settings)
    asks = not wanted.dry_run
    stored = sync.run(driver.specify(study, spec, settings, objects, asks_models=asks))
    if wanted.dry_run:
        found = sync.run(forecast(study, stored, list(cases), settings))
        print_estimate(found, stored.why, as_json=wanted.as_json)
        return 0
    with open_store(settings.store) as store:
        run = driver.register_run(store, study, stored, cases, launch)
        return execute(store, run, settings, launch, wanted)


def take_launch(
    wanted: RunOptions, source: str = "", objects: Mapping[str, object] | None = None
) -> driver.Launch:
    """How a run is started with these options.

    Raises:
        InputError: a limit is below 0, or no number.
    """
    return driver.Launch(
        name=wanted.name or "",
        source=source,
        limits=Limits(wanted.max_cost, wanted.max_tokens, wanted.max_calls),
        time_limit=wanted.time_limit,
        objects={} if objects is None else objects,
    )
