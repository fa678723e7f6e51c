"""One command for every kind of study, made from the fields of its specification.

Nothing here knows a kind by name: what differs is in the specification, in the study's report, and
in the lines that it has for events.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, get_type_hints

import typer

from textevolve.cli import GATED, INTERRUPTED, PARTLY, options, say
from textevolve.cli.drawing import open_console
from textevolve.cli.estimates import print_estimate
from textevolve.cli.execution import calm_collector, fetch_models
from textevolve.cli.progress import open_progress
from textevolve.cli.results import (
    check_outputs,
    print_json,
    refuse_overwriting,
    write_line,
    write_outputs,
    write_tests,
)
from textevolve.cli.spec_options import give_parameters, parameters_of, read_given
from textevolve.engine import sync
from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.files import check_target
from textevolve.report.terminal import print_report
from textevolve.settings import Settings, read_settings
from textevolve.spec import files_read
from textevolve.store.repository import Store, open_store
from textevolve.store.runs import RunRecord
from textevolve.studies import driver
from textevolve.studies.baseline import check_run, find_baseline
from textevolve.studies.driver import Launch, StoredSpec
from textevolve.studies.earlier import find_earlier
from textevolve.studies.gates import UNGATED, Gated, Gates
from textevolve.studies.kinds import find_study
from textevolve.studies.rehearsal import forecast
from textevolve.studies.reporting import make_data, make_report
from textevolve.studies.study import AnyStudy, Row, StudySpec
from textevolve.studies.study_file import read_study_file
from textevolve.wiring import Limits

REASONS_SHOWN = 5
"""Of how many records without a score the reason is said."""


@dataclass(frozen=True)
class RunOptions:
    """What every command that runs a study takes beside the specification."""

    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write results to this file, by its ending: .json, .jsonl, .csv, .parquet, .html"
            " or .md. Repeatable; - is standard output.",
            rich_help_panel=options.RUN,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            help="A name for the run, to find it by.", metavar="NAME", rich_help_panel=options.RUN
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="How many calls are in flight.", metavar="INTEGER", rich_help_panel=options.RUN
        ),
    ] = None
    max_cost: options.MaxCost = None
    max_tokens: options.MaxTokens = None
    max_calls: options.MaxCalls = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Stop after so many seconds.", metavar="NUMBER", rich_help_panel=options.LIMITS
        ),
    ] = None
    dry_run: options.DryRun = False
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print results as JSON.", rich_help_panel=options.RUN),
    ] = False
    turns: Annotated[
        bool,
        typer.Option(
            "--turns",
            help="In .csv and .parquet files, and in .jsonl: a row for each turn of a debate.",
            rich_help_panel=options.RUN,
        ),
    ] = False
    junit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the records, and the gates, as test cases to this file, as JUnit XML.",
            rich_help_panel=options.RUN,
        ),
    ] = None
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with this run, and refuse to where anything differs.",
            rich_help_panel=options.RUN,
        ),
    ] = None
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
    check_outputs(study, wanted.output or (), turns=wanted.turns)
    written = [*(wanted.output or ()), *([wanted.junit] if wanted.junit else [])]
    refuse_overwriting(written, files_read(spec))
    if wanted.junit is not None:
        if wanted.junit == "-":
            raise InputError("--junit: name a file; standard output has the report")
        check_target(wanted.junit)
    settings, _ = read_settings(
        {"model": spec.model, "store": wanted.store, "concurrency": wanted.concurrency}
    )
    objects: dict[str, object] = {}
    launch = take_launch(wanted, source, objects)
    cases = driver.read_cases(study, spec, settings.store, settings)
    asks = not wanted.dry_run
    stored = sync.run(driver.specify(study, spec, settings, objects, asks_models=asks))
    if wanted.dry_run:
        earlier = find_earlier(study, stored, settings)
        found = sync.run(forecast(study, stored, list(cases), settings, earlier))
        print_estimate(found, stored, as_json=wanted.as_json)
        return 0
    with open_store(settings.store) as store:
        resumed = None if wanted.resume is None else store.get_run(wanted.resume)
        run = driver.register_run(store, study, stored, cases, launch, resumed)
        return execute(store, run, settings, launch, wanted)


def take_launch(
    wanted: RunOptions, source: str = "", objects: Mapping[str, object] | None = None
) -> Launch:
    """How a run is started with these options.

    Raises:
        InputError: a limit is below 0, or no number.
    """
    return Launch(
        name=wanted.name or "",
        source=source,
        limits=Limits(wanted.max_cost, wanted.max_tokens, wanted.max_calls),
        time_limit=wanted.time_limit,
        objects={} if objects is None else objects,
    )


def execute(
    store: Store, run: RunRecord, settings: Settings, launch: Launch, wanted: RunOptions
) -> int:
    """Do what is missing of a run, show and write what was found, and return the exit code."""
    stored = driver.read_stored(run)
    study = find_study(stored.kind)
    baseline = find_baseline(store, run, wanted.gates, settings)
    calm_collector()
    asked = driver.models_asked(study.asks(driver.read_spec(study, stored)), stored)
    fetch_models(asked, run, settings)
    quiet = wanted.as_json or "-" in (wanted.output or ())
    if not quiet:
        say(_announce(run, stored))
    unscored, rows = Unscored(), dict[str, Row]()
    closed: BrokenPipeError | None = None
    try:
        for record in _draw(study, store, run, settings, launch, quiet=quiet):
            row = study.row(record)
            unscored.add(row)
            if wanted.gates.any:
                rows[row.key] = row
            if wanted.as_json and study.streams and closed is None:
                try:
                    print(write_line(study, record), flush=True)
                except BrokenPipeError as error:  # the files are written all the same
                    closed = error
    except KeyboardInterrupt:
        if not store.count_records(run.id):  # the journal knows how far the first has come
            sync.run(driver.restore_records(store, store.get_run(run.id), settings))
        _hand_over(study, store, run, wanted, UNGATED)
        say(f"\nstopped; every answer so far is kept. {go_on(run)}")
        return INTERRUPTED
    gated = check_run(store, rows.values(), wanted.gates, baseline)
    _hand_over(study, store, run, wanted, gated)
    if closed is not None:
        raise closed
    unscored.tell(run)
    for outcome in gated.outcomes:
        say(str(outcome))
    if gated.outcomes:
        return 0 if gated.holds else GATED
    return PARTLY if unscored else 0


def _announce(run: RunRecord, stored: StoredSpec) -> str:
    why = f" ({stored.why})" if stored.why else ""
    model = f"; {stored.model}{why}" if stored.model else ""
    cases = wording.count(run.n_cases or 0, "case")
    return f"run {run.id}: {stored.kind}, {cases}{model}"


def _draw(
    study: AnyStudy,
    store: Store,
    run: RunRecord,
    settings: Settings,
    launch: Launch,
    *,
    quiet: bool,
) -> Iterator[Any]:
    """The records of a run as they come, while a display shows how far it is."""
    with ExitStack() as stack:
        progress = open_progress(stack, study, run, quiet=quiet)
        work = driver.perform(store, run, settings, launch.heard_by(progress.listener))
        for record in stack.enter_context(closing(sync.iterate(work))):
            progress.count(study.row(record).status)
            yield record


def _hand_over(
    study: AnyStudy, store: Store, run: RunRecord, wanted: RunOptions, gated: Gated
) -> None:
    """Write what was found to files first, since whoever reads what is printed may close the pipe;
    then show it."""
    run = store.get_run(run.id)
    records = driver.read_records(store, run)
    if not store.count_records(run.id):
        return
    outputs = wanted.output or ()
    write_outputs(study, store, run, records, outputs, turns=wanted.turns, gated=gated)
    if wanted.junit is not None:
        write_tests(study, records, wanted.junit, gated)
    if wanted.as_json and not study.streams:
        print_json(make_data(study, run, records, gated))
    elif not wanted.as_json and "-" not in (wanted.output or ()):
        shown = replace(gated, outcomes=())  # they are the last lines that are printed
        print_report(make_report(study, store, run, records, shown), open_console())


class Unscored:
    """How many records failed or were skipped, and why the first that failed have no score."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def add(self, row: Any) -> None:
        if row.status == "scored":
            self._found.pop(row.key, None)
        else:
            self._found[row.key] = row

    def __bool__(self) -> bool:
        return bool(self._found)

    def tell(self, run: RunRecord) -> None:
        failed = [row for row in self._found.values() if row.status == "failed"]
        for row in failed[:REASONS_SHOWN]:
            name = wording.shorten(f"case {row.case}" if row.name == row.case else row.name, 60)
            say(f"{name} lacks a score: {wording.shorten(row.reason, 300)}")
        if len(failed) > REASONS_SHOWN:
            more = len(failed) - REASONS_SHOWN
            say(f"{wording.count(more, 'more case')} {'lacks' if more == 1 else 'lack'} a score")
        skipped = [row for row in self._found.values() if row.status == "skipped"]
        if skipped:
            why = wording.shorten(skipped[0].reason, 300)
            number = wording.count(len(skipped), "record")
            say(f"{number} not finished within the limits ({why}). {go_on(run)}")


def go_on(run: RunRecord) -> str:
    """A sentence with the command that goes on with what was stopped."""
    return f"Go on with: textevolve runs resume {run.id}"
