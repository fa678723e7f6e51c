"""A run's work as the command line shows it: progress, results as they come, what is written at the
end, gates and the exit code.

Where the work is done is told by whoever calls: by this machine, or by a server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from textevolve.cli import GATED, INTERRUPTED, PARTLY, say
from textevolve.cli.display import open_progress
from textevolve.cli.drawing import show_report
from textevolve.cli.execution import calm_collector, fetch_models
from textevolve.cli.results import print_json, write_line, write_outputs, write_tests
from textevolve.engine import sync
from textevolve.errors import ClusterError, FatalModelError
from textevolve.report import wording
from textevolve.settings import Settings
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.studies import driver
from textevolve.studies.baseline import check_judges, check_run, find_baseline
from textevolve.studies.gates import UNGATED, Gated
from textevolve.studies.kinds import find_study
from textevolve.studies.reporting import make_data, make_report
from textevolve.studies.stored import StoredSpec, read_records, read_spec, read_stored
from textevolve.studies.study import AnyStudy, Row

if TYPE_CHECKING:
    from textevolve.cli.study import RunOptions

REASONS_SHOWN = 5
"""Of how many records without a score the reason is said."""
DoesRun: TypeAlias = Callable[[Store, RunRecord, Settings, driver.Launch], AsyncGenerator[Any]]
"""Does what is missing of a run, as `driver.perform`."""


def execute(
    store: Store,
    run: RunRecord,
    settings: Settings,
    launch: driver.Launch,
    wanted: RunOptions,
    work: DoesRun = driver.perform,
) -> int:
    """Do what is missing of a run, show and write what was found, and return the exit code."""
    stored = read_stored(run)
    study = find_study(stored.kind)
    baseline = find_baseline(store, run, wanted.gates, settings)
    refused = Gated(wanted.gates, check_judges(store, run, wanted.gates))
    if not refused.holds:
        for outcome in refused.outcomes:
            say(str(outcome))
        return GATED
    calm_collector()
    if store.has_journal:
        asked = driver.models_asked(study.asks(read_spec(study, stored)), stored)
        fetch_models(asked, run, settings)
    quiet = wanted.as_json or "-" in (wanted.output or ())
    if not quiet:
        say(_announce(run, stored))
    unscored, rows = Unscored(), dict[str, Row]()
    try:
        doing = partial(work, store, run, settings)
        for record in _draw(study, run, doing, launch, quiet=quiet):
            row = study.row(record)
            unscored.add(row)
            if wanted.gates.any:
                rows[row.key] = row
            if wanted.as_json and study.streams:
                print(write_line(study, record), flush=True)
    except KeyboardInterrupt:
        if not store.count_records(run.id):  # the journal knows how far the first has come
            sync.run(driver.restore_records(store, store.get_run(run.id), settings))
        _hand_over(study, store, run, wanted, UNGATED)
        say(f"\n{_say_stopped(store, run)}")
        return INTERRUPTED
    except (ClusterError, FatalModelError):
        if store.has_journal:
            say(_say_stopped(store, run))
        raise
    gated = check_run(store, run, rows.values(), wanted.gates, baseline, refused.outcomes)
    _hand_over(study, store, run, wanted, gated)
    unscored.tell(run)
    if not unscored and _was_ended(store, run):
        say(f"run {run.id}: was ended before it was finished. {go_on(run)}")
        return PARTLY
    for outcome in gated.outcomes:
        say(str(outcome))
    if gated.outcomes:
        return 0 if gated.holds else GATED
    return PARTLY if unscored else 0


def _was_ended(store: Store, run: RunRecord) -> bool:
    """Whether somebody ended a run of a server's before it was finished. One that is made here is
    finished by now, whatever a process that has taken it up since then makes of its status."""
    return not store.has_journal and store.get_run(run.id).status in ("interrupted", "failed")


def _announce(run: RunRecord, stored: StoredSpec) -> str:
    why = f" ({stored.why})" if stored.why else ""
    model = f"; {stored.model}{why}" if stored.model else ""
    cases = wording.count(run.n_cases or 0, "case")
    where = f" at {run.source}" if is_elsewhere(run) else ""
    return f"run {run.id}{where}: {stored.kind}, {cases}{model}"


def is_elsewhere(run: RunRecord) -> bool:
    """Whether a run is a server's: its source is that one's address then."""
    return run.source.startswith(("http://", "https://"))


def _say_stopped(store: Store, run: RunRecord) -> str:
    if store.has_journal:
        return f"stopped; every answer so far is kept. {go_on(run)}{say_open_jobs(store, run)}"
    return (
        f"no longer watched; the run goes on at {store.place}. The same command watches it again;"
        f" its page ends it: {store.place}/runs/{run.id}"
    )


def _draw(
    study: AnyStudy,
    run: RunRecord,
    doing: Callable[[driver.Launch], AsyncGenerator[Any]],
    launch: driver.Launch,
    *,
    quiet: bool,
) -> Iterator[Any]:
    """The records of a run as they come, while a display shows how far it is."""
    with ExitStack() as stack:
        progress = open_progress(stack, study, run, quiet=quiet)
        work = doing(launch.heard_by(progress))
        for record in stack.enter_context(closing(sync.iterate(work))):
            progress.count(study.row(record).status)
            yield record


def _hand_over(
    study: AnyStudy, store: Store, run: RunRecord, wanted: RunOptions, gated: Gated
) -> None:
    """Write what was found to files first, since whoever reads what is printed may close the pipe;
    then show it."""
    run = store.get_run(run.id)
    records = read_records(store, run)
    if not store.count_records(run.id):
        return
    write_outputs(study, store, run, records, wanted.output or (), gated=gated)
    if wanted.junit is not None:
        write_tests(study, records, wanted.junit, gated)
    if wanted.as_json and not study.streams:
        print_json(make_data(study, run, records, gated))
    elif not wanted.as_json and "-" not in (wanted.output or ()):
        shown = replace(gated, outcomes=())  # they are the last lines that are printed
        show_report(make_report(study, store, run, records, shown))


def say_open_jobs(store: Store, run: RunRecord) -> str:
    """Describe the jobs that continue at the provider after a run was stopped, if any do."""
    jobs = [job for job in store.batches(run.id).all_open() if job.state != "cancelled"]
    if not jobs:
        return ""
    named = ", ".join(
        f"{job.id or 'just submitted'} ({wording.count(len(job.keys), 'call')})" for job in jobs
    )
    return (
        f" --batch\nat the provider goes on: batch {named}. Its answers are collected when the run"
        f" goes on; end it with: textevolve runs cancel-batch {run.id}"
    )


class Unscored:
    """How many records failed or were skipped, and why the first that failed have no score."""

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

    def tell(self, run: RunRecord) -> None:
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
            why = wording.shorten(skipped[0].reason, 300)
            number = wording.count(len(skipped), "record")
            say(f"{number} not finished within the limits ({why}). {go_on(run)}")


def go_on(run: RunRecord) -> str:
    """A sentence with the command that goes on with what was stopped."""
    if is_elsewhere(run):
        return "Go on with the same command"
    return f"Go on with: textevolve runs resume {run.id}"
