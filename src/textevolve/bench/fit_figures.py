"""Figures of a fit out of fold: what each signal earns, and what more labels would give.

Pure functions on what `fitting.py` gives; `fit_summary.py` puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from textevolve.bench.escalation import mean_figure
from textevolve.bench.fitting import CrossValidation, Problem, split_folds
from textevolve.bench.fitting import validate_columns as validate
from textevolve.statistics.clusters import cluster_mean
from textevolve.statistics.intervals import (
    TIE,
    Groups,
    Interval,
    Statistic,
)
from textevolve.statistics.resampling import Array

SIZES = (0.25, 0.5, 0.75, 1.0)
REPEATS = 8
MORE_LABELS = 50
LEAST_QUESTIONS = 20
"""Of which a learning curve can say anything."""


def shapley_earnings(problem: Problem, found: CrossValidation) -> tuple[Array, Array]:
    """What each signal takes off the cross-validated log-loss, (signals,) twice: by Shapley's
    division, and what is lost where it alone is left out.

    Shapley (1953), "A value for n-person games"; of regressions: Lipovetsky and Conklin (2001),
    "Analysis of regression in game theory approach". A signal gets its mean gain over all sets of
    the others, so that two which say the same share what they earn; the sum is the gain of all
    over none. Strengths are those of the fit of all signals, fold by fold.
    """
    size = problem.data.values.shape[1]
    losses: dict[tuple[int, ...], float] = {}
    for number in range(size + 1):
        for columns in combinations(range(size), number):
            losses[columns] = validate(problem, found.folds, found.ridges, columns).loss
    earned = np.zeros(size)
    for columns, loss in losses.items():
        share = 1 / (size * math.comb(size - 1, len(columns))) if len(columns) < size else 0.0
        for signal in set(range(size)) - set(columns):
            earned[signal] += share * (loss - losses[tuple(sorted((*columns, signal)))])
    whole = tuple(range(size))
    missed = [losses[tuple(c for c in whole if c != n)] - losses[whole] for n in whole]
    return earned, np.array(missed)


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Agreement out of fold by how many items were learnt from, and what `more` would add.

    `gain`: of the fit of all items with so many more, in shares of 1, as 1 / n has it; no interval,
    and a reason, where there are too few questions to say anything."""

    points: tuple[tuple[float, Statistic], ...]
    more: int
    gain: Statistic

    @property
    def tells(self) -> bool:
        """Whether the gain is told apart from none."""
        ends = self.gain.interval
        return not math.isnan(ends.low) and (ends.low > 0 or ends.high < 0)


def draw_curve(
    problem: Problem, found: CrossValidation, *, more: int = MORE_LABELS, seed: int = 0
) -> LearningCurve:
    """Learn from a part of each fold's questions, drawn several times, and see how the held-out
    ones fare.

    The gain is extrapolated by agreement = a - b / n, by which the error of a linear classifier
    falls (Fukunaga and Hayes 1989, "Effects of sample size in classifier design"), fitted by least
    squares. That is a weighted sum of each item's credits, so the gain is a mean over items, with
    an interval by fold, since the items of one fold are judged by the same draws.
    """
    data = problem.data
    columns, rng = range(data.values.shape[1]), np.random.default_rng(seed)
    credits, learnt_from = np.zeros((len(SIZES), len(data.items))), np.zeros(len(SIZES))
    weight = np.zeros(len(SIZES))
    for (learnt, held), ridge in zip(split_folds(found.folds), found.ridges, strict=True):
        groups = np.unique(data.group_of[learnt])
        for place, share in enumerate(SIZES):
            times = 1 if share == 1 else REPEATS
            for _ in range(times):
                drawn = rng.choice(groups, max(2, round(share * len(groups))), replace=False)
                part = learnt & np.isin(data.group_of, drawn)
                fit = problem.fit(part, columns, ridge)
                told = data.credits(fit.utilities(data.values))
                credits[place] += np.where(held, told / times, 0.0)
                learnt_from[place] += part.sum() / times
            weight[place] += 1
    sizes = learnt_from / weight
    points = tuple(
        (float(n), mean_figure(c, data.groups, seed=seed))
        for n, c in zip(sizes, credits, strict=True)
    )
    if len(set(data.groups)) < LEAST_QUESTIONS:
        few = f"fewer than {LEAST_QUESTIONS} questions"
        return LearningCurve(points, more, Statistic(math.nan, Interval(math.nan, math.nan, few)))
    return LearningCurve(points, more, extrapolate(sizes, credits, more, found.folds.tolist()))


def extrapolate(sizes: Array, credits: Array, more: int, folds: Groups) -> Statistic:
    """What so many more items would add to the agreement of a fit of all, by the credits
    (sizes, items) that each item had where so many were learnt from."""
    items = credits.shape[1]
    inverse = 1 / sizes
    centred = inverse - inverse.mean()
    slopes = centred @ credits / (centred @ centred)  # minus b, of each item
    gains = slopes * (1 / (items + more) - 1 / items)
    return cluster_mean(gains, folds)


def share_earnings(names: Sequence[str], earned: Array) -> Mapping[str, float | None]:
    """Each signal's share of what all of them earn; none where they earn nothing together."""
    total = float(earned.sum())
    return {
        n: float(e) / total if total > TIE else None for n, e in zip(names, earned, strict=True)
    }
