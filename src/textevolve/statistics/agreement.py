"""How alike two raters are, beyond chance, and how alike two rankings."""

from __future__ import annotations

import numpy as np

from textevolve.statistics.intervals import TIE, Array, Numbers, ratio, whole_pairs


def kappa_of(tables: Array) -> Array:
    """Cohen's kappa of each table (..., q, q) of one rater's classes by another's, shape (...).

    Cohen (1960), "A coefficient of agreement for nominal scales", eq. 1: (po - pe) / (1 - pe), with
    pe = sum over classes of the product of both raters' shares. NaN where pe is 1, that is where
    both use one and the same class throughout.
    """
    total = tables.sum(axis=(-2, -1))
    agreed = ratio(np.trace(tables, axis1=-2, axis2=-1), total)
    chance = ratio((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1), total**2)
    return _beyond(agreed, chance)


def ac1_of(tables: Array) -> Array:
    """Gwet's AC1 of each such table, which does not collapse where one class dominates.

    Gwet (2008), "Computing inter-rater reliability and its variance in the presence of high
    agreement": (pa - pe) / (1 - pe) with pe = sum of p(1 - p) / (q - 1), p a class's share
    averaged over both raters. NaN where q is 1.
    """
    total = tables.sum(axis=(-2, -1))
    agreed = ratio(np.trace(tables, axis1=-2, axis2=-1), total)
    classes = tables.shape[-1]
    if classes < 2:
        return np.full_like(agreed, np.nan)
    share = ratio(tables.sum(axis=-1) + tables.sum(axis=-2), 2 * total[..., None])
    return _beyond(agreed, (share * (1 - share)).sum(axis=-1) / (classes - 1))


def alpha_of(tables: Array, distance: Array) -> Array:
    """Krippendorff's alpha of each table of coincidences (..., q, q), shape (...).

    Krippendorff (2011), "Computing Krippendorff's alpha-reliability": 1 - Do / De. An item that m
    people put into classes adds 1 / (m - 1) to the table for each ordered pair of them, so that it
    may have any number of people from 2 on. `distance` (q, q): of each two classes, 0 of equal
    ones; nominal: 1 of all others, interval: the squared difference. NaN where one and the same
    class is used throughout.
    """
    used = tables.sum(axis=-1)
    total = used.sum(axis=-1)
    seen = ratio((tables * distance).sum(axis=(-2, -1)), total)
    products = used[..., :, None] * used[..., None, :]
    chance = ratio((products * distance).sum(axis=(-2, -1)), total * (total - 1))
    return 1 - ratio(seen, np.where(chance > TIE, chance, 0.0))


def _beyond(agreed: Array, chance: Array) -> Array:
    room = 1 - chance
    return ratio(agreed - chance, np.where(room > TIE, room, 0.0))


def kendall_tau(first: Numbers, second: Numbers) -> float:
    """Kendall's tau-b in [-1, 1] of two scorings of the same candidates, with ties.

    Kendall (1945), "The treatment of ties in ranking problems": pairs in the same order less pairs
    in opposite order, by the root of the product of the pairs untied in each. NaN where there are
    fewer than two candidates, or all tie.
    """
    ours, theirs = whole_pairs(first, second)
    signs = [_signs(v) for v in (ours, theirs)]
    untied = float((signs[0] ** 2).sum() * (signs[1] ** 2).sum())
    return float((signs[0] * signs[1]).sum() / np.sqrt(untied)) if untied else float("nan")


def _signs(values: Array) -> Array:
    """Sign of each value less each other, 0 for a tie, (k, k)."""
    gaps = values[:, None] - values[None, :]
    return np.where(np.abs(gaps) <= TIE, 0.0, np.sign(gaps))
