"""Reports of a session of tests: its failed assertions, and at its end its run and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textevolve.api.assertions import open_ended
from textevolve.cli.results import write_outputs
from textevolve.report import wording
from textevolve.studies.assertions import STUDY, Assertion, AssertionsSpec, say_counts
from textevolve.studies.stored import read_records
from textevolve.testing.session import JudgingSession

SHOWN = 5
"""How many texts of one assertion are shown."""

INPUT, OUTPUT = 200, 600
"""Characters of each that are shown."""


def end_session(session: JudgingSession, reports: Sequence[str]) -> list[str]:
    """Write the reports; gives the lines that are printed about the session.

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


def describe(made: Sequence[Assertion], run: str) -> str:
    """Each text that is not good enough, or has no score; the first line says the most."""
    wrong = [one for one in made if one.passed is not True]
    lines: list[str] = []
    if len(made) > 1:
        below = sum(one.passed is False for one in wrong)
        parts = [f"{below} of {len(made)} texts are not good enough"] if below else []
        if unjudged := [one for one in wrong if one.passed is None]:
            reason = wording.shorten(unjudged[0].reason, OUTPUT)
            parts.append(f"{len(unjudged)} of {len(made)} could not be judged: {reason}")
        lines.append(", and ".join(parts))
    for one in wrong[:SHOWN]:
        lines += _describe_text(one)
    if len(wrong) > SHOWN:
        lines.append(f"and {len(wrong) - SHOWN} more")
    return "\n".join([*lines, f"  run:    {run} (textevolve runs show {run})"])


def _describe_text(one: Assertion) -> Iterator[str]:
    least = one.demand.min_score
    if one.score is None:
        yield f"could not be judged: {wording.shorten(one.reason, OUTPUT)}"
    elif least is None:
        yield f"score {one.score:.3f}, which the judge does not let pass"
    else:
        yield f"score {one.score:.3f} is below {least:g}"
    yield f"  input:  {wording.shorten(one.case.input, INPUT)}"
    yield f"  output: {wording.shorten(one.case.candidates[0], OUTPUT)}"
    if one.score is not None:
        for number, line in enumerate(one.reason.splitlines()):
            yield f"  {'' if number else 'said:':<7} {wording.shorten(line, INPUT)}"
    model = f" ({one.demand.model})" if one.demand.model else ""
    yield f"  judge:  {one.demand.judge}{model}"
