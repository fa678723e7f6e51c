"""The arithmetic of recall: parts normalised, scores, and what a budget has room for.

Pure: nothing is searched, asked or counted in tokens here; that is the business of `recall.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HOURLY_DECAY = 0.995
"""What is left of recency after an hour: Park et al., Generative Agents, UIST 2023, section 4.1."""

SECONDS_AN_HOUR = 3600.0


def decay(since: float, now: float) -> float:
    """Recency in [0, 1]: 0.995 to the hours from `since` to `now`; 1 for what is yet to come."""
    return HOURLY_DECAY ** (max(0.0, now - since) / SECONDS_AN_HOUR)


def normalise(values: Sequence[float]) -> list[float]:
    """Min-max: the lowest becomes 0 and the highest 1. Where all are equal each becomes 1: none of
    them is worse than another, and a memory that is found alone is not held down for that."""
    if not values:
        return []
    low, high = min(values), max(values)
    if not low < high:
        return [1.0] * len(values)
    # Halved, so that the width of numbers at both ends of the range stays finite.
    width = high / 2 - low / 2
    if width <= 0:  # so near to each other that they cannot be told apart
        return [1.0] * len(values)
    return [min(1.0, max(0.0, (value / 2 - low / 2) / width)) for value in values]


def weigh(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The weighted mean of the parts, in [0, 1] where they are. At least one weight is above 0."""
    total = sum(weights.values())
    return min(1.0, max(0.0, sum(weights[name] / total * parts[name] for name in weights)))


def fit_budget(sizes: Sequence[int], budget: int) -> list[int]:
    """The indices, in their order, of what has room: one after another, whole. What has no room is
    passed over, and a later one may still have some."""
    chosen: list[int] = []
    left = budget
    for index, size in enumerate(sizes):
        if size <= left:
            chosen.append(index)
            left -= size
    return chosen
