"""The records and gates of a run as test cases in the JUnit format, for build servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from textevolve.report import wording
from textevolve.report.junit import JUnitCase, JUnitSuite
from textevolve.studies.gates import Gated
from textevolve.studies.study import AnyStudy, Row

TEXT_SHOWN = 10_000
MESSAGE_SHOWN = 500
GATES = "gates"  # the name of the suite of gates


def junit_suites(
    study: AnyStudy, records: Callable[[], Iterable[Any]], gated: Gated
) -> list[JUnitSuite]:
    """Return two JUnit suites: one of the records, in which a missing score is an error or a
    skipped test, and one of the gates, if there are any."""
    suites = [JUnitSuite(study.kind, lambda: _record_cases(study, records(), gated))]
    if gated.outcomes:
        suites.append(JUnitSuite(GATES, lambda: _gate_cases(gated)))
    return suites


def _record_cases(study: AnyStudy, records: Iterable[Any], gated: Gated) -> Iterator[JUnitCase]:
    seen = Counter[tuple[str, str]]()
    for record in records:
        row = study.row(record)
        if row.status == "scored" and row.score is None:
            continue  # the record was not to be scored
        key = (row.variant or study.kind, row.case or row.name)
        seen[key] += 1
        classname, name = key
        name += f" #{seen[key]}" if seen[key] > 1 else ""
        yield _case(row, name, classname, gated, lambda record=record: study.flat(record))


def _case(
    row: Row,
    name: str,
    classname: str,
    gated: Gated,
    flat: Callable[[], Iterable[Mapping[str, Any]]],
) -> JUnitCase:
    if row.status != "scored" or row.score is None:
        allowed = row.status == "skipped" or _is_allowed(row, gated, has_score=False)
        outcome = "skipped" if allowed else "error"
        return JUnitCase(name, classname, outcome, _shorten(row.reason or row.status))
    least = gated.gates.pass_threshold
    passed = row.passed if least is None else row.score >= least
    if passed is None or passed:
        return JUnitCase(name, classname)
    below = "not passed" if least is None else f"below {least:g}"
    reason = f": {row.reason}" if row.reason else ""
    message = _shorten(f"score {row.score:.3f}, {below}{reason}")
    if _is_allowed(row, gated, has_score=True):
        return JUnitCase(name, classname, "skipped", f"{message} (the gates hold)")
    return JUnitCase(name, classname, "failure", message, _format_rows(flat()))


def _is_allowed(row: Row, gated: Gated, *, has_score: bool) -> bool:
    """Tell whether a failing record is reported as skipped, since the gates of its variant hold, so
    that it does not fail the build; never in a run without gates. For a record without a score the
    gate "max failed" counts alone, otherwise all other gates. A variant that is the baseline has no
    gates, so its records are skipped."""
    relevant = (
        outcome.holds
        for outcome in gated.outcomes
        if outcome.variant == row.variant and (outcome.gate != "max failed") == has_score
    )
    return bool(gated.outcomes) and all(relevant)


def _format_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Format the rows of a record, with a line for each field."""
    parts = (
        "\n".join(f"{name}: {value}" for name, value in row.items() if value not in (None, ""))
        for row in rows
    )
    return wording.clip("\n\n".join(parts), TEXT_SHOWN)


def _gate_cases(gated: Gated) -> Iterator[JUnitCase]:
    for outcome in gated.outcomes:
        name = f"{outcome.gate}, {outcome.variant}" if outcome.variant else outcome.gate
        if outcome.holds:
            yield JUnitCase(name, GATES)
        else:
            yield JUnitCase(name, GATES, "failure", str(outcome))


def _shorten(text: str) -> str:
    return wording.shorten(text, MESSAGE_SHOWN)
