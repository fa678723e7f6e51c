"""What the rows of a run come to: mean, pass rate, intervals, coverage and the lowest scores.

The same for every kind; what a score means is said by the study whose rows they are. Rows are added
one by one, and of each only figures are kept.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Estimate, Table
from textevolve.statistics.clusters import clip_interval, cluster_mean, cluster_share
from textevolve.studies.cells import estimate
from textevolve.studies.study import RecordStatus, Row

WORST = 5
NAME_SHOWN = 60

T = TypeVar("T", bound=tuple[Any, ...])


def keep_greatest(heap: list[T], item: T, most: int) -> None:
    """Take an item into a heap of the greatest so far, of which there are so many at most; items
    differ in what they are ordered by."""
    if len(heap) < most:
        heapq.heappush(heap, item)
    else:
        heapq.heappushpop(heap, item)


@dataclass
class Aggregates:
    """What is known of all rows together, or of those of one variant.

    A row counts that is failed, skipped or has a score. `threshold`: from which score one passes,
    whatever the verdict in its row. A figure that there is not is None.
    """

    threshold: float | None = None
    counts: dict[RecordStatus, int] = field(
        default_factory=lambda: {"scored": 0, "failed": 0, "skipped": 0}
    )
    _scores: array[float] = field(default_factory=lambda: array("d"))
    _passed: array[float] = field(default_factory=lambda: array("d"))
    _groups: array[int] = field(default_factory=lambda: array("q"))
    _cases: dict[str, int] = field(default_factory=dict[str, int])
    _unscored: set[str] = field(default_factory=set[str])
    _worst: list[tuple[float, int, str]] = field(default_factory=list[tuple[float, int, str]])

    def add(self, row: Row) -> None:
        if row.status != "scored":
            self.counts[row.status] += 1
            self._unscored.add(row.case)
        elif row.score is not None and math.isfinite(row.score):
            self.counts["scored"] += 1
            passed = row.passed if self.threshold is None else row.score >= self.threshold
            self._scores.append(row.score)
            self._passed.append(math.nan if passed is None else float(passed))
            # A row without a case is a case of its own.
            case = row.case or f"\0{len(self._scores)}"
            self._groups.append(self._cases.setdefault(case, len(self._cases)))
            name = row.name if row.case else str(row.position + 1)
            keep_greatest(self._worst, (-row.score, -len(self._scores), name), WORST)

    @property
    def records(self) -> int:
        return sum(self.counts.values())

    @property
    def scored(self) -> int:
        return self.counts["scored"]

    @property
    def unscored(self) -> int:
        return self.records - self.scored

    @property
    def coverage(self) -> float | None:
        """The share of the records that have a score."""
        return self.scored / self.records if self.records else None

    @property
    def verdicts(self) -> int:
        """How many scored records passed, or did not; of the others nobody has said."""
        return int((~np.isnan(self._array(self._passed))).sum())

    @property
    def clustered(self) -> bool:
        """Whether a case has several scored records."""
        return len(self._cases) < self.scored

    @property
    def mean(self) -> Estimate:
        """The mean score of the scored records, with its 95 % interval over cases."""
        scores = self._array(self._scores)
        if not scores.size:
            return Estimate(None)
        found = cluster_mean(scores, self._clusters)
        unit = scores.min() >= 0 and scores.max() <= 1
        return estimate(clip_interval(found) if unit else found)

    @property
    def pass_rate(self) -> Estimate:
        """The share that passed of the scored records with a verdict, with its 95 % interval."""
        passed = self._array(self._passed)
        if not self.verdicts:
            return Estimate(None)
        known = ~np.isnan(passed)
        cases = np.asarray(self._groups)[known]
        return estimate(cluster_share(passed[known], list(cases)))

    @property
    def worst(self) -> list[tuple[str, float]]:
        """The names of the records with the lowest scores, with these; the lowest first."""
        return [(name, -score) for score, _, name in sorted(self._worst, reverse=True)]

    def case_means(self) -> dict[str, float]:
        """The mean score of each case that has an id."""
        return self._average(self._scores)

    def case_passes(self) -> dict[str, float]:
        """The share of the records of each case with an id that passed; NaN where nobody says."""
        return self._average(self._passed)

    def count_missing(self, rows: Aggregates) -> int:
        """How many cases have a score among those rows, and no record here."""
        named = {case for case in rows._cases if not case.startswith("\0")}
        return len(named - self._cases.keys() - self._unscored)

    def _average(self, values: array[float]) -> dict[str, float]:
        sums, counts = [0.0] * len(self._cases), [0] * len(self._cases)
        for number, value in zip(self._groups, values, strict=True):
            sums[number] += value
            counts[number] += 1
        cases = self._cases.items()
        return {case: sums[n] / counts[n] for case, n in cases if not case.startswith("\0")}

    @property
    def _clusters(self) -> Sequence[int] | None:
        return self._groups if self.clustered else None

    @staticmethod
    def _array(values: array[float]) -> NDArray[np.float64]:
        return np.frombuffer(values) if values else np.empty(0)


def aggregate(rows: Iterable[Row], threshold: float | None = None) -> dict[str, Aggregates]:
    """What the rows of each variant come to, in the order in which they come up."""
    found: dict[str, Aggregates] = {}
    for row in rows:
        found.setdefault(row.variant, Aggregates(threshold)).add(row)
    return {variant: one for variant, one in found.items() if one.records}


def say_mean(mean: Estimate) -> str:
    """In words, with its interval where it has one; empty where there is no mean."""
    if mean.value is None:
        return ""
    ends = "" if mean.low is None else f" (95 % {mean.low:.3f} to {mean.high or 0:.3f})"
    return f"mean score {mean.value:.3f}{ends}"


def say_scores(one: Aggregates, noun: str) -> str:
    """The result of records without variants in a sentence: how many passed, the mean score, both
    with their intervals, and how many lack a score."""
    rate, mean, parts = one.pass_rate, say_mean(one.mean), list[str]()
    if rate.value is not None:
        passed, of = round(rate.value * one.verdicts), wording.count(one.verdicts, noun)
        ends = "" if rate.low is None else f", 95 % {percents(rate.low, rate.high)}"
        parts.append(f"{passed:,} of {of} passed ({wording.percent(rate.value, 1)}{ends})")
    elif mean:
        parts.append(wording.count(one.scored, noun))
    parts += [mean] if mean else []
    counts: list[RecordStatus] = ["failed", "skipped"]
    left = [f"{one.counts[status]:,} {status}" for status in counts if one.counts[status]]
    parts += [f"{' and '.join(left)} without a score"] if left else []
    said = "; ".join(parts)
    return f"{said}." if said else f"There are no {noun}s."


def percents(low: float, high: float | None) -> str:
    return f"{100 * low:.1f} to {100 * (high or 0):.1f}"


def draw_aggregates(found: Mapping[str, Aggregates], threshold: float | None = None) -> list[Block]:
    """What a person is shown of them; nothing where there is one record alone. `threshold`: from
    which score a record passes, if that is known."""
    if sum(one.records for one in found.values()) < 2:
        return []
    several = len(found) > 1
    states: list[RecordStatus] = ["failed", "skipped"]
    states = [status for status in states if any(one.counts[status] for one in found.values())]
    judged = any(one.verdicts for one in found.values())
    least = next((one.threshold for one in found.values()), None)
    least = threshold if least is None else least
    passes = "passed" if least is None else f"passed (score ≥ {least:g})"
    columns = [Column("variant" if several else "")]
    columns += [Column(passes, "percent", 1)] if judged else []
    columns += [Column("mean score", "number", 3), Column("scored", "count")]
    columns += [Column(name, "count") for name in states]
    rows: list[list[Cell]] = []
    for variant, one in found.items():
        name = wording.shorten_models(variant) if several else "all records"
        row: list[Cell] = [wording.shorten(name, NAME_SHOWN), *([one.pass_rate] if judged else [])]
        rows.append([*row, one.mean, one.scored, *(one.counts[s] for s in states)])
    means = [one.mean.value or 0.0 for one in found.values()]
    best = {n for n, mean in enumerate(means) if mean == max(means)}
    best = best if len(best) < len(means) else set[int]()
    drawn = ", clustered by case" if any(one.clustered for one in found.values()) else ""
    verdict = " Each record passed or not by its judge's own verdict." * (judged and least is None)
    note = f"Only scored records count; intervals are of 95 %{drawn}.{verdict}"
    title, star = "Variants" if several else "Result", "Highest mean score"
    table = Table(title, columns, rows, frozenset(best), note, star=star)
    return [table]


def aggregates_data(found: Mapping[str, Aggregates]) -> list[dict[str, Any]]:
    """The same for programs, as JSON-ready data: one for each variant."""
    return [
        {
            "variant": variant,
            "records": one.records,
            **one.counts,
            "coverage": one.coverage,
            "mean": one.mean,
            "pass_rate": one.pass_rate,
            "worst": [{"record": name, "score": score} for name, score in one.worst],
        }
        for variant, one in found.items()
    ]
