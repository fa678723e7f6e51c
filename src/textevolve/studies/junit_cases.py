"""The records of a run, and its gates, as test cases for build servers."""

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
GATES = "gates"


def junit_suites(
    study: AnyStudy, records: Callable[[], Iterable[Any]], gated: Gated
) -> list[JUnitSuite]:
    """A suite of the records that have a score or lack one, and one of the gates."""
    suites = [JUnitSuite(study.kind, lambda: _record_cases(study, records(), gated))]
    if gated.outcomes:
        suites.append(JUnitSuite(GATES, lambda: _gate_cases(gated)))
    return suites


def _record_cases(study: AnyStudy, records: Iterable[Any], gated: Gated) -> Iterator[JUnitCase]:
    seen = Counter[tuple[str, str]]()
    for record in records:
        row = study.row(record)
        if row.status == "scored" and row.score is None:
            continue  # nothing of it was to be scored
        named = (row.variant or study.kind, row.case or row.name)
        seen[named] += 1
        classname, name = named
        name += f" #{seen[named]}" if seen[named] > 1 else ""
        yield _case(row, name, classname, gated, lambda record=record: study.flat(record))


def _case(
    row: Row,
    name: str,
    classname: str,
    gated: Gated,
    flat: Callable[[], Iterable[Mapping[str, Any]]],
) -> JUnitCase:
    if row.status != "scored" or row.score is None:
        allowed = row.status == "skipped" or _is_allowed(row, gated, "max failed")
        outcome = "skipped" if allowed else "error"
        return JUnitCase(name, classname, outcome, _shorten(row.reason or row.status))
    least = gated.gates.pass_threshold
    passed = row.passed if least is None else row.score >= least
    if passed is None or passed:
        return JUnitCase(name, classname)
    below = "not passed" if least is None else f"below {least:g}"
    why = f": {row.reason}" if row.reason else ""
    said = _shorten(f"score {row.score:.3f}, {below}{why}")
    if _is_allowed(row, gated):
        return JUnitCase(name, classname, "skipped", f"{said} (the gates hold)")
    return JUnitCase(name, classname, "failure", said, _tell(flat()))


def _is_allowed(row: Row, gated: Gated, gate: str = "") -> bool:
    """Whether the gates hold all the same, so that a build server must not fail the build: those
    of the row's variant, or the one that is named. A baseline has none."""
    others = (one for one in gated.outcomes if one.variant == row.variant)
    own = [one for one in others if (one.gate == "max failed") == (gate == "max failed")]
    return bool(gated.outcomes) and all(one.holds for one in own)


def _tell(rows: Iterable[Mapping[str, Any]]) -> str:
    """What is known of a record: its rows, a line for each thing."""
    told = (
        "\n".join(f"{name}: {value}" for name, value in row.items() if value not in (None, ""))
        for row in rows
    )
    return wording.clip("\n\n".join(told), TEXT_SHOWN)


def _gate_cases(gated: Gated) -> Iterator[JUnitCase]:
    for one in gated.outcomes:
        name = f"{one.gate}, {one.variant}" if one.variant else one.gate
        if one.holds:
            yield JUnitCase(name, GATES)
        else:
            yield JUnitCase(name, GATES, "failure", str(one))


def _shorten(text: str) -> str:
    return wording.shorten(text, MESSAGE_SHOWN)
