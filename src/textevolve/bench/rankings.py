"""Rankings: how alike two are.

Pure numpy. A correlation that does not exist (fewer than two candidates, or all tied) is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from textevolve.bench.statistics import TIE, Array, Numbers, whole_pairs
from textevolve.errors import InputError


def kendall_tau(first: Numbers, second: Numbers) -> float:
    """Kendall's tau-b in [-1, 1] of two scorings of the same candidates, with ties.

    Kendall (1945), "The treatment of ties in ranking problems": pairs in the same order less pairs
    in opposite order, by the root of the product of the pairs untied in each.
    """
    ours, theirs = whole_pairs(first, second)
    signs = [_signs(v) for v in (ours, theirs)]
    untied = float((signs[0] ** 2).sum() * (signs[1] ** 2).sum())
    return float((signs[0] * signs[1]).sum() / np.sqrt(untied)) if untied else float("nan")


def spearman_rho(first: Numbers, second: Numbers) -> float:
    """Spearman's rho in [-1, 1]: Pearson's correlation of the ranks, ties with their mean rank.

    Spearman (1904); for ties Kendall and Gibbons (1990), "Rank Correlation Methods", ch. 3.
    """
    ours, theirs = (mean_ranks(v) for v in whole_pairs(first, second))
    if ours.size < 2 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return float("nan")
    centred = [v - v.mean() for v in (ours, theirs)]
    product = (centred[0] ** 2).sum() * (centred[1] ** 2).sum()
    return float(np.clip((centred[0] * centred[1]).sum() / np.sqrt(product), -1.0, 1.0))


def mean_ranks(values: Numbers) -> Array:
    """Rank of each value from 1, the lowest; those that tie share the mean of their ranks."""
    signs = _signs(np.asarray(values, dtype=np.float64))
    return np.asarray((signs.shape[0] + 1 + signs.sum(axis=1)) / 2)


def correlate_items(
    judged: Sequence[Numbers],
    human: Sequence[Numbers],
    measure: Callable[[Numbers, Numbers], float] = kendall_tau,
) -> Array:
    """The measure of each item's scores with people's, (items,), NaN where it does not exist.

    `statistics.mean_present` averages them over the items where it does.
    """
    if len(judged) != len(human):
        raise InputError(f"{len(judged)} items were judged and {len(human)} have labels")
    pairs = zip(judged, human, strict=True)
    return np.array([measure(ours, theirs) for ours, theirs in pairs], dtype=np.float64)


def _signs(values: Array) -> Array:
    """Sign of each value less each other, 0 for a tie, (k, k)."""
    gaps = values[:, None] - values[None, :]
    return np.where(np.abs(gaps) <= TIE, 0.0, np.sign(gaps))
