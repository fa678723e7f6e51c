"""Which templates stay in the beam: all on the same rows, or by upper confidence bounds.

An arm is a candidate template, known here by its number; lower numbers are older and win ties. How
an arm is tried on a row is handed in, as one batch of pairs at a time. A pair without a score is
missing: it leaves the mean, and an arm with too few scores cannot be chosen.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Trial: TypeAlias = tuple[int, int]
"""An arm, and the number of the row that it is tried on."""
TryAll = Callable[[Sequence[Trial]], Awaitable[Sequence[float | None]]]
"""Tries all pairs as one batch; a score in [0, 1] or None for each, in order."""

LEAST_COVERED = 0.5
"""The share of its trials that have to have a score before an arm can be chosen."""


@dataclass(frozen=True, slots=True)
class ArmStatistics:
    """An arm after a selection: `scores` by the number of the row, None where one is missing."""

    arm: int
    scores: Mapping[int, float | None]

    @property
    def present(self) -> list[float]:
        return [score for score in self.scores.values() if score is not None]

    @property
    def mean(self) -> float | None:
        present = self.present
        return sum(present) / len(present) if present else None

    @property
    def eligible(self) -> bool:
        return bool(self.scores) and len(self.present) >= LEAST_COVERED * len(self.scores)


def draw_rows(count: int, size: int, seed: int, *labels: object) -> tuple[int, ...]:
    """`size` row numbers out of `count`, without repetition, by the seed and what it is for."""
    rows = list(range(count))
    shuffle(rows, seed, *labels)
    return tuple(rows[:size])


def shuffle(items: list[T], seed: int, *labels: object) -> None:
    """In place; the same for the same seed and labels, on every machine."""
    seeded(seed, *labels).shuffle(items)


def seeded(seed: int, *labels: object) -> Random:
    """Random numbers by the seed and what they are for."""
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))


def choose_beam(
    tried: Sequence[ArmStatistics], width: int, length: Callable[[int], int] = lambda _: 0
) -> list[int]:
    """The `width` eligible arms of the highest means, the best first; of equals the one with the
    least `length`, then the older."""
    eligible = [(s.mean, s.arm) for s in tried if s.eligible and s.mean is not None]
    ranked = sorted(eligible, key=lambda pair: (-round(pair[0], 9), length(pair[1]), pair[1]))
    return [arm for _, arm in ranked[:width]]


async def try_fast(
    arms: Sequence[int], rows: Sequence[int], try_all: TryAll
) -> list[ArmStatistics]:
    """Every arm on every one of the same rows, all in one batch."""
    trials = [(arm, row) for arm in arms for row in rows]
    found = dict(zip(trials, await try_all(trials), strict=True))
    return [ArmStatistics(arm, {row: found[arm, row] for row in rows}) for arm in arms]


async def try_ucb(
    arms: Sequence[int], rows: Sequence[int], try_all: TryAll, *, width: int, pulls: int
) -> list[ArmStatistics]:
    """Bandits: each arm once, then again and again the `width` arms of the highest UCB1 index.

    Every arm goes through the rows in the same order, so those that are compared share their first
    rows; an arm that has seen them all is done. The arms of one step are tried as one batch.
    `pulls` bounds the trials, of which each arm has at least one. ProTeGi (arXiv 2305.03495)
    chooses its beam by such bandits, too, one arm at a time.
    """
    seen: dict[int, dict[int, float | None]] = {arm: {} for arm in arms}
    chosen, left = list(arms), max(pulls, len(arms))
    while chosen and left > 0:
        trials = [(arm, rows[len(seen[arm])]) for arm in chosen[:left]]
        for (arm, row), score in zip(trials, await try_all(trials), strict=True):
            seen[arm][row] = score
        left -= len(trials)
        chosen = _most_promising(seen, len(rows), width)
    return [ArmStatistics(arm, scores) for arm, scores in seen.items()]


def count_pulls(arms: int, rows: int) -> int:
    """The trials that bandits get: half of what trying every arm on every row takes."""
    return max(arms, math.ceil(arms * rows / 2))


def ucb1(mean: float, pulled: int, total: int) -> float:
    """mean + sqrt(2 ln(total) / pulled).

    UCB1 of Auer, Cesa-Bianchi and Fischer (2002), "Finite-time analysis of the multiarmed bandit
    problem", Machine Learning 47, figure 1, for rewards in [0, 1].
    """
    return mean + math.sqrt(2 * math.log(total) / pulled)


def _most_promising(
    seen: Mapping[int, Mapping[int, float | None]], rows: int, width: int
) -> list[int]:
    """The arms to pull next. One whose pulls all failed counts with the mean of all scores."""
    tried = [ArmStatistics(arm, scores) for arm, scores in seen.items()]
    scored = [score for s in tried for score in s.present]
    usual = sum(scored) / len(scored) if scored else 0.5
    total = sum(len(s.scores) for s in tried)

    def index(arm: ArmStatistics) -> tuple[float, int]:
        mean = usual if arm.mean is None else arm.mean
        return -ucb1(mean, len(arm.scores), total), arm.arm

    waiting = [s for s in tried if len(s.scores) < rows]
    return [arm.arm for arm in sorted(waiting, key=index)[:width]]
