"""The execution of a run on the command line: its progress, its results as they come, output files,
gates and the exit code.

The work is done on this machine, or on a server whose records are followed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textevolve.cli import GATED, INTERRUPTED, PARTLY, say
from textevolve.cli.display import open_progress
from textevolve.cli.drawing import show_report
from textevolve.cli.execution import calm_collector, fetch_weights
from textevolve.cli.results import print_json, write_line, write_outputs, write_tests
from textevolve.engine import sync
from textevolve.errors import ClusterError, FatalModelError, TextEvolveError
from textevolve.remote.trackers import send_scores
from textevolve.report import wording
from textevolve.runs import driver
from textevolve.runs.gates import UNGATED, Gated, check_judges, check_run, find_baseline
from textevolve.runs.report import make_data, make_report
from textevolve.runs.stored import StoredSpec, read_records, read_spec, read_stored
from textevolve.runs.study import AnyStudy, Row, find_study
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord

if TYPE_CHECKING:
    from textevolve.cli.study import RunOptions

REASONS_SHOWN = 5
"""The number of records without a score whose reasons are printed."""


def execute(
    store: Store,
    run: RunRecord,
    settings: Settings,
    launch: driver.Launch,
    run_options: RunOptions,
    follow: Callable[[driver.Launch], AsyncGenerator[Any]] | None = None,
) -> int:
    """Perform the missing part of a run, show and write its results, and return the exit code. If a
    gate on the judges already fails, nothing is performed. An interrupted run shows and writes its
    results so far. `follow`: yields the records of a run that another machine performs."""
    stored = read_stored(run)
    study = find_study(stored.kind)
    baseline = find_baseline(store, run, run_options.gates, settings)
    refused = Gated(run_options.gates, check_judges(store, run, run_options.gates))
    if not refused.holds:
        for outcome in refused.outcomes:
            say(str(outcome))
        return GATED
    calm_collector()
    if store.has_journal and run.status != "finished":
        fetch_weights(driver.models_asked(study.asks(read_spec(study, stored)), stored), settings)
    quiet = run_options.as_json or "-" in (run_options.output or ())
    if not quiet:
        say(_announce(run, stored))
    unscored, rows = Unscored(), dict[str, Row]()
    perform = follow or partial(driver.perform, store, run, settings)
    try:
        with (
            open_progress(study, run, quiet=quiet) as progress,
            closing(sync.iterate(perform(launch.heard_by(progress)))) as records,
        ):
            for record in records:
                row = study.row(record)
                progress.count(row.status)
                unscored.add(row)
                if run_options.gates.any:
                    rows[row.key] = row
                if run_options.as_json and study.streams:
                    print(write_line(study, record), flush=True)
    except KeyboardInterrupt:
        totals = store.run_totals(run.id)
        answers = totals.spent.calls + totals.reused.calls
        if answers and not store.count_records(run.id):  # the journal has answers of the first case
            sync.run(driver.restore_records(store, store.get_run(run.id), settings))
        _hand_over(study, store, run, run_options, UNGATED)
        say(f"\n{_describe_stop(store, run)}")
        return INTERRUPTED
    except (ClusterError, FatalModelError):
        if store.has_journal:
            say(_describe_stop(store, run))
        raise
    gated = check_run(store, run, rows.values(), run_options.gates, baseline, refused.outcomes)
    _hand_over(study, store, run, run_options, gated)
    if run_options.annotate is not None:
        _annotate(store, run, run_options.annotate, settings)
    unscored.report(run)
    # A run of this process is finished now; one on a server may have ended before that.
    ended = not store.has_journal and store.get_run(run.id).status in ("interrupted", "failed")
    if not unscored and ended:
        say(f"run {run.id}: was stopped before its end. {resume_hint(run)}")
        return PARTLY
    for outcome in gated.outcomes:
        say(str(outcome))
    if gated.outcomes:
        return 0 if gated.holds else GATED
    return PARTLY if unscored else 0


def _announce(run: RunRecord, stored: StoredSpec) -> str:
    reason = f" ({stored.why})" if stored.why else ""
    model = f"; {stored.model}{reason}" if stored.model else ""
    cases = wording.count(run.n_cases or 0, "case")
    where = f" at {run.source}" if is_elsewhere(run) else ""
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


def _hand_over(
    study: AnyStudy, store: Store, run: RunRecord, run_options: RunOptions, gated: Gated
) -> None:
    """Write the results to files, and then show them; files come first, since the reader of the
    output may close the pipe. Do nothing if the run has no records."""
    run = store.get_run(run.id)
    records = read_records(store, run)
    if not store.count_records(run.id):
        return
    write_outputs(study, store, run, records, run_options.output or (), gated=gated)
    if run_options.junit is not None:
        write_tests(study, records, run_options.junit, gated)
    if run_options.as_json and not study.streams:
        print_json(make_data(study, run, records, gated))
    elif not run_options.as_json and "-" not in (run_options.output or ()):
        without_outcomes = replace(gated, outcomes=())  # they are the last lines that are printed
        show_report(make_report(study, store, run, records, without_outcomes))


def _annotate(store: Store, run: RunRecord, target: str, settings: Settings) -> None:
    """Send the scores to their spans; a failure does not change the run."""
    try:
        say(sync.run(send_scores(store, run, target, settings)))
    except TextEvolveError as error:
        again = f"textevolve runs annotate {run.id} {target}"
        again = "the same command" if is_elsewhere(run) else again
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


class Unscored:
    """The records without a score of a run, which failed or were skipped."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}
        self._reason: str | None = ""

    def add(self, row: Any) -> None:
        if row.score is not None:
            self._reason = None
        elif self._reason == "":
            self._reason = row.reason
        if row.status == "scored":
            self._found.pop(row.key, None)
        else:
            self._found[row.key] = row

    def __bool__(self) -> bool:
        return bool(self._found or self._reason)

    def report(self, run: RunRecord) -> None:
        """Print the reasons for the first failed records, and the number of skipped ones."""
        if self._reason and not self._found:
            say(f"warning: nothing was judged: {wording.shorten(self._reason, 300)}")
        failed = [row for row in self._found.values() if row.status == "failed"]
        for row in failed[:REASONS_SHOWN]:
            name = wording.shorten(f"case {row.case}" if row.name == row.case else row.name, 60)
            say(f"{name} lacks a score: {wording.shorten(row.reason, 300)}")
        if len(failed) > REASONS_SHOWN:
            more = len(failed) - REASONS_SHOWN
            say(f"{wording.count(more, 'more case')} {'lacks' if more == 1 else 'lack'} a score")
        skipped = [row for row in self._found.values() if row.status == "skipped"]
        if skipped:
            reason = wording.shorten(skipped[0].reason, 300)
            number = wording.count(len(skipped), "record")
            say(f"{number} not finished within the limits ({reason}). {resume_hint(run)}")


def resume_hint(run: RunRecord) -> str:
    """Return a sentence with the command that resumes a stopped run."""
    if is_elsewhere(run):
        return "Resume with the same command"
    return f"Resume with: textevolve runs resume {run.id}"
