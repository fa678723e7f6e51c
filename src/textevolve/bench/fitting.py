"""Weighting signals so that they agree with people, and cross-validating that by question.

Pairs: a logistic regression on differences; ratings: an ordinal one. Both standardise within the
training part of each fold, and choose the strength of their ridge by folds within that part, so
that what is told of a fold was learnt without it. Figures of that are in `fit_summary.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from textevolve.bench.labelled_signals import (
    GradeLevels,
    LabelledSignals,
    Numbering,
    PairRows,
    grade_levels,
    pair_rows,
)
from textevolve.statistics.intervals import TIE
from textevolve.statistics.regression import (
    fit_logistic,
    fit_ordinal,
    level_chances,
    log_logistic,
)
from textevolve.statistics.resampling import Array

RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Strengths among which is chosen: ridge / 2 * |weights|^2 beside a sum over items."""

FOLDS, INNER_FOLDS = 10, 5
LEAST_CHANCE = 1e-12

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Combination:
    """Signals weighted: utility = ((values - means) / scales) @ weights. `cuts` between the levels
    that `levels` names, for ratings; none for pairs."""

    means: Array
    scales: Array
    weights: Array
    cuts: Array = field(default_factory=lambda: np.zeros(0))
    levels: Numbering = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    def utilities(self, values: Array) -> Array:
        return ((values - self.means) / self.scales) @ self.weights

    def chances(self, utilities: Array, levels: int) -> Array:
        """P(level) of each text (n, levels); a level that no training text had has none."""
        found = np.zeros((len(utilities), levels))
        found[:, self.levels] = level_chances(utilities, self.cuts)
        return found


@dataclass(frozen=True)
class Problem:
    """What is to be fitted: the signals, and rows of either kind; the other is None."""

    data: LabelledSignals
    pairs: PairRows | None = None
    grades: GradeLevels | None = None

    @cached_property
    def row_owner(self) -> Numbering:
        """Of each row of the regression its item."""
        return self.data.owner if self.pairs is None else self.pairs.owner

    @property
    def size(self) -> int:
        """What the log-loss is a sum over: items of pairs, texts of ratings."""
        return len(self.data.items) if self.grades is None else len(self.data.owner)

    def fit(self, items: Mask, columns: Sequence[int], ridge: float) -> Combination:
        """Fitted to some of the items with some of the signals; the others weigh nothing."""
        size, chosen = self.data.values.shape[1], list(columns)
        texts = self.data.values[items[self.data.owner]][:, chosen]
        means, scales, weights = np.zeros(size), np.ones(size), np.zeros(size)
        if not chosen:
            return self._fit_nothing(items, means, scales, weights)
        means[chosen] = texts.mean(axis=0)
        rows = items[self.row_owner]
        if self.pairs is not None:
            found = (
                self.data.values[self.pairs.first[rows]] - self.data.values[self.pairs.second[rows]]
            )
            found, counts = found[:, chosen], self.pairs.counts[rows]
            scale = np.sqrt((counts @ found**2) / counts.sum())
            scales[chosen] = np.where(scale > TIE, scale, 1.0)
            shares = self.pairs.shares[rows]
            weights[chosen] = fit_logistic(found / scales[chosen], shares, counts, ridge)
            return Combination(means, scales, weights)
        assert self.grades is not None
        scale = texts.std(axis=0)
        scales[chosen] = np.where(scale > TIE, scale, 1.0)
        levels, places = np.unique(self.grades.levels[rows], return_inverse=True)
        if len(levels) < 2:  # a fold of one grade teaches nothing
            return Combination(means, scales, weights, np.zeros(0), levels)
        standard = (texts - means[chosen]) / scales[chosen]
        weights[chosen], cuts = fit_ordinal(standard, places, ridge)
        return Combination(means, scales, weights, cuts, levels)

    def _fit_nothing(self, items: Mask, means: Array, scales: Array, weights: Array) -> Combination:
        """What is known without any signal: for ratings how frequent each grade is."""
        if self.grades is None:
            return Combination(means, scales, weights)
        levels, places = np.unique(self.grades.levels[items[self.row_owner]], return_inverse=True)
        below = np.cumsum(np.bincount(places))[:-1] / len(places)
        return Combination(means, scales, weights, np.log(below / (1 - below)), levels)

    def losses(self, found: Combination, items: Mask) -> Array:
        """The log-loss of each row of some of the items; a grade that no training text had counts
        as the nearest that one had."""
        rows, values = items[self.row_owner], self.data.values
        if self.pairs is not None:
            utility = found.utilities(values)
            odds = utility[self.pairs.first[rows]] - utility[self.pairs.second[rows]]
            shares = self.pairs.shares[rows]
            loss = shares * log_logistic(odds) + (1 - shares) * log_logistic(-odds)
            return -self.pairs.counts[rows] * loss
        assert self.grades is not None
        chances = found.chances(found.utilities(values[rows]), len(self.grades.values))
        known = self.grades.values[found.levels]
        apart = np.abs(known[None, :] - self.grades.values[self.grades.levels[rows]][:, None])
        said = chances[np.arange(len(chances)), found.levels[apart.argmin(axis=1)]]
        return -np.log(np.maximum(said, LEAST_CHANCE))


def pose_problem(data: LabelledSignals, labels: str, good: float | None = None) -> Problem:
    """
    Raises:
        InputError: all ratings are the same, or `good` is none of them.
    """
    if labels == "pairs":
        return Problem(data, pairs=pair_rows(data))
    return Problem(data, grades=grade_levels(data.human, good))


def draw_folds(groups: Numbering, folds: int, seed: int) -> Numbering:
    """Of each item the fold that its group is in. Folds have about the same number of groups."""
    found, places = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(found))
    return (order % min(folds, len(found)))[places]


def split_folds(folds: Numbering) -> Iterator[tuple[Mask, Mask]]:
    """What is learnt from and what is held out, for each fold."""
    for fold in np.unique(folds):
        yield folds != fold, folds == fold


def choose_ridge(problem: Problem, items: Mask, seed: int) -> float:
    """The strength of the lowest log-loss in folds of some items; of equals the strongest."""
    inside = np.flatnonzero(items)
    folds = np.full(len(items), -1)
    folds[inside] = draw_folds(problem.data.group_of[inside], INNER_FOLDS, seed)
    columns = range(problem.data.values.shape[1])
    losses = np.zeros(len(RIDGES))
    for fold in range(folds.max() + 1):
        learnt, held = items & (folds != fold), folds == fold
        for place, ridge in enumerate(RIDGES):
            losses[place] += problem.losses(problem.fit(learnt, columns, ridge), held).sum()
    return RIDGES[int(np.flatnonzero(losses <= losses.min() + TIE)[-1])]


@dataclass(frozen=True)
class CrossValidation:
    """What was said of each item by a fit that had not seen its question: utilities (texts,) and,
    for ratings, `chances` of the levels (texts, levels). `loss`: the sum of the log-losses;
    `ridges`: the strength in each fold."""

    folds: Numbering
    utilities: Array
    chances: Array
    loss: float
    ridges: tuple[float, ...]


def cross_validate(problem: Problem, seed: int) -> CrossValidation:
    """Nested: the strength of each fold is chosen within what it learns from."""
    folds = draw_folds(problem.data.group_of, FOLDS, seed)
    ridges = tuple(choose_ridge(problem, learnt, seed) for learnt, _ in split_folds(folds))
    columns = range(problem.data.values.shape[1])
    return validate_columns(problem, folds, ridges, columns)


def validate_columns(
    problem: Problem, folds: Numbering, ridges: Sequence[float], columns: Sequence[int]
) -> CrossValidation:
    """The same folds and strengths with some of the signals."""
    data = problem.data
    levels = 0 if problem.grades is None else len(problem.grades.values)
    utilities, chances, loss = np.zeros(len(data.owner)), np.zeros((len(data.owner), levels)), 0.0
    for (learnt, held), ridge in zip(split_folds(folds), ridges, strict=True):
        found = problem.fit(learnt, columns, ridge)
        texts = held[data.owner]
        utilities[texts] = found.utilities(data.values[texts])
        if levels:
            chances[texts] = found.chances(utilities[texts], levels)
        loss += float(problem.losses(found, held).sum())
    return CrossValidation(folds, utilities, chances, loss, tuple(ridges))
