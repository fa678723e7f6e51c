"""Variants on the same rows: means with intervals, paired differences, and a sentence about them.

A variant is what is compared: a prompt with a model. What it gave, and who scored that, is the
business of `studies.compare`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeAlias

from textevolve.statistics.comparisons import PairedDifference, compare_paired, holm
from textevolve.statistics.intervals import mean_interval

ALPHA = 0.05

RowScores: TypeAlias = Mapping[str, Sequence[float]]
"""The scores of a variant's outputs, by row; rows without a score are left out."""


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """`mean` of the scores with its 95 % bootstrap interval, clustered by row; None without any."""

    variant: str
    scored: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


def summarise_variant(variant: str, scores: RowScores, *, seed: int = 0) -> VariantSummary:
    values = [(row, score) for row, given in scores.items() for score in given]
    if not values:
        return VariantSummary(variant, 0)
    rows, numbers = zip(*values, strict=True)
    interval = mean_interval(numbers, rows, seed=seed)
    low, high = (end if math.isfinite(end) else None for end in (interval.low, interval.high))
    return VariantSummary(variant, len(values), fmean(numbers), low, high)


def compare_variants(
    scores: Mapping[str, RowScores], baseline: str, *, seed: int = 0
) -> dict[str, PairedDifference]:
    """Each variant less the baseline on the rows that both have scores of, a row's mean each; the p
    values are corrected for the number of variants (Holm 1979)."""
    base, found = scores.get(baseline, {}), dict[str, PairedDifference]()
    for variant, own in scores.items():
        shared = [row for row in own if row in base]
        if variant != baseline and shared:
            ours, theirs = ([fmean(given[row]) for row in shared] for given in (own, base))
            found[variant] = compare_paired(ours, theirs, seed=seed)
    corrected = [float(p) for p in holm([one.p for one in found.values()])] if found else []
    return {v: replace(one, p=p) for (v, one), p in zip(found.items(), corrected, strict=True)}


def say_differences(differences: Mapping[str, PairedDifference], baseline: str) -> str:
    """What is known about each variant beside the baseline, in plain words."""
    said = [_say(variant, one, baseline) for variant, one in differences.items()]
    return " ".join(said) or f"There is nothing to compare with {baseline}."


def _say(variant: str, one: PairedDifference, baseline: str) -> str:
    if one.p <= ALPHA and one.difference:
        better, worse = (variant, baseline) if one.difference > 0 else (baseline, variant)
        ends = [abs(end) * 100 for end in (one.low, one.high) if end is not None]
        interval = f" ({min(ends):.1f} to {max(ends):.1f})" if ends else ""
        return f"{better} beats {worse} by {abs(one.difference) * 100:.1f} points{interval}."
    more = max(0, one.needed - one.items) if one.needed else 0
    hint = f": about {more:,} rows more would tell" if more else ""
    return f"{variant} cannot be told from {baseline} on {one.items:,} rows{hint}."
