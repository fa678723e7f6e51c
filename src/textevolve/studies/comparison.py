"""Comparing two runs over the same cases, whatever their kinds: by the scores of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Report, Table
from textevolve.statistics.comparisons import PairedDifference, compare_paired
from textevolve.studies.study import Row

ALPHA = 0.05
MOST_SHOWN = 20
"""Of how many cases the difference is shown: those that differ most."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """`scores`: of the second run (`first` in it) beside the first run, over the cases that both
    scored. `cases`: each case's two scores, the first run's first. `left_out`: cases that only one
    of the runs scored."""

    scores: PairedDifference
    cases: Mapping[str, tuple[float, float]]
    left_out: int


def compare_runs(first: Iterable[Row], second: Iterable[Row], seed: int = 0) -> RunComparison:
    """Where a case has several records in a run, their mean counts.

    Raises:
        InputError: the runs share no case that both scored.
    """
    ours, theirs = _scores(first), _scores(second)
    shared = {case: (ours[case], theirs[case]) for case in ours if case in theirs}
    if not shared:
        raise InputError("the runs share no case with a score, so there is nothing to compare")
    before, after = zip(*shared.values(), strict=True)
    left_out = len(set(ours) ^ set(theirs))
    return RunComparison(compare_paired(after, before, seed=seed), shared, left_out)


def _scores(rows: Iterable[Row]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None and row.case:
            found.setdefault(row.case, []).append(row.score)
    return {case: fmean(scores) for case, scores in found.items()}


def report_comparison(found: RunComparison, names: tuple[str, str]) -> Report:
    """What a person is shown of it; `names`: of the runs."""
    first, second = names
    columns = (
        Column(""),
        Column("cases", "count"),
        Column(first, "number", 3),
        Column(second, "number", 3),
        Column("difference", "number", 3),
        Column("p", "p_value"),
    )
    one = found.scores
    estimate = Estimate(one.difference, one.low, one.high)
    row = ("mean score", one.items, one.second, one.first, estimate, one.p)
    by_size = sorted(found.cases.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    most = [
        (case, before, after, after - before)
        for case, (before, after) in by_size[:MOST_SHOWN]
        if before != after
    ]
    tables = [Table("Both runs", columns, [row], note=_note(found))]
    if most:
        differing = (Column("case"), *(Column(n, "number", 3) for n in (*names, "difference")))
        tables.append(Table("Cases that differ most", differing, most))
    return Report(f"{first} beside {second}", _sentence(found, names), tables)


def _note(found: RunComparison) -> str:
    left = wording.count(found.left_out, "case")
    skipped = f" {left} with a score in one run alone left out." if found.left_out else ""
    return f"A paired bootstrap over cases (95 %), and a sign-flip test.{skipped}"


def _sentence(found: RunComparison, names: tuple[str, str]) -> str:
    one = found.scores
    size = f"{abs(one.difference):.3f}"
    if one.p > ALPHA:
        number = wording.count(one.items, "case")
        return f"On {number} the runs cannot be told apart (difference {size}, p {one.p:.3f})."
    better, worse = names[::-1] if one.difference > 0 else names
    ends = (
        "" if one.low is None or one.high is None else f"95 % {one.low:+.3f} to {one.high:+.3f}, "
    )
    return f"{better} scores {size} higher than {worse} ({ends}p {one.p:.3f})."
