"""Rankings: how alike two are, and one ranking out of many comparisons of two.

Pure numpy. A correlation that does not exist (fewer than two candidates, or all tied) is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from textevolve.bench.statistics import TIE, Array, Numbers, whole_pairs
from textevolve.errors import InputError

PRIOR = 0.1
_STEPS = 200


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


def bradley_terry(wins: Sequence[Sequence[float]] | Array, prior: float = PRIOR) -> Array:
    """Log-strength of each candidate, mean 0; `wins[a, b]`: how often a beat b, a tie is half.

    Bradley and Terry (1952): P(a beats b) = s_a / (s_a + s_b); the log-likelihood of Hunter
    (2004), "MM algorithms for generalized Bradley-Terry models", eq. 2, is maximised over log s,
    where it is concave, by Newton steps. Each candidate has also won and lost `prior` comparisons
    with one of strength 1 (Coulom 2008, "Whole-history rating", has one of each), so that one
    which never lost, or never met the others, stays finite. NaN counts as no comparison.

    Raises:
        InputError: no square table, a negative count or a prior that is not above 0.
    """
    given = np.asarray(wins, dtype=np.float64)
    table = np.where(np.isnan(given), 0.0, given)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InputError(f"wins have the shape (candidates, candidates), not {table.shape}")
    if (table < 0).any() or not np.isfinite(table).all() or not prior > 0:
        raise InputError("wins must be counts of at least 0, and the prior above 0")
    np.fill_diagonal(table, 0.0)
    logs = np.zeros(len(table))
    for _ in range(_STEPS):
        gradient, curvature = _slopes(logs, table, prior)
        if not logs.size or np.abs(gradient).max() <= TIE * (1 + table.sum()):
            break
        step = np.asarray(np.linalg.solve(curvature, gradient), dtype=np.float64)
        logs = _climb(logs, step, table, prior)
    return logs - logs.mean() if logs.size else logs


def _slopes(logs: Array, wins: Array, prior: float) -> tuple[Array, Array]:
    """Gradient (k,) of the log-likelihood and its negative second derivative (k, k)."""
    games = wins + wins.T
    chance = _logistic(logs[:, None] - logs[None, :])
    alone = _logistic(logs)
    gradient = wins.sum(axis=1) - (games * chance).sum(axis=1) + prior * (1 - 2 * alone)
    weight = games * chance * (1 - chance)
    curvature = np.diag(weight.sum(axis=1) + 2 * prior * alone * (1 - alone)) - weight
    return gradient, curvature


def _climb(logs: Array, step: Array, wins: Array, prior: float) -> Array:
    """The step, halved until it does not lower the likelihood."""
    height = _log_likelihood(logs, wins, prior)
    for _ in range(60):
        if _log_likelihood(logs + step, wins, prior) >= height:
            return np.asarray(logs + step)
        step = step / 2
    return logs


def _log_likelihood(logs: Array, wins: Array, prior: float) -> float:
    between = -(wins * np.logaddexp(0.0, logs[None, :] - logs[:, None])).sum()
    return float(between - prior * (np.logaddexp(0.0, logs) + np.logaddexp(0.0, -logs)).sum())


def _logistic(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


def _signs(values: Array) -> Array:
    """Sign of each value less each other, 0 for a tie, (k, k)."""
    gaps = values[:, None] - values[None, :]
    return np.where(np.abs(gaps) <= TIE, 0.0, np.sign(gaps))
