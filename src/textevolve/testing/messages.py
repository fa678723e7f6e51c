"""Messages of a test session: the failures of an assertion, and at the end of the session its run
and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textevolve.report import wording
from textevolve.runs.stored import StudyRun, read_records
from textevolve.store.repository import open_store
from textevolve.studies.assertions import STUDY, Assertion, AssertionsSpec, describe_counts
from textevolve.testing.session import JudgingSession

SHOWN = 5
"""The number of texts of one assertion that are shown."""

INPUT = 200
OUTPUT = 600
"""The number of shown characters of an input, and of an output."""


def end_session(session: JudgingSession) -> list[str]:
    """Finish the run of a session that has ended in all its processes, unless a limit skipped some
    of its texts, and return the lines to print about it.

    Raises:
        StoreError: the run cannot be read.
    """
    with open_store(session.read_settings().store) as store:
        if not store.count_records(session.run_id).get("skipped"):
            store.finish_run(session.run_id, "finished")
        run = StudyRun(store.get_run(session.run_id))
        totals = store.run_totals(run.id)
        counts = describe_counts(STUDY.summarise(AssertionsSpec(), read_records(store, run)()))

    calls = totals.spent.calls + totals.failed

    return [
        counts,
        f"{wording.count(calls, 'call')} asked, {totals.reused.calls:,} from the journal;"
        f" {wording.count(totals.spent.tokens, 'token')}, {wording.money(totals.spent.cost)}",
        f"run {run.id} (textevolve runs show {run.id})",
    ]


def describe_failures(assertions: Sequence[Assertion], run: str) -> str:
    """Describe the first `SHOWN` texts that are not good enough or have no score. If several texts
    were judged, a first line counts the failures. The last line names the run."""
    wrong = [assertion for assertion in assertions if assertion.passed is not True]
    lines: list[str] = []

    if len(assertions) > 1:
        below = sum(assertion.passed is False for assertion in wrong)
        unjudged = len(wrong) - below
        parts: list[str] = []
        if below:
            parts.append(f"{below} of {len(assertions)} texts are not good enough")
        if unjudged:
            parts.append(f"{unjudged} of {len(assertions)} could not be judged")

        lines.append(", and ".join(parts))

    for assertion in wrong[:SHOWN]:
        lines += _describe_text(assertion)
    if len(wrong) > SHOWN:
        lines.append(f"and {len(wrong) - SHOWN} more")

    return "\n".join([*lines, f"  run:    {run} (textevolve runs show {run})"])


def _describe_text(assertion: Assertion) -> Iterator[str]:
    least = assertion.demand.min_score
    if assertion.score is None:
        yield f"could not be judged: {wording.shorten(assertion.reason, OUTPUT)}"
    elif least is None:
        yield f"score {assertion.score:.3f}, which the judge does not let pass"
    else:
        yield f"score {assertion.score:.3f} is below {least:g}"

    yield f"  input:  {wording.shorten(assertion.case.input, INPUT)}"
    yield f"  output: {wording.shorten(assertion.case.candidates[0], OUTPUT)}"
    for number, line in enumerate(
        assertion.reason.splitlines() if assertion.score is not None else ()
    ):
        yield f"  {'' if number else 'said:':<7} {wording.shorten(line, INPUT)}"

    model = f" ({assertion.demand.model})" if assertion.demand.model else ""
    yield f"  judge:  {assertion.demand.judge}{model}"
