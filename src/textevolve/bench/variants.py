"""Variants on the same rows: means, pass rates, paired differences, and what to say of them.

A variant is what is compared: a prompt with a model, or outputs that were there before. What it
gave, and who scored that, is the business of `studies.compare`. A row is what is independent:
several outputs of a variant for one row stand in one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from textevolve.statistics.clusters import clip_interval, cluster_mean, cluster_share
from textevolve.statistics.comparisons import ALPHA, PairedDifference, compare_pairs
from textevolve.statistics.intervals import Statistic

LEVEL = 0.95

RowScores: TypeAlias = Mapping[str, Sequence[float]]
"""The scores of a variant's outputs, by row; rows without a score are left out."""


def mean_score(scores: RowScores) -> Statistic:
    """The mean over all outputs, with its interval clustered by row."""
    rows = [row for row, given in scores.items() for _ in given]
    given = [score for own in scores.values() for score in own]
    return clip_interval(cluster_mean(given, rows, level=LEVEL))


def pass_rate(passes: Mapping[str, Sequence[bool]]) -> Statistic:
    """The share of outputs that passed, with its interval clustered by row."""
    rows = [row for row, given in passes.items() for _ in given]
    values = [float(one) for given in passes.values() for one in given]
    return cluster_share(values, rows, level=LEVEL)


def compare_variants(
    scores: Mapping[str, RowScores], baseline: str, *, seed: int = 0
) -> dict[str, PairedDifference]:
    """Each variant less the baseline on the rows that both have scores of, a row's mean each, by
    sign flips: p values are corrected for the number of variants (Holm 1979), and intervals are
    widened as much."""
    base, pairs = scores.get(baseline, {}), dict[str, tuple[list[float], list[float]]]()
    for variant, own in scores.items():
        shared = [row for row in own if row in base]
        if variant != baseline and shared:
            pairs[variant] = (
                [fmean(own[row]) for row in shared],
                [fmean(base[row]) for row in shared],
            )
    return dict(zip(pairs, compare_pairs(list(pairs.values()), seed=seed), strict=True))


def say_differences(differences: Mapping[str, PairedDifference], baseline: str) -> str:
    """What is known about each variant beside the baseline, in plain words."""
    said = [_say(variant, one, baseline) for variant, one in differences.items()]
    return "; ".join(said) + "." if said else f"There is nothing to compare with {baseline}."


def _say(variant: str, one: PairedDifference, baseline: str) -> str:
    if one.p <= ALPHA and one.difference:
        better, worse = (variant, baseline) if one.difference > 0 else (baseline, variant)
        ends = sorted(100 * end for end in (one.low, one.high) if end is not None)
        ends = ends if one.difference > 0 else [-end for end in reversed(ends)]
        interval = f" ({ends[0]:.1f} to {ends[1]:.1f})" if ends else ""
        return f"{better} beats {worse} by {abs(one.difference) * 100:.1f} points{interval}"
    more = max(0, one.needed - one.items) if one.needed else 0
    hint = f": about {more:,} rows more would tell" if more else ""
    rows = f"{one.items:,} row{'' if one.items == 1 else 's'}"
    return f"{variant} cannot be told from {baseline} on {rows}{hint}"
