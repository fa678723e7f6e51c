"""From comparisons of two candidates to scores of all: Bradley-Terry, and which pairs to compare.

Pure arithmetic; `pairwise.py` asks the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from textevolve.errors import InputError
from textevolve.statistics.regression import logistic
from textevolve.statistics.resampling import Array

PRIOR = 0.1
_STEPS = 200
_TIE = 1e-9


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
        if not logs.size or np.abs(gradient).max() <= _TIE * (1 + table.sum()):
            break
        step = np.asarray(np.linalg.solve(curvature, gradient), dtype=np.float64)
        logs = _climb(logs, step, table, prior)
    return logs - logs.mean() if logs.size else logs


def _slopes(logs: Array, wins: Array, prior: float) -> tuple[Array, Array]:
    """Gradient (k,) of the log-likelihood and its negative second derivative (k, k)."""
    games = wins + wins.T
    chance = logistic(logs[:, None] - logs[None, :])
    alone = logistic(logs)
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


def all_pairs(count: int) -> tuple[tuple[int, int], ...]:
    return tuple(combinations(range(count), 2))


def mean_wins(strengths: Sequence[float] | Array) -> Array:
    """Each candidate's expected share of wins against the others, in [0, 1]."""
    logs = np.asarray(strengths, dtype=float)
    chances = 1.0 / (1.0 + np.exp(logs[None, :] - logs[:, None]))
    np.fill_diagonal(chances, 0.0)
    return np.asarray(chances.sum(axis=1) / (len(logs) - 1))
