"""What a session of tests reports: its failed assertions, and at its end its run and figures."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from textevolve.api.assertions import open_ended
from textevolve.cli.results import write_outputs
from textevolve.report import wording
from textevolve.studies.assertions import STUDY, Assertion, AssertionsSpec, say_counts
from textevolve.studies.stored import read_records
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


SHOWN = 5
"""How many texts of one assertion are shown."""

INPUT, OUTPUT = 200, 600
"""Characters of each that are shown."""

LEAST_ROOM = 60
"""Characters of a line, however narrow the terminal is."""


def say_failures(made: Sequence[Assertion], run: str) -> str:
    """Why an assertion fails: each text that is not good enough, or has no score."""
    wrong = [one for one in made if one.passed is not True]
    if len(made) == 1:
        (one,) = made
        return "\n".join([_say_score(one), *_say_texts(one), *_say_run(run)])
    below = sum(one.passed is False for one in wrong)
    first = f"{below} of {len(made)} texts are not good enough"
    if below < len(wrong):
        first += f", and {len(wrong) - below} could not be judged"
    return "\n".join([first, *_say_all(wrong), *_say_run(run)])


def say_unjudged(made: Sequence[Assertion], run: str) -> str:
    """Why there is no score; the first line says it alone."""
    wrong = [one for one in made if one.passed is None]
    if len(made) == 1:
        (one,) = made
        return "\n".join([_say_score(one), *_say_texts(one), *_say_run(run)])
    first = f"{len(wrong)} of {len(made)} texts could not be judged: {_reason(wrong[0])}"
    return "\n".join([first, *_say_all(wrong), *_say_run(run)])


def _say_all(wrong: Sequence[Assertion]) -> Iterator[str]:
    for one in wrong[:SHOWN]:
        yield _say_score(one)
        yield from _say_texts(one)
    if len(wrong) > SHOWN:
        yield f"and {len(wrong) - SHOWN} more"


def _say_score(one: Assertion) -> str:
    if one.score is None:
        return f"could not be judged: {_reason(one)}"
    least = one.demand.min_score
    if least is None:
        return f"score {one.score:.3f}, which the judge does not let pass"
    return f"score {one.score:.3f} is below {least:g}"


def _reason(one: Assertion) -> str:
    return wording.shorten(one.reason, 600)


def _say_texts(one: Assertion) -> Iterator[str]:
    yield from _wrap("input:", wording.shorten(one.case.input, INPUT))
    yield from _wrap("output:", wording.shorten(one.case.candidates[0], OUTPUT))
    if one.score is not None:
        for number, line in enumerate(one.reason.splitlines()):
            yield from _wrap("" if number else "said:", wording.shorten(line, INPUT))
    asked = f" ({one.demand.model})" if one.demand.model else ""
    yield f"  judge:  {one.demand.judge}{asked}"


def _wrap(label: str, text: str) -> list[str]:
    """The text beside its label, in lines that a terminal has room for beside pytest's own mark."""
    first = f"  {label:<7} "
    room = max(LEAST_ROOM, shutil.get_terminal_size().columns - len("E       "))
    found = textwrap.wrap(
        text, room, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )
    return found or [first]


def _say_run(run: str) -> Iterator[str]:
    if run:
        yield f"  run:    {run} (textevolve runs show {run})"
