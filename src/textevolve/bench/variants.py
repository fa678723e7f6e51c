"""The differences of variants on the same rows, and sentences about them.

A variant is one of the compared things, such as a prompt with a model. `studies.compare` produces
and scores its outputs. Several outputs of a variant for the same row form a cluster, as do the rows
of one group or chat, and equal rows; clusters are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from textevolve.statistics.comparisons import ALPHA, PairedDifference, compare_pairs


def compare_variants(
    scores: Mapping[str, Mapping[str, float]],
    baseline: str,
    clusters: Mapping[str, str] = {},
    *,
    seed: int = 0,
) -> dict[str, PairedDifference]:
    """Compare each variant with the baseline on the rows for which both have scores, by sign-flip
    tests. Return the comparisons by variant, each with the variant `first` and the baseline
    `second`; variants without such rows are left out. `scores`: the mean score of each row, by
    variant. `clusters`: the cluster of each row; a row without one is a cluster of its own.
    p-values are corrected for the number of variants (Holm 1979), and intervals are widened
    accordingly."""
    base = scores.get(baseline, {})
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    groups: list[list[str]] = []
    for variant, variant_scores in scores.items():
        shared = [row for row in variant_scores if row in base]
        if variant != baseline and shared:
            pairs[variant] = [variant_scores[row] for row in shared], [base[row] for row in shared]
            groups.append([clusters.get(row, "") for row in shared])

    return dict(zip(pairs, compare_pairs(list(pairs.values()), groups, seed=seed), strict=True))


def describe_differences(differences: Mapping[str, PairedDifference], baseline: str) -> str:
    """Describe which variants are significantly better or worse than the baseline and by how much,
    the best variant first; then the variants without a significant difference, in the same
    order."""
    if not differences:
        return f"There is nothing to compare with {baseline}."

    parts: list[str] = []
    unclear: dict[str, PairedDifference] = {}
    for name, gap in sorted(differences.items(), key=lambda pair: -pair[1].difference):
        if gap.p > ALPHA or not gap.difference:
            unclear[name] = gap
        elif gap.difference > 0:
            parts.append(f"{name} beats {baseline} by {_format_difference(gap)}")
        else:
            parts.append(f"{baseline} beats {name} by {_format_difference(gap, -1)}")

    if unclear:
        listing = ", ".join(f"{name} {_format_difference(gap)}" for name, gap in unclear.items())
        more = [gap.needed - gap.items for gap in unclear.values() if gap.needed]
        hint = f"; about {min(more):,} more rows needed" if more and min(more) > 0 else ""
        parts.append(
            f"{'n' if parts else 'N'}o significant difference from {baseline}: {listing}{hint}"
        )

    return "; ".join(parts) + "."


def _format_difference(gap: PairedDifference, sign: int = 1) -> str:
    """Format a difference in percentage points, with its interval and the number of rows."""
    ends = sorted(sign * 100 * end for end in (gap.low, gap.high) if end is not None)
    interval = f"95 % {ends[0]:.1f} to {ends[1]:.1f}, " if ends else ""
    plus = "" if gap.p <= ALPHA and gap.difference else "+"
    rows = f"{gap.items:,} row{'' if gap.items == 1 else 's'}"
    if gap.groups:
        rows += f" in {gap.groups:,} independent group{'' if gap.groups == 1 else 's'}"
    return f"{sign * gap.difference * 100:{plus}.1f} points ({interval}{rows})"
