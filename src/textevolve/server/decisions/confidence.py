"""How sure an answer is, in one number, by the formulas that TypeSafe documents for System One and
`jevcompat` writes out (SPEC.md, section 4.5; `jevcompat/validate.py`).

OpenAI's Decisions API does not say its own formula; both APIs are answered with the same.
"""

from __future__ import annotations

from collections.abc import Sequence


def choice_confidence(probabilities: Sequence[float]) -> float:
    """How far the largest of n probabilities lies above 1/n, from 0 to 1:
    (max p - 1/n) / (1 - 1/n)."""
    even = 1 / len(probabilities)
    return _bounded((max(probabilities) - even) / (1 - even))


def score_confidence(probabilities: Sequence[float]) -> float:
    """How near the probabilities lie to the most probable level m, from 0 to 1:
    1 - sum(p |i - m|) / u, where u is the mean distance of n levels to their middle."""
    n = len(probabilities)
    most = max(range(n), key=probabilities.__getitem__)
    spread = sum(p * abs(level - most) for level, p in enumerate(probabilities))
    even = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return _bounded(1 - spread / even)


def _bounded(value: float) -> float:
    return min(max(value, 0.0), 1.0)
