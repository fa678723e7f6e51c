"""From comparisons of two candidates to scores of all: Bradley-Terry, and which pairs to compare.

Pure arithmetic; `pairwise.py` asks the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

PRIOR = 0.1
STEPS = 500


def bradley_terry(wins: NDArray[np.float64], prior: float = PRIOR) -> NDArray[np.float64]:
    """Log-strengths, centred on 0, from `wins[a, b]`: how often a beat b, in parts of a comparison.

    The minorise-maximise algorithm (Hunter 2004, "MM algorithms for generalized Bradley-Terry
    models", section 3). `prior` wins and losses against an imagined candidate of strength 1 keep
    those finite that won or lost everything.
    """
    count = len(wins)
    games = wins + wins.T
    won = wins.sum(axis=1) + prior
    strength = np.ones(count)
    for _ in range(STEPS):
        pairs = games / (strength[:, None] + strength[None, :])
        updated = won / (pairs.sum(axis=1) + 2 * prior / (strength + 1.0))
        if np.max(np.abs(np.log(updated / strength))) < 1e-10:
            strength = updated
            break
        strength = updated
    logs = np.log(strength)
    return np.asarray(logs - logs.mean())


def all_pairs(count: int) -> tuple[tuple[int, int], ...]:
    return tuple(combinations(range(count), 2))


async def sort_candidates(
    count: int, beats: Callable[[int, int], Awaitable[bool]]
) -> tuple[int, ...]:
    """The candidates from best to worst by binary insertion: about n log2 n comparisons."""
    ranked: list[int] = []
    for candidate in range(count):
        low, high = 0, len(ranked)
        while low < high:
            middle = (low + high) // 2
            if await beats(candidate, ranked[middle]):
                high = middle
            else:
                low = middle + 1
        ranked.insert(low, candidate)
    return tuple(ranked)


def mean_wins(strengths: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Each candidate's expected share of wins against the others, in [0, 1]."""
    logs = np.asarray(strengths, dtype=float)
    chances = 1.0 / (1.0 + np.exp(logs[None, :] - logs[:, None]))
    np.fill_diagonal(chances, 0.0)
    return np.asarray(chances.sum(axis=1) / (len(logs) - 1))
