"""The execution of a run on the command line: its progress, its results as they come, output files,
gates and the exit code.

The work is done on this machine, or on a server whose records are followed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from textevolve.cli import GATED, INTERRUPTED, PARTLY, say
from textevolve.cli.late import trackers
from textevolve.cli.results import (
    fetch_weights,
    format_record,
    open_console,
    print_json,
    show_report,
    write_tests,
)
from textevolve.engine import sync
from textevolve.errors import ClusterError, FatalModelError, InputError, TextEvolveError
from textevolve.evaluation import Usage
from textevolve.events import (
    BatchPolled,
    CallFinished,
    CallHeld,
    CallRetried,
    Event,
    RecordsExpected,
    StepFinished,
    StepStarted,
)
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.report.terminal import print_report, safe
from textevolve.runs import driver
from textevolve.runs.gates import UNGATED, Gated, GateWatch
from textevolve.runs.report import PASS_THRESHOLD, judge_anew, make_data, make_report
from textevolve.runs.stored import StudyRun, read_records
from textevolve.runs.stored_runs import write_outputs
from textevolve.runs.study import no_note
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies.judged_report import LiveDebate

if TYPE_CHECKING:
    from textevolve.cli.study import RunOptions


# The display of a run while it is performed, drawn from the run's events.
#
# A terminal shows a status line at the bottom; other outputs get plain lines from time to time,
# without control codes. It either counts records, or prints the steps that the study describes.

Describe: TypeAlias = Callable[[Event], str | Report | None]
"""A function that describes an event: a step that starts as a status, one that has ended as a line,
or either as a report; None if the event is not shown."""
REDRAWN_PER_SECOND = 8
LINE_EVERY = 10.0
WAIT_EVERY = 60.0
"""The seconds between two plain lines of a count, and between two lines about waiting."""


class Progress:
    """A listener and context manager that shows the progress of a run.

    Unless `note` describes steps, the caller counts every record by `count`. `total`: the number of
    cases; None if it is not known. `quiet`: before the end nothing is shown except steps that
    `note` describes by a report.
    """

    def __init__(
        self,
        total: int | None = None,
        note: Describe | None = None,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        every: float = LINE_EVERY,
    ) -> None:
        self.console = console or open_console(stderr=True)
        self.total = total
        self.quiet = quiet
        self.clock = clock
        self.counts = {"scored": 0, "failed": 0, "skipped": 0}
        self._note = note
        self._every = WAIT_EVERY if note else every
        self._began = clock()
        self._printed = -math.inf if note else self._began
        self._usage = Usage()
        self._replayed = 0
        self._retries = 0
        self._judged = 0
        self._step = ""
        self._wait = ""
        self._wait_ends = -math.inf
        self._live: Live | None = None
        self._spinner = Spinner("dots")

    def __enter__(self) -> Self:
        if self.console.is_interactive and not self.quiet:
            self._live = Live(
                get_renderable=self._draw,
                console=self.console,
                transient=True,
                refresh_per_second=REDRAWN_PER_SECOND,
                # Results printed above the line; else into the file or pipe that asked for them.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()

        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._note is None:
            self.console.print(Text(self.line(final=True)), soft_wrap=True)

    def __call__(self, event: Event) -> None:
        match event:
            case CallFinished(replayed=True):
                self._replayed += max(1, event.usage.calls)
            case CallFinished():
                self._usage += event.usage
            case CallRetried() | CallHeld() | BatchPolled():
                self._retries += isinstance(event, CallRetried)
                self._wait = describe_wait(event)
                self._wait_ends = self.clock() + event.wait
            case RecordsExpected():
                self.total = event.number
            case StepStarted() | StepFinished() if self._note is not None:
                self._take_step(self._note(event), started=isinstance(event, StepStarted))
            case _:
                pass

        self._print_line()

    def count(self, status: str) -> None:
        """Count one more record by its status."""
        self.counts[status] = self.counts.get(status, 0) + 1
        # Replayed cases predict nothing about the others.
        self._judged += bool(self._usage.calls or not self._replayed)
        self._print_line()

    def _take_step(self, text: str | Report | None, *, started: bool) -> None:
        if isinstance(text, Report):
            print_report(text, self.console)
        elif started:
            self._step = text or self._step
        elif text and not self.quiet:
            self.console.print(safe(text))

    @property
    def wait(self) -> str:
        """Return the reason why the run is waiting; empty if it is not."""
        return self._wait if self.clock() < self._wait_ends else ""

    def line(self, *, final: bool = False) -> str:
        """Return the progress in one line of plain text."""
        usage = self._usage
        done = sum(self.counts.values())
        parts = [self._step]

        if self._note is None:
            parts = [f"{done:,} done" if self.total is None else f"{done:,} of {self.total:,} done"]
            parts += [
                f"{n:,} {status}" for status, n in self.counts.items() if n and status != "scored"
            ]

        parts += [wording.count(usage.calls, "call"), wording.tokens(usage)]
        parts.append(f"{wording.money(usage.cost)}{wording.saved_by_caching(usage)}")
        parts.append(wording.other_models(usage))
        parts.append(f"{self._replayed:,} replayed" if self._replayed else "")
        parts.append(f"{self._retries:,} retried" if self._retries else "")
        passed = self.clock() - self._began
        if final or self.total is None or not self._judged:
            parts.append(wording.duration(passed))
        else:  # at the current pace
            seconds_left = (self.total - done) * passed / self._judged
            parts.append(f"{wording.duration(seconds_left)} left")

        parts.append("" if final else self.wait)

        return ", ".join(filter(None, parts))

    def _print_line(self) -> None:
        now = self.clock()
        if self._live is not None or self.quiet or now - self._printed < self._every:
            return
        if text := self.line() if self._note is None else self.wait:
            self._printed = now
            self.console.print(safe(text), soft_wrap=True)

    def _draw(self) -> Spinner:
        self._spinner.update(text=safe(self.line(), "dim"))
        return self._spinner


def describe_wait(event: CallRetried | CallHeld | BatchPolled) -> str:
    """Describe why a run is waiting; empty once the answers of a batch job have arrived."""
    match event:
        case CallRetried():
            reason = wording.shorten(event.reason.removeprefix(f"{event.model}: "), 160)
            wait = wording.duration(event.wait)
            return f"{event.model}: {reason}; attempt {event.attempt + 1} in {wait}"
        case CallHeld():
            return f"waiting {wording.duration(event.wait)} for {event.reason}"
        case BatchPolled():
            done = f"{event.done:,} of {event.total:,} done"
            return f"waiting for batch job {event.batch}: {done}" if event.status else ""


def open_progress(run: StudyRun, *, quiet: bool) -> Progress:
    """Return the display of a run. It shows the steps that the study describes, the debate if there
    is a single case, or a count of records. `quiet`: the lines of steps and the debate are not
    shown; a count is."""
    study = run.study
    n_cases = run.record.n_cases
    if study.note is not no_note:
        return Progress(note=study.note, quiet=quiet)
    judges = study.variants(run.spec, "") if run.spec.variants_are_judges else ()
    if study.streams and n_cases == 1 and not judges and not quiet:
        return Progress(note=LiveDebate(), console=open_console())

    return Progress(n_cases and n_cases * max(1, len(judges)))


REASONS_SHOWN = 5
"""The number of records without a score whose reasons are printed."""


def execute(
    store: Store,
    run: StudyRun,
    settings: Settings,
    launch: driver.Launch,
    run_options: RunOptions,
    follow: Callable[[driver.Launch], AsyncGenerator[Any]] | None = None,
) -> int:
    """Perform the missing part of a run, show and write its results, and return the exit code. If a
    gate on the judges already fails, nothing is performed; then, or if a gate is refused, a new run
    is not kept. An interrupted run shows and writes its
    results so far. `follow`: yields the records of a run that another machine performs."""
    try:
        watch = GateWatch(store, run, run_options.gates, settings)
    except InputError:
        _drop_new(store, run)
        raise
    if not watch.judges.holds:
        _drop_new(store, run)
        for outcome in watch.judges.outcomes:
            say(str(outcome))
        return GATED

    study = run.study
    if store.has_journal:
        note_limits(store, run, run_options)
        if run.record.status != "finished":
            fetch_weights(run.models, settings)
    quiet = run_options.as_json or "-" in (run_options.output or ())
    if not quiet:
        say(_announce(run))
    perform = follow or partial(driver.perform, store, run, settings)
    prints_records = run_options.as_json and study.streams

    async def take_records(progress: Progress) -> AsyncGenerator[str]:
        """Count the records where they are made, and yield only lines that are printed, since
        passing one to another thread takes longer than many a score."""
        async with aclosing(perform(replace(launch, listener=progress))) as records:
            async for record in records:
                row = study.row(record)
                progress.count(row.status)
                watch.add(row)
                if prints_records:
                    yield format_record(study, record)

    try:
        with (
            open_progress(run, quiet=quiet) as progress,
            closing(sync.iterate(take_records(progress))) as lines,
        ):
            for line in lines:
                print(line, flush=True)
    except KeyboardInterrupt:
        totals = store.run_totals(run.id)
        answers = totals.spent.calls + totals.reused.calls
        if answers and not store.count_records(run.id):  # the journal has answers of the first case
            run.reload(store)
            sync.run(driver.restore_records(store, run, settings))
        _hand_over(store, run, run_options, UNGATED)
        say("".join(f"\n{line}" for line in run.stored.left_out))
        say(f"\n{_describe_stop(store, run.record)}")
        return INTERRUPTED
    except (ClusterError, FatalModelError):
        if store.has_journal:
            say(_describe_stop(store, run.record))
        raise

    gated = watch.check()
    _hand_over(store, run, run_options, gated)
    if run_options.annotate is not None:
        _annotate(store, run, run_options.annotate, settings)
    report_unscored(watch, run.record)
    for line in run.stored.left_out:
        say(line)
    # A run of this process is finished now; one on a server may have ended before that.
    was_stopped = not store.has_journal and run.record.status in ("interrupted", "failed")
    if watch.is_complete and was_stopped:
        say(f"run {run.id}: was stopped before its end. {resume_hint(run.record)}")
        return PARTLY
    for outcome in gated.outcomes:
        say(str(outcome))
    if gated.outcomes:
        return 0 if gated.holds else GATED

    return 0 if watch.is_complete else PARTLY


def _drop_new(store: Store, run: StudyRun) -> None:
    """Delete a run of which nothing was performed, unless an earlier command began it."""
    if run.is_new:
        store.delete_run(run.id)


LIMIT_OPTIONS = ("max_cost", "max_tokens", "max_calls", "time_limit")
LIMITS = "limits"
"""The field of a stored run with the limits of its latest start."""


def note_limits(store: Store, run: StudyRun, run_options: RunOptions) -> None:
    """Store the limits of this start of a run, and say which limits of the one before do not hold
    now, since they are given for each start."""
    limits: dict[str, float] = {}
    for name in LIMIT_OPTIONS:
        value = getattr(run_options, name)
        if value is not None:
            limits[f"--{name.replace('_', '-')}"] = value

    before: dict[str, float] = run.record.spec.get(LIMITS, {})
    dropped = [f"{name} {before[name]:g}" for name in before if name not in limits]
    if dropped and run.record.status != "finished":
        say(f"without a limit of the start before: {', '.join(dropped)}; give it again if it holds")
    if limits != before:
        store.respecify(run.id, {LIMITS: limits})
        run.reload(store)


def _announce(run: StudyRun) -> str:
    stored = run.stored
    record = run.record
    reason = f" ({stored.why})" if stored.why else ""
    model = f"; {stored.model}{reason}" if stored.model else ""
    cases = wording.count(record.n_cases or 0, "case")
    where = f" at {record.source}" if is_elsewhere(record) else ""
    return f"run {run.id}{where}: {stored.kind}, {cases}{model}"


def is_elsewhere(run: RunRecord) -> bool:
    """Tell whether a run is on a server, in which case its source is the server's address."""
    return run.source.startswith(("http://", "https://"))


def _describe_stop(store: Store, run: RunRecord) -> str:
    if store.has_journal:
        return (
            f"stopped; every answer so far is kept. {resume_hint(run)}"
            f"{describe_open_jobs(store, run)}"
        )

    return (
        f"this command no longer watches the run, which continues at {store.place}. The same"
        f" command watches it again; to cancel the run, open {store.place}/runs/{run.id}"
    )


def _hand_over(store: Store, run: StudyRun, run_options: RunOptions, gated: Gated) -> None:
    """Write the results to files, and then show them; files come first, since the reader of the
    output may close the pipe. Do nothing if the run has no records."""
    run.reload(store)
    study = run.study
    threshold = gated.gates.pass_threshold
    records = read_records(store, run)
    if threshold is not None:
        records = judge_anew(study, records, threshold)
    if not store.count_records(run.id):
        return
    if run.record.spec.get(PASS_THRESHOLD) != threshold:
        store.respecify(run.id, {PASS_THRESHOLD: threshold})
    if run_options.output:
        for line in write_outputs(store, run, records, run_options.output, gated=gated):
            say(line)
    if run_options.junit is not None:
        write_tests(study, records, run_options.junit, gated)
    if run_options.as_json and not study.streams:
        print_json(make_data(run, records, gated))
    elif not run_options.as_json and "-" not in (run_options.output or ()):
        without_outcomes = replace(gated, outcomes=())  # they are the last lines that are printed
        show_report(make_report(store, run, records, without_outcomes))


def _annotate(store: Store, run: StudyRun, target: str, settings: Settings) -> None:
    """Send the scores to their spans; a failure does not change the run."""
    try:
        say(sync.run(trackers.send_scores(store, run, target, settings)))
    except TextEvolveError as error:
        again = f"textevolve runs annotate {run.id} {target}"
        again = "the same command" if is_elsewhere(run.record) else again
        cause = str(error).removesuffix(".")
        say(f"scores are not sent: {cause}. Send them again with: {again}")


def describe_open_jobs(store: Store, run: RunRecord) -> str:
    """Describe the batch jobs that continue at the provider after a run was stopped; empty if there
    are none."""
    jobs = [job for job in store.batches(run.id).all_open() if job.state != "cancelled"]
    if not jobs:
        return ""
    batches = ", ".join(
        f"{job.id or 'just submitted'} ({wording.count(len(job.keys), 'call')})" for job in jobs
    )

    return (
        f" --batch\nstill running at the provider: batch {batches}. Its answers are collected when"
        f" the run is resumed; end it with: textevolve runs cancel-batch {run.id}"
    )


def report_unscored(watch: GateWatch, run: RunRecord) -> None:
    """Print the reasons for the first failed records, and the number of skipped ones."""
    if watch.unjudged and not watch.unscored:
        say(f"warning: nothing was judged: {wording.shorten(watch.unjudged, 300)}")
    if watch.partial_reason:
        say(f"warning: {watch.partial_reason}")

    failed = [row for row in watch.unscored.values() if row.status == "failed"]
    for row in failed[:REASONS_SHOWN]:
        name = f"case {row.case}" if row.name == row.case else row.name
        if row.title:
            name = ", ".join(filter(None, [row.title, row.variant]))
        name = wording.shorten(name, 60)
        say(f"{name} lacks a score: {wording.shorten(row.reason, 300)}")
    if len(failed) > REASONS_SHOWN:
        more = len(failed) - REASONS_SHOWN
        say(f"{wording.count(more, 'more case')} {'lacks' if more == 1 else 'lack'} a score")

    skipped = [row for row in watch.unscored.values() if row.status == "skipped"]
    if skipped:
        reason = wording.shorten(skipped[0].reason, 300)
        number = wording.count(len(skipped), "record")
        say(f"{number} not finished within the limits ({reason}). {resume_hint(run)}")


def resume_hint(run: RunRecord) -> str:
    """Return a sentence with the command that resumes a stopped run."""
    if is_elsewhere(run):
        return "Resume with the same command"
    return f"Resume with: textevolve runs resume {run.id}"
