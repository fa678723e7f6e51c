"""When a loop stops, and which outputs are no honest attempts: decisions on plain numbers.

Nothing is asked here, and no attempt is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from textevolve.loops.attempt import StopReason
from textevolve.loops.similarity import WORDS_COMPARED, text_similarity
from textevolve.spec import Frozen, option

NEAR_COPY = 0.998
"""Similarity to the attempt before from which one counts as a copy; a word put into a text of two
hundred is a change."""

SHRUNK, GROWN = 0.1, 10.0
"""A revision of less or more than so many times the length before is absurd."""

LONGEST = 100_000
"""Characters above which a first attempt is absurdly long."""


class Stopping(Frozen):
    """When to stop.

    Converged: the best of the last `convergence_window` scores is not `min_improvement` above the
    best before them. Oscillating: the last three scores turn back, their variance is above
    `oscillation_limit`, and the last is not a new best; None: never.
    """

    threshold: float = option(
        0.8, "The score from which an attempt is accepted.", group="Stopping", ge=0, le=1
    )
    max_iterations: int = option(3, "Attempts at most.", group="Stopping", ge=1)
    min_improvement: float = option(
        0.05,
        "Stop where the last attempts gain less than this on the best score before them.",
        group="Stopping",
        ge=0,
        le=1,
    )
    convergence_window: int = option(
        2, "How many of the last attempts are looked at for that gain.", group="Stopping", ge=1
    )
    oscillation_limit: float | None = option(
        0.01,
        "Stop where the last three scores go up and down with a variance above this.",
        group="Stopping",
        ge=0,
    )

    def decide(
        self, scores: Sequence[float], iterations: int, *, acceptable: bool = True
    ) -> StopReason | None:
        """What the loop ends with, or None where it goes on.

        `scores` are those of the attempts that have one, in order; `iterations` counts all.
        `acceptable` is False where the last attempt fails a gate, whatever its score.
        """
        if scores and acceptable and scores[-1] >= self.threshold:
            return "accepted"
        if self._oscillates(scores):
            return "oscillating"
        if self._converged(scores):
            return "converged"
        if iterations >= self.max_iterations:
            return "max_iterations" if scores else "failed"
        return None

    def _converged(self, scores: Sequence[float]) -> bool:
        window = self.convergence_window
        if len(scores) <= window:
            return False
        gain = max(scores[-window:]) - max(scores[:-window])
        return gain < self.min_improvement

    def _oscillates(self, scores: Sequence[float]) -> bool:
        if self.oscillation_limit is None or len(scores) < 3:
            return False
        one, two, three = scores[-3:]
        turned = (two - one) * (three - two) < 0
        mean = (one + two + three) / 3
        variance = ((one - mean) ** 2 + (two - mean) ** 2 + (three - mean) ** 2) / 3
        gained = three - max(scores[:-1]) >= self.min_improvement > 0
        return turned and variance > self.oscillation_limit and not gained


def notice_degenerate(output: str, previous: str | None) -> str | None:
    """What is wrong with an output as an attempt, by length and similarity alone; None: nothing."""
    if not output.strip():
        return "empty"
    if previous is None:
        return f"longer than {LONGEST:,} characters" if len(output) > LONGEST else None
    ratio = len(output) / len(previous)
    if ratio < SHRUNK:
        return f"absurdly short: {len(output)} characters after {len(previous)}"
    if ratio > GROWN and len(output) > 1000:
        return f"absurdly long: {len(output):,} characters after {len(previous):,}"
    ours, theirs = output.casefold().split(), previous.casefold().split()
    same_end = ours[WORDS_COMPARED:] == theirs[WORDS_COMPARED:]
    if same_end and text_similarity(output, previous) >= NEAR_COPY:
        return "a near copy of the attempt before"
    return None
