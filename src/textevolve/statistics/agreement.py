"""How alike raters are, beyond chance."""

from __future__ import annotations

import numpy as np

from textevolve.statistics.intervals import TIE, Array, ratio


def kappa_of(tables: Array) -> Array:
    """Cohen's kappa of each table (..., q, q) of one rater's classes by another's, shape (...).

    Cohen (1960), "A coefficient of agreement for nominal scales", eq. 1: (po - pe) / (1 - pe), with
    pe = sum over classes of the product of both raters' shares. NaN where pe is 1, that is where
    both use one and the same class throughout.
    """
    total = tables.sum(axis=(-2, -1))
    agreed = ratio(np.trace(tables, axis1=-2, axis2=-1), total)
    chance = ratio((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1), total**2)
    room = 1 - chance
    return ratio(agreed - chance, np.where(room > TIE, room, 0.0))


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
