"""The end of a session of tests: its run is finished, its reports are written, its figures said."""

from __future__ import annotations

from collections.abc import Sequence

from textevolve.api.assertions import open_ended
from textevolve.cli.results import write_outputs
from textevolve.report import wording
from textevolve.studies.assertions import STUDY, AssertionsSpec, say_counts
from textevolve.studies.keeping import read_records
from textevolve.testing.session import JudgingSession


def end_session(session: JudgingSession, reports: Sequence[str]) -> list[str]:
    """Lines to be said of the session.

    Raises:
        StoreError: the run cannot be read. InputError: a report cannot be written.
    """
    with open_ended(session.read_settings(), session.run_id) as (store, run):
        records = read_records(store, run)
        found = STUDY.summarise(AssertionsSpec(), records())
        totals = store.run_totals(run.id)
        write_outputs(STUDY, store, run, records, reports)
    asked = totals.spent.calls + totals.failed
    return [
        say_counts(found),
        f"{wording.count(asked, 'call')} asked, {totals.reused.calls:,} from the journal;"
        f" {wording.count(totals.spent.tokens, 'token')}, {wording.money(totals.spent.cost)}",
        f"run {run.id} (textevolve runs show {run.id})",
    ]
