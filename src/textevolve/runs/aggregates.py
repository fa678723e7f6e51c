"""Conversion of statistics to cells of a report; a missing figure is None."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from textevolve.bench.variants import compare_variants, describe_differences
from textevolve.evaluation import Figure, empty_default, reaches
from textevolve.json_texts import as_array, is_object
from textevolve.loading import NDArray, np
from textevolve.report import wording
from textevolve.report.blocks import Block, Cell, Column, Estimate, Plot, Table
from textevolve.runs.study import RecordStatus, Row
from textevolve.statistics.comparisons import PairedDifference
from textevolve.statistics.intervals import UNIT, Interval, Statistic, cluster_mean, cluster_share
from textevolve.store.records import StoredRecord


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def estimate(figure: Statistic) -> Estimate:
    """Return a statistic as a report cell with its interval."""
    return with_ends(figure.value, figure.interval)


def with_ends(value: float, interval: Interval) -> Estimate:
    return Estimate(finite(value), finite(interval.low), finite(interval.high))


# Aggregates of the rows of a run: mean, pass rate and intervals; and all figures in its data.
#
# The computation is the same for every kind of study; the study defines the meaning of a score.
# Rows are added one by one, and only their numbers are held in memory.

NAME_SHOWN = 60
MISSING: tuple[RecordStatus, ...] = ("failed", "skipped")
"""The statuses of records without a score."""


@dataclass
class Aggregates:
    """The figures of all rows of a run, or of one variant's rows.

    A row counts as scored, failed or skipped; a scored row without a finite score is ignored.
    `threshold`: the score in [0, 1] from which a row passes; if it is None, the row's own verdict
    counts. `counts`: the number of rows by status. `trials`: of rows that many trials make up, how
    many have no score, and how many there are. A figure that cannot be computed is NaN or None.
    """

    threshold: float | None = None
    counts: dict[str, int] = field(default_factory=lambda: {"scored": 0, "failed": 0, "skipped": 0})
    trials: tuple[int, int] = (0, 0)
    _scores: array[float] = field(default_factory=lambda: array("d"))
    _passed: array[float] = field(default_factory=lambda: array("d"))
    _of_case: array[int] = field(default_factory=lambda: array("q"))
    _cases: dict[str, int] = empty_default(dict)
    _clusters: dict[str, int] = empty_default(dict)
    _cluster_of: array[int] = field(default_factory=lambda: array("q"))
    _unscored: set[str] = empty_default(set)

    def add(self, row: Row | StoredRecord) -> None:
        if row.status != "scored":
            self.counts[row.status] += 1
            self._unscored.add(row.case)
        elif row.score is not None and math.isfinite(row.score):
            self.add_score(row.case, row.cluster, row.score, row.passed)
            self.trials = (self.trials[0] + row.trials[0], self.trials[1] + row.trials[1])

    def add_score(self, case: str, cluster: str, score: float | None, passed: bool | None) -> None:
        """Count a score of a case, and its verdict; one that is missing or not finite is
        ignored."""
        if score is None or not math.isfinite(score):
            return
        self.counts["scored"] += 1
        if self.threshold is not None:
            passed = reaches(score, self.threshold)
        self._scores.append(score)
        self._passed.append(math.nan if passed is None else passed)
        # A row without a case is a case of its own.
        case = case or f"\0{len(self._scores)}"
        number = self._cases.setdefault(case, len(self._cases))
        if number == len(self._cluster_of):
            self._cluster_of.append(self._clusters.setdefault(cluster or case, len(self._clusters)))
        self._of_case.append(number)

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
    def verdicts(self) -> int:
        """The number of scored records that passed or did not pass; records without a verdict are
        not counted."""
        return int((~np.isnan(np.array(self._passed))).sum())

    @property
    def clusters(self) -> int:
        """The number of clusters of scored records: those of one case, one group or one chat, and
        those of equal rows, depend on each other."""
        return len(self._clusters)

    @property
    def clustered(self) -> bool:
        """True if a cluster has several scored records, so that intervals must count it as one."""
        return self.clusters < self.scored

    @property
    def grouping(self) -> str:
        """Return how many groups of dependent cases there are, for a sentence about the cases;
        empty if all cases are independent."""
        if self.clusters == len(self._cases):
            return ""
        return f" in {wording.count(self.clusters, 'independent group')}"

    @property
    def mean(self) -> Estimate:
        """The mean score of the scored records, with its 95 % interval over cases."""
        scores = np.array(self._scores)
        if not scores.size:
            return Estimate(None)
        statistic = cluster_mean(scores, self._list_clusters())
        if scores.min() >= 0 and scores.max() <= 1:
            statistic = Statistic(statistic.value, statistic.interval.clipped(*UNIT))
        return estimate(statistic)

    @property
    def pass_rate(self) -> Estimate:
        """The share that passed of the scored records with a verdict, with its 95 % interval."""
        passed = np.array(self._passed)
        if not self.verdicts:
            return Estimate(None)
        judged = ~np.isnan(passed)
        return estimate(cluster_share(passed[judged], self._list_clusters()[judged]))

    def cluster_of(self) -> dict[str, str]:
        """Return the name of each case's cluster; cases of one cluster depend on each other."""
        names = list(self._clusters)
        return dict(zip(self._cases, map(names.__getitem__, self._cluster_of), strict=True))

    def case_means(self) -> dict[str, float]:
        """Return the mean score of each case that has an id."""
        return self._average(self._scores)

    def case_passes(self) -> dict[str, float]:
        """Return the share of passed records for each case with an id; NaN if one of its scored
        records has no verdict."""
        return self._average(self._passed)

    def count_scores(self) -> list[int]:
        """Count the scores in `BINS` equal parts of 0 to 1."""
        return np.histogram(self._scores, BINS, UNIT)[0].tolist()

    def count_missing(self, rows: Aggregates) -> int:
        """Count the cases that have a score in `rows` and no record in these figures."""
        cases = {case for case in rows._cases if not case.startswith("\0")}
        return len(cases - self._cases.keys() - self._unscored)

    def _list_clusters(self) -> NDArray[np.intp]:
        """Return the number of each score's cluster."""
        return np.array(self._cluster_of, np.intp)[np.array(self._of_case)]

    def _average(self, values: array[float]) -> dict[str, float]:
        places = np.array(self._of_case, np.intp)
        means = np.bincount(places, values) / np.bincount(places)
        averages = zip(self._cases, means.tolist(), strict=True)
        return {case: mean for case, mean in averages if not case.startswith("\0")}


def aggregate(
    rows: Iterable[Row | StoredRecord], threshold: float | None = None
) -> dict[str, Aggregates]:
    """Aggregate rows by variant, in the order in which the variants first appear."""
    by_variant = defaultdict[str, Aggregates](lambda: Aggregates(threshold))
    for row in rows:
        by_variant[row.variant].add(row)
    return {variant: figures for variant, figures in by_variant.items() if figures.records}


def join_clusters(figures: Iterable[Aggregates]) -> dict[str, str]:
    """Return the cluster of each case of several variants or runs. A run of an earlier version
    knows the clusters of cases alone."""
    joined: dict[str, str] = {}
    for part in figures:
        for case, cluster in part.cluster_of().items():
            if cluster != case or case not in joined:
                joined[case] = cluster

    return joined


def compare_figures(
    figures: Mapping[str, Aggregates], baseline: str, seed: int
) -> dict[str, PairedDifference]:
    """Compare the scores of each variant with those of the baseline."""
    means = {name: variant.case_means() for name, variant in figures.items()}
    return compare_variants(means, baseline, join_clusters(figures.values()), seed=seed)


def describe_mean(mean: Estimate) -> str:
    """Describe a mean score with its interval, if it has one; empty without a mean."""
    if mean.value is None:
        return ""
    ends = "" if mean.low is None else f" (95 % {mean.low:.3f} to {mean.high or 0:.3f})"
    return f"mean score {mean.value:.3f}{ends}"


def describe_scores(figures: Aggregates, noun: str) -> str:
    """Describe the result of records without variants in a sentence: pass rate and mean score, both
    with their intervals, and the number of records without a score. `noun`: the word for a record,
    such as "case"."""
    rate = figures.pass_rate
    mean = describe_mean(figures.mean)
    parts: list[str] = []

    if rate.value is not None:
        passed = round(rate.value * figures.verdicts)
        of = wording.count(figures.verdicts, noun) + figures.grouping
        ends = ""
        if rate.low is not None:
            ends = f", 95 % {100 * rate.low:.1f} to {100 * (rate.high or 0):.1f}"
        parts.append(f"{passed:,} of {of} passed ({wording.percent(rate.value, 1)}{ends})")
    elif mean:
        parts.append(wording.count(figures.scored, noun) + figures.grouping)

    parts += [mean] if mean else []
    counts = figures.counts
    missing = [f"{counts[status]:,} {status}" for status in MISSING if counts[status]]
    parts += [f"{' and '.join(missing)} without a score"] if missing else []
    sentence = "; ".join(parts)

    return f"{sentence}." if sentence else f"There are no {noun}s."


def describe_variants(
    figures: Mapping[str, Aggregates], differences: Mapping[str, PairedDifference], baseline: str
) -> str:
    """Describe the result in a sentence: which variant is best and by how much, or the pass rate of
    the only one."""
    if len(figures) < 2:
        name, single = next(iter(figures.items()), ("", Aggregates()))
        sentence = describe_scores(single, "output" if name else "case")
        return f"{name}: {sentence}" if name else sentence

    missing = sum(variant.unscored for variant in figures.values())
    omission = f" {wording.count(missing, 'output')} without a score left out." if missing else ""

    return describe_differences(differences, baseline) + omission


def describe_judges(figures: Mapping[str, Aggregates]) -> str:
    """Describe the scores by each of several judges, none of which is better for a higher one;
    empty without any."""
    return " ".join(f"{judge}: {describe_scores(of, 'case')}" for judge, of in figures.items())


def draw_aggregates(
    by_variant: Mapping[str, Aggregates],
    threshold: float | None = None,
    *,
    are_judges: bool = False,
) -> list[Block]:
    """Return a table with a row for each variant; no table for a single record. `threshold`: the
    score in [0, 1] from which a record passes, if that is known. `are_judges`: whether the variants
    are judges, none of which is best."""
    all_figures = list(by_variant.values())
    if sum(figures.records for figures in all_figures) < 2:
        return []

    several = len(all_figures) > 1
    noun = "judge" if are_judges else "variant"
    least = all_figures[0].threshold
    if least is None:
        least = threshold
    # A column of zeros would only take the place of others.
    states: list[RecordStatus] = [
        status for status in MISSING if any(figures.counts[status] for figures in all_figures)
    ]
    judged = any(figures.verdicts for figures in all_figures)

    columns: list[str | Column] = [noun if several else ""]
    if judged:
        passes = "passed" if least is None else f"passed (score ≥ {least:g})"
        columns.append(Column(passes, "percent", 1))
    columns.append(Column("mean score", "number", 3))
    columns += [Column(name, "count") for name in ("scored", *states)]

    means = [figures.mean for figures in all_figures]
    rows: list[list[Cell]] = []
    for (variant, figures), mean in zip(by_variant.items(), means, strict=True):
        name = wording.shorten_models(variant) if several else "all records"
        row: list[Cell] = [wording.shorten(name, NAME_SHOWN)]
        if judged:
            row.append(figures.pass_rate)
        row += [mean, figures.scored]
        row += [figures.counts[status] for status in states]
        rows.append(row)

    # Equal means have no best one, and of two judges the milder one is not the better one.
    best: frozenset[int] = frozenset()
    values = [mean.value or 0.0 for mean in means]
    highest = max(values)
    if not are_judges and highest > min(values):
        best = frozenset(n for n, value in enumerate(values) if value == highest)

    note = "Only scored records count; intervals are of 95 %."
    dependent = [figures for figures in all_figures if figures.clustered]
    if dependent:
        count = max(figures.clusters for figures in dependent)
        note = (
            "Only scored records count; intervals are of 95 %, over"
            f" {wording.count(count, 'independent group')} of records: those of one case, group or"
            " chat, and equal rows, count as one."
        )
    if any(mean.value is not None and mean.low is None for mean in means):
        note += " A mean of equal scores, or of too few independent records, has no interval."
    if judged and least is None:
        note += " The judge's own verdict decides whether a record passed."
    title = f"{noun.capitalize()}s" if several else "Result"

    return [Table(title, columns, rows, best, note, star="Highest mean score")]


BINS = 10
"""The number of bars of a histogram of scores, and the least number of scores that it is of."""


def draw_histogram(by_variant: Mapping[str, Aggregates]) -> list[Block]:
    """Return a histogram of the scores of each variant; none of few scores, of scores that are all
    0 or 1, which the pass rate tells, or beyond the axis from 0 to 1."""
    scored = sum(figures.scored for figures in by_variant.values())
    if scored < BINS:
        return []
    lines = {wording.shorten_models(name): of.count_scores() for name, of in by_variant.items()}
    between = any(any(counts[1:-1]) for counts in lines.values())
    if not between or sum(map(sum, lines.values())) < scored:
        return []
    places = [f"{n / BINS:g} to {(n + 1) / BINS:g}" for n in range(BINS)]
    top = max(map(max, lines.values()))

    return [Plot("Scores", "score", places, lines, Column("", "count"), top, bars=True)]


VALUES = ("value", "rate", "difference")
SIZES = ("of", "covered", "scored", "items", "count")
LABELS = ("variant", "name", "family")
"""Names in the data of runs: of a value that may have an interval; of the number of records or
items behind it; of the first field of a list's members if they have figures."""
_NUMBERS = (int, float)
OMITTED = ("parameters", "judge")  # parts of the data that are inputs
PLAIN = ("low", "high", "of", "seed")  # numbers that are no figures by themselves


def aggregates_data(by_variant: Mapping[str, Aggregates]) -> dict[str, Any]:
    """Return the figures as data: those of records without a variant at the top level, those of
    each variant by its name under `variants`."""
    sums = {
        variant: {
            **figures.counts,
            "mean": {**asdict(figures.mean), "of": figures.scored},
            "pass_rate": {**asdict(figures.pass_rate), "of": figures.verdicts},
        }
        for variant, figures in by_variant.items()
    }

    return {**sums.pop("", {}), "variants": sums}


def collect_figures(
    data: Any, path: str = "", size: int | None = None
) -> Iterator[tuple[str, Figure]]:
    """Yield the figures in the plain data of a run by their paths, such as `usage.cost`, with their
    intervals. The parts `parameters` and `judge` at the top are inputs, and are left out, as are
    lists whose members do not begin with a label (`variant`, `name` or `family`), since those hold
    rows. `size`: the number of items in the data that contains `data`."""
    if type(data) in _NUMBERS and path.rpartition(".")[2] not in PLAIN:
        yield path, Figure(data)
    parts = _name_parts(data)
    sizes = [int(parts[name]) for name in SIZES if type(parts.get(name)) in _NUMBERS]
    ends = _name_parts(parts.get("interval") or parts)
    values = (name for name in VALUES if type(parts.get(name, "")) not in (str, dict))
    value = next(values, None) if "low" in ends else None  # variants may have these names
    if value:
        yield path, Figure(parts[value], ends["low"], ends["high"], [*sizes, size][0])
    for name, part in parts.items():
        if f"{name}_interval" in parts:
            part = {"value": part, "interval": parts[f"{name}_interval"]}
        if name != value and (path or name not in OMITTED):
            yield from collect_figures(part, f"{path}.{name}" if path else name, [*sizes, None][0])


def _name_parts(data: Any) -> Mapping[str, Any]:
    """Return the parts of a mapping by their names, and those of a list by their labels, or as the
    ends of an interval; other data has no parts."""
    if is_object(data):
        return data
    members = as_array(data)
    rows = map(_name_parts, members)
    labelled = {row[name]: row for row in rows for name in [*row][:1] if name in LABELS}
    numbers = (member for member in members if type(member) in _NUMBERS)

    return labelled or dict(zip(("low", "high"), numbers, strict=False))
