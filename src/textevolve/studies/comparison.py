"""Comparing two runs over the same cases, whatever their kinds: by the scores of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Report, Table
from textevolve.statistics.comparisons import difference_interval, sign_flip_test
from textevolve.studies.study import Row

ALPHA = 0.05
MOST_SHOWN = 20
"""Of how many cases the difference is shown: those that differ most."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """`first` and `second`: the mean scores over the cases that both runs scored. `difference`: of
    the second run from the first, with its 95 % bootstrap interval; `p`: of a sign-flip test.

    `cases`: each case's two scores. `left_out`: cases that only one of the runs scored.
    """

    first: float
    second: float
    difference: Estimate
    p: float
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
    interval = difference_interval(after, before, seed=seed)
    return RunComparison(
        first=fmean(before),
        second=fmean(after),
        difference=Estimate(fmean(after) - fmean(before), interval.low, interval.high),
        p=sign_flip_test(after, before, seed=seed).p,
        cases=shared,
        left_out=len(set(ours) ^ set(theirs)),
    )


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
    number = len(found.cases)
    row = ("mean score", number, found.first, found.second, found.difference, found.p)
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
    estimate = found.difference
    size = f"{abs(estimate.value or 0):.3f}"
    if found.p > ALPHA:
        number = wording.count(len(found.cases), "case")
        return f"On {number} the runs cannot be told apart (difference {size}, p {found.p:.3f})."
    better, worse = names[::-1] if (estimate.value or 0) > 0 else names
    ends = f"{estimate.low:+.3f} to {estimate.high:+.3f}"
    return f"{better} scores {size} higher than {worse} (95 % {ends}, p {found.p:.3f})."
