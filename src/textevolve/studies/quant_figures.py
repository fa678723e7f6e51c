"""Figures of quantised models compared with their original.

Pure arithmetic on measurements: everything is paired, by the part of the text, the row or the
repeat. How models are measured, and how figures are shown, is in `compare_quants.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import (
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Literal

import numpy as np

from textevolve.bench.credit import top_credit, winner_of
from textevolve.evaluation import Failure
from textevolve.statistics.clusters import cluster_mean, cluster_share
from textevolve.statistics.comparisons import compare_paired
from textevolve.statistics.intervals import (
    Interval,
    Statistic,
    bootstrap_interval,
    mean_interval,
    ratio,
)
from textevolve.statistics.resampling import Array

Measure = Literal["file", "reading", "writing", "perplexity", "judgement"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One thing that was measured of one model. `case`: the repeat, the part of the text, the row.

    Of a file `bytes`, `sha256` and the `machine`. Of speeds `tokens` in `seconds`. Of a part of the
    text the nats that its `tokens` surprise by, and what the model held likeliest in the place of
    each (`choices`), as far as the endpoint reports it. Of a judgement the log-odds of each
    candidate, and people's labels (`human`), if there are any.
    """

    position: int
    model: str
    measure: Measure
    case: str
    bytes: int | None = None
    sha256: str = ""
    machine: str = ""
    tokens: int = 0
    seconds: float | None = None
    surprise: float | None = None
    choices: tuple[str, ...] = ()
    odds: tuple[float, ...] = ()
    human: tuple[float, ...] = ()
    failure: Failure | None = None

    @property
    def labelled(self) -> bool:
        """Whether people preferred one of several candidates."""
        return len(self.human) > 1


@dataclass(frozen=True, slots=True)
class QuantSummary:
    """The figures of one model, with 95 % intervals; those beside the original are NaN of itself.

    `perplexity`: for each token; `times`: it divided by the original's; `same_token`: how often it
    holds the same token likeliest. `moved`: the mean distance of its log-odds to the original's;
    `same_verdict`: the same winner, or the same side of even odds where a row has one candidate.
    `right`: as people said; `right_more`: the difference to the original.
    `reading` and `writing`: tokens a second; the `..._times`: divided by the original's.
    """

    model: str
    bytes: int | None
    sha256: str
    perplexity: Statistic
    times: Statistic
    same_token: Statistic
    moved: Statistic
    same_verdict: Statistic
    right: Statistic
    right_more: Statistic
    reading: Statistic
    writing: Statistic
    reading_times: Statistic
    writing_times: Statistic


@dataclass(frozen=True, slots=True)
class QuantComparison:
    """All models, the original first. `parts`, `tokens`, `rows` and `repeats`: how many were
    measured of the original; `failed`: how many measurements are missing, `reasons` why, the most
    common first."""

    models: tuple[QuantSummary, ...]
    parts: int
    tokens: int
    rows: int
    repeats: int
    machine: str
    failed: int
    reasons: tuple[str, ...]


_Found = dict[str, Measurement]
"""Measurements of one kind, by their cases."""


def summarise_quants(
    models: Sequence[str], records: Iterable[Measurement], *, seed: int = 0
) -> QuantComparison:
    """`models`: the original first."""
    found: dict[tuple[str, str], _Found] = {}
    failures = Counter[str]()
    for one in records:
        if one.failure is not None:
            failures[one.failure.reason] += 1
            continue
        found.setdefault((one.model, one.measure), {})[one.case] = one
    first = models[0]
    read = found.get((first, "perplexity"), {})
    machines = [one.machine for one in found.get((first, "file"), {}).values()]
    return QuantComparison(
        models=tuple(_summarise(model, first, found, seed) for model in models),
        parts=len(read),
        tokens=sum(one.tokens for one in read.values()),
        rows=len(found.get((first, "judgement"), {})),
        repeats=len(found.get((first, "writing"), {})),
        machine="".join(machines[:1]),
        failed=failures.total(),
        reasons=tuple(reason for reason, _ in failures.most_common(5)),
    )


def _summarise(
    model: str, original: str, found: Mapping[tuple[str, str], _Found], seed: int
) -> QuantSummary:
    def of(measure: Measure) -> tuple[_Found, list[tuple[Measurement, Measurement]]]:
        own, first = found.get((model, measure), {}), found.get((original, measure), {})
        pairs = [] if model == original else [(own[c], first[c]) for c in own if c in first]
        return own, pairs

    file = next(iter(of("file")[0].values()), None)
    parts, part_pairs = of("perplexity")
    rows, row_pairs = of("judgement")
    reading, reading_pairs = of("reading")
    writing, writing_pairs = of("writing")
    credits = {case: top_credit(one.odds, one.human) for case, one in rows.items() if one.labelled}
    both = [(a, b) for a, b in row_pairs if a.labelled]
    return QuantSummary(
        model=model,
        bytes=file.bytes if file else None,
        sha256=file.sha256 if file else "",
        perplexity=_perplexity([(p.surprise or 0.0, p.tokens) for p in parts.values()], seed),
        times=_perplexity(
            [((a.surprise or 0.0) - (b.surprise or 0.0), a.tokens) for a, b in part_pairs], seed
        ),
        same_token=_share_same(part_pairs, seed),
        moved=_mean([_distance(a, b) for a, b in row_pairs], seed),
        same_verdict=cluster_share([_verdict(a) == _verdict(b) for a, b in row_pairs]),
        right=cluster_share(list(credits.values())),
        right_more=_compare_credits(both, seed),
        reading=_speed(reading),
        writing=_speed(writing),
        reading_times=_speed_times(reading_pairs),
        writing_times=_speed_times(writing_pairs),
    )


def _compare_credits(pairs: Sequence[tuple[Measurement, Measurement]], seed: int) -> Statistic:
    if not pairs:
        return Statistic()
    sides = [[top_credit(one.odds, one.human) for one in side] for side in zip(*pairs, strict=True)]
    more = compare_paired(*sides, seed=seed)
    low, high = (math.nan if end is None else end for end in (more.low, more.high))
    return Statistic(more.difference, Interval(low, high))


def _mean(values: Sequence[float], seed: int) -> Statistic:
    if not values:
        return Statistic()
    return Statistic(float(np.mean(values)), mean_interval(values, seed=seed))


def _of_sums(
    rows: Sequence[Sequence[float]], figure: Callable[[Array], Array], seed: int
) -> Statistic:
    """A figure of sums over what was drawn, with its bootstrap interval; `rows`: what each adds."""
    if not rows:
        return Statistic()
    features = np.asarray(rows, dtype=np.float64)
    value = float(figure(features.sum(axis=0)))
    return Statistic(value, bootstrap_interval(features, figure, seed=seed))


def _perplexity(rows: Sequence[tuple[float, int]], seed: int) -> Statistic:
    """exp(nats / tokens); of differences of nats it is the ratio of two perplexities."""
    return _of_sums(rows, lambda sums: np.exp(ratio(sums[..., 0], sums[..., 1])), seed)


def _share_same(pairs: Sequence[tuple[Measurement, Measurement]], seed: int) -> Statistic:
    rows = [
        (sum(x == y for x, y in zip(a.choices, b.choices, strict=True)), len(b.choices))
        for a, b in pairs
        if len(a.choices) == len(b.choices) > 0
    ]
    return _of_sums(rows, lambda sums: ratio(sums[..., 0], sums[..., 1]), seed)


def _distance(one: Measurement, other: Measurement) -> float:
    gaps = [abs(a - b) for a, b in zip(one.odds, other.odds, strict=True)]
    return sum(gaps) / len(gaps)


def _verdict(one: Measurement) -> int:
    """Which candidate wins; of a single one whether it passes."""
    first, *others = one.odds
    return winner_of(one.odds) if others else int(first >= 0)


def _rate(one: Measurement) -> float:
    return one.tokens / one.seconds if one.seconds and one.tokens else math.nan


def _speed(found: _Found) -> Statistic:
    return _geometric([math.log(_rate(one)) for one in found.values()])


def _speed_times(pairs: Sequence[tuple[Measurement, Measurement]]) -> Statistic:
    return _geometric([math.log(_rate(a)) - math.log(_rate(b)) for a, b in pairs])


def _geometric(logarithms: Sequence[float]) -> Statistic:
    """The geometric mean, with Student's interval of the logarithms; NaN counts as missing."""
    found = cluster_mean(logarithms)
    ends = found.interval
    grown = Interval(math.exp(ends.low), math.exp(ends.high), ends.reason)
    return Statistic(math.exp(found.value), grown)
