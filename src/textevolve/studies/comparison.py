"""The comparison of two runs of the same kind over the same cases, by the scores of their
records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from textevolve.bench.variants import describe_differences
from textevolve.errors import InputError
from textevolve.report import wording
from textevolve.report.blocks import Column, Estimate, Report, Table
from textevolve.statistics.comparisons import PairedDifference, compare_pairs
from textevolve.studies.aggregates import aggregate
from textevolve.studies.baseline import require_same_cases
from textevolve.studies.results import read_columns
from textevolve.studies.study import Row

if TYPE_CHECKING:
    from textevolve.store.repository import Store
    from textevolve.store.runs import RunRecord


MOST_SHOWN = 20
"""The number of cases with the largest differences that the report shows."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The difference between two runs.

    Attributes:
        scores: For each variant, the second run's scores compared with the first run's, over the
            cases that both scored. Mind the order: `PairedDifference.first` is the second run. The
            variant is named "" if each run has only one.
        cases: The two scores of each case by variant, the first run's first.
        left_out: The number of scores that only one of the runs has.
    """

    scores: Mapping[str, PairedDifference]
    cases: Mapping[str, Mapping[str, tuple[float, float]]]
    left_out: int

    @property
    def data(self) -> dict[str, Any]:
        """The comparison as JSON-ready data, in which `first` and `second` are the first and second
        run."""
        scores = {
            variant: {
                **asdict(paired),
                "first": paired.second,
                "second": paired.first,
                "difference": paired.difference,
            }
            for variant, paired in self.scores.items()
        }
        if list(scores) == [""]:
            return {"scores": scores[""], "cases": self.cases[""], "left_out": self.left_out}
        return {"variants": scores, "cases": self.cases, "left_out": self.left_out}


def compare_runs(before_rows: Iterable[Row], after_rows: Iterable[Row]) -> RunComparison:
    """Compare the variants of the same name in two runs, or the only variant of each. If a run has
    several records of a case and variant, their mean is compared.

    Raises:
        InputError: the runs share no case of a variant that both scored.
    """
    runs = [
        {v: means for v, figures in aggregate(rows).items() if (means := figures.case_means())}
        for rows in (before_rows, after_rows)
    ]
    several = any(len(variants) > 1 for variants in runs)
    before, after = (
        {
            (variant if several else "", case): mean
            for variant, means in variants.items()
            for case, mean in means.items()
        }
        for variants in runs
    )
    shared = dict[str, dict[str, tuple[float, float]]]()
    for (variant, case), mean in before.items():
        if (variant, case) in after:
            shared.setdefault(variant, {})[case] = mean, after[variant, case]
    if not shared:
        missing = "no case of a variant of one name" if several else "no case"
        raise InputError(f"the runs cannot be compared: they share {missing} with a score")
    sides = [tuple(zip(*cases.values(), strict=True)) for cases in shared.values()]
    pairs = [(after_scores, before_scores) for before_scores, after_scores in sides]
    scores = dict(zip(shared, compare_pairs(pairs), strict=True))
    return RunComparison(scores, shared, len(before.keys() ^ after.keys()))


def report_comparison(comparison: RunComparison, names: tuple[str, str]) -> Report:
    """Return the report of a comparison; `names` are those of the first and the second run."""
    first_name, second_name = names
    columns = (
        "",
        Column("cases", "count"),
        Column(first_name, "number", 3),
        Column(second_name, "number", 3),
        Column("difference", "number", 3),
        Column("p (Holm)" if len(comparison.scores) > 1 else "p", "p_value"),
    )
    rows = [
        (
            variant or "mean score",
            paired.items,
            paired.second,
            paired.first,
            Estimate(paired.difference, paired.low, paired.high),
            paired.p,
        )
        for variant, paired in comparison.scores.items()
    ]
    differing = [
        (f"{case}, {variant}" if variant else case, before, after, after - before)
        for variant, cases in comparison.cases.items()
        for case, (before, after) in cases.items()
        if before != after
    ]
    most = sorted(differing, key=lambda row: -abs(row[3]))[:MOST_SHOWN]
    tables = [Table("Both runs", columns, rows, note=_note(comparison))]
    if most:
        heads = ("case", *(Column(n, "number", 3) for n in (*names, "difference")))
        tables.append(Table("Cases that differ most", heads, most))
    sides = {
        f"{variant} in {second_name}" if variant else second_name: variant
        for variant in comparison.scores
    }
    sentence = describe_differences(
        {name: comparison.scores[side] for name, side in sides.items()}, first_name
    )
    return Report(f"{second_name} compared with {first_name}", sentence, tables)


def _note(comparison: RunComparison) -> str:
    omitted = wording.count(comparison.left_out, "case")
    skipped = f" {omitted} with a score in one run alone left out." if comparison.left_out else ""
    return f"By sign flips over cases, with 95 % intervals.{skipped}"


@dataclass(frozen=True, slots=True)
class StoredComparison:
    """The comparison of two stored runs, with its report."""

    comparison: RunComparison
    report: Report


def compare_stored(store: Store, run: RunRecord, other: RunRecord) -> StoredComparison:
    """Compare two stored runs.

    Raises:
        InputError: a case has different inputs in the two runs, or they share no case with a score.
    """
    require_same_cases(store, run, other)
    comparison = compare_runs(read_columns(store, run.id), read_columns(store, other.id))
    names = run.name or run.id, other.name or other.id
    return StoredComparison(comparison, report_comparison(comparison, names))
