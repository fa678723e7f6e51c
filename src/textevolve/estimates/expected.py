"""What a run will probably use: a median and a range that holds with a probability of 90 %.

Either from runs that were there before, scaled to as many cases, or from rehearsals with answers of
typical lengths. What a run may use at most is in the other modules here. Nothing is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from textevolve.evaluation import Usage

SHARE = 0.9
"""Probability with which a range is to hold what is used."""

FIGURES = ("calls", "prompt_tokens", "completion_tokens", "tokens", "cost", "seconds")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the ends of its range."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Used:
    """What an earlier run used for so many cases. `seconds`: while a call was under way; None where
    that is not known."""

    cases: int
    usage: Usage
    seconds: float | None = None

    def figure(self, name: str) -> float | None:
        return self.seconds if name == "seconds" else getattr(self.usage, name)


@dataclass(frozen=True)
class Expected:
    """`runs`: how many earlier runs it comes from, 0 where it was rehearsed. A figure that is not
    known, such as a cost without a price, is left out."""

    figures: dict[str, Spread]
    runs: int = 0


def expect_again(earlier: Sequence[Used], cases: int) -> Expected:
    """What so many cases will use, if they are such as those of the earlier runs, of which there is
    at least one."""
    found: dict[str, Spread] = {}
    for name in FIGURES:
        values = [(one.cases, one.figure(name)) for one in earlier]
        known = [(n, value) for n, value in values if value is not None]
        if known:
            found[name] = _predict(known, cases)
    return Expected(found, len(earlier))


ASSUMED, WEIGHT = 0.35, 3
"""What is assumed of the standard deviation of a case's use, as a share of its mean, where less
than three runs are there to tell; and how many degrees of freedom that counts for."""


def _predict(known: Sequence[tuple[int, float]], cases: int) -> Spread:
    """A prediction interval for a sum over cases, each run being a sum over n_i of them.

    With x_i = n_i m + e_i, Var e_i = n_i s^2 (cases differ independently), m is estimated by
    sum x / sum n and s^2 by sum (x_i - n_i m)^2 / n_i / (k - 1); what is predicted has the variance
    s^2 (n + n^2 / sum n), and Student's t with k - 1 degrees of freedom gives the range. One or two
    runs say too little about s, which is then taken together with what is `ASSUMED`.
    """
    number = sum(n for n, _ in known)
    mean = sum(value for _, value in known) / number
    squares = sum((value - n * mean) ** 2 / n for n, value in known)
    freedom = len(known) - 1
    if freedom < 2:
        squares, freedom = squares + WEIGHT * (ASSUMED * mean) ** 2, freedom + WEIGHT
    deviation = math.sqrt(squares / freedom)
    half = student(freedom) * deviation * math.sqrt(cases + cases**2 / number)
    middle = cases * mean
    return Spread(middle, max(0.0, middle - half), middle + half)


def student(freedom: int) -> float:
    """t such that a variable of Student's distribution lies within +-t with `SHARE`.

    Exact for 1 and 2 degrees of freedom, else by the expansion of Cornish and Fisher (Abramowitz
    and Stegun 26.7.5), which is within 1 % of the true value from 3 on.
    """
    p = (1 + SHARE) / 2
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z = NormalDist().inv_cdf(p)
    parts = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(part / freedom**n for n, part in enumerate(parts, 1))


def keep_within(expected: Expected, least: Usage, most: Usage) -> Expected:
    """The same with ranges that end where the bounds do. A median stays: where earlier runs lie
    outside of the bounds, that is worth knowing."""
    found: dict[str, Spread] = {}
    for name, spread in expected.figures.items():
        low, high = getattr(least, name, None), getattr(most, name, None)  # none of seconds
        found[name] = Spread(
            spread.median,
            spread.low if low is None else min(spread.median, max(spread.low, low)),
            spread.high if high is None else max(spread.median, min(spread.high, high)),
        )
    return Expected(found, expected.runs)


def expect_of_draws(draws: Sequence[Usage]) -> Expected:
    """The middle and the range of several rehearsals."""
    found: dict[str, Spread] = {}
    for name in FIGURES[:-1]:
        values = [getattr(usage, name) for usage in draws]
        if all(value is not None for value in values):
            low, middle, high = np.quantile(values, [(1 - SHARE) / 2, 0.5, (1 + SHARE) / 2])
            found[name] = Spread(float(middle), float(low), float(high))
    return Expected(found)
