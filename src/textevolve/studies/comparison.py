"""Compare two runs over the same cases by the scores of their records, whatever their kinds, and
add what their kind reports about both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from textevolve.bench.variants import say_differences
from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Report, Table
from textevolve.statistics.comparisons import PairedDifference, compare_pairs
from textevolve.studies.aggregates import aggregate
from textevolve.studies.baseline import refuse_other_cases
from textevolve.studies.results import read_columns
from textevolve.studies.study import Row

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord


MOST_SHOWN = 20
"""Of how many cases the difference is shown: those that differ most."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """`scores`: of the second run (`first` in it) beside the first run, over the cases that both
    scored, for each variant; its name is empty where each run has one alone. `cases`: each case's
    two scores by variant, the first run's first. `left_out`: scores that only one of the runs has.
    """

    scores: Mapping[str, PairedDifference]
    cases: Mapping[str, Mapping[str, tuple[float, float]]]
    left_out: int

    @property
    def data(self) -> dict[str, Any]:
        """JSON-ready, with `first` and `second` as the runs were named."""
        scores = {
            variant: {
                **asdict(one),
                "first": one.second,
                "second": one.first,
                "difference": one.difference,
            }
            for variant, one in self.scores.items()
        }
        if list(scores) == [""]:
            return {"scores": scores[""], "cases": self.cases[""], "left_out": self.left_out}
        return {"variants": scores, "cases": self.cases, "left_out": self.left_out}


def compare_runs(first: Iterable[Row], second: Iterable[Row], seed: int = 0) -> RunComparison:
    """Variants by their names, or where each run has one alone, these two. Where a case has several
    records of a variant in a run, their mean counts.

    Raises:
        InputError: the runs share no case of a variant that both scored.
    """
    before, after = (_average(rows) for rows in (first, second))
    if len(before) == len(after) == 1:
        before, after = {"": next(iter(before.values()))}, {"": next(iter(after.values()))}
    shared = dict[str, dict[str, tuple[float, float]]]()
    for variant in before:
        ours, theirs = before[variant], after.get(variant, {})
        if cases := {case: (ours[case], theirs[case]) for case in ours if case in theirs}:
            shared[variant] = cases
    if not shared:
        several = len(before) > 1 or len(after) > 1
        what = "no case of a variant of one name" if several else "no case"
        raise InputError(f"the runs share {what} with a score, so there is nothing to compare")
    sides = [tuple(zip(*cases.values(), strict=True)) for cases in shared.values()]
    pairs = [(after_scores, before_scores) for before_scores, after_scores in sides]
    scores = dict(zip(shared, compare_pairs(pairs, seed=seed), strict=True))
    keys = [{(v, case) for v, cases in side.items() for case in cases} for side in (before, after)]
    return RunComparison(scores, shared, len(keys[0] ^ keys[1]))


def _average(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    return {v: means for v, one in aggregate(rows).items() if (means := one.case_means())}


def report_comparison(found: RunComparison, names: tuple[str, str]) -> Report:
    """What a person is shown of it; `names`: of the runs."""
    first, second = names
    columns = (
        Column(""),
        Column("cases", "count"),
        Column(first, "number", 3),
        Column(second, "number", 3),
        Column("difference", "number", 3),
        Column("p (Holm)" if len(found.scores) > 1 else "p", "p_value"),
    )
    rows = [
        (
            variant or "mean score",
            one.items,
            one.second,
            one.first,
            Estimate(one.difference, one.low, one.high),
            one.p,
        )
        for variant, one in found.scores.items()
    ]
    differing = [
        (f"{case}, {variant}" if variant else case, before, after, after - before)
        for variant, cases in found.cases.items()
        for case, (before, after) in cases.items()
        if before != after
    ]
    most = sorted(differing, key=lambda row: -abs(row[3]))[:MOST_SHOWN]
    tables = [Table("Both runs", columns, rows, note=_note(found))]
    if most:
        heads = (Column("case"), *(Column(n, "number", 3) for n in (*names, "difference")))
        tables.append(Table("Cases that differ most", heads, most))
    sides = {f"{variant} in {second}" if variant else second: variant for variant in found.scores}
    said = say_differences({name: found.scores[side] for name, side in sides.items()}, first)
    return Report(f"{second} compared with {first}", said, tables)


def _note(found: RunComparison) -> str:
    left = wording.count(found.left_out, "case")
    skipped = f" {left} with a score in one run alone left out." if found.left_out else ""
    return f"By sign flips over cases, with 95 % intervals.{skipped}"


@dataclass(frozen=True, slots=True)
class StoredComparison:
    found: RunComparison
    report: Report


def compare_stored(store: Store, one: RunRecord, other: RunRecord) -> StoredComparison:
    """
    Raises:
        InputError: they are not of the same cases, or share none with a score.
    """
    refuse_other_cases(store, one, other)
    found = compare_runs(read_columns(store, one.id), read_columns(store, other.id))
    names = one.name or one.id, other.name or other.id
    return StoredComparison(found, report_comparison(found, names))
