"""Fitting of a judge: the values of several judges (signals) on labelled items are weighted so that
the sum agrees with people, and the weights are cross-validated by question.

Pairs are fitted by a logistic regression on differences of the two texts' values, single responses
by a regression on whether people pass them. In each fold the values are standardised, and the ridge
strength is chosen, on the training part alone, so that the figures of a fold (`fit_summary.py`)
were learnt without it. Callers decide which signals are used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.bench.credit import label_credit
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict, gather_outcomes
from textevolve.errors import InputError
from textevolve.llm.model import text_hash
from textevolve.statistics.intervals import TIE, group_numbers
from textevolve.statistics.regression import (
    fit_logistic,
    log_logistic,
    logistic,
)
from textevolve.statistics.resampling import Array

Numbering: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LabelledSignals:
    """Labelled items with the value of every signal for each candidate. The candidates of all items
    are numbered consecutively; they are called texts below.

    Attributes:
        names: The names of the signals.
        values: The values, shape (texts, signals).
        missing: The number of labelled items without a complete verdict, by signal.
        left_out: The number of items that are left out since a verdict is missing.
        scores: The signals whose values are scores; those of the others are log-odds.
    """

    names: tuple[str, ...]
    items: tuple[Item, ...]
    values: Array
    missing: Mapping[str, int]
    left_out: int
    scores: frozenset[str] = frozenset()

    @cached_property
    def owner(self) -> Numbering:
        """Return the number of the item that each text belongs to."""
        return np.repeat(np.arange(len(self.items)), [len(i.candidates) for i in self.items])

    @cached_property
    def starts(self) -> Numbering:
        """Return the number of the first text of each item."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    @cached_property
    def human(self) -> Array:
        return np.array([label for item in self.items for label in item.human], dtype=np.float64)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        return tuple(item.group for item in self.items)

    @cached_property
    def group_of(self) -> Numbering:
        """Return the question number of each item."""
        return group_numbers(self.groups, len(self.items))

    @property
    def are_single(self) -> bool:
        """Tell whether the items are single responses, whose grades are shares of people."""
        return any(item.is_single for item in self.items)

    def credits(self, scores: Array) -> Array:
        """Compute for each item how well the scores of its texts agree with people's labels, from 0
        to 1, shape (items,). `scores`: one for each text of all items. Of several texts it is the
        share of winners in common (`top_credit`). A single response passes from a score of 0 on,
        and has 1 if most people agree with that, otherwise 0 (`label_credit`)."""
        if self.are_single:
            passed = zip((scores >= 0).tolist(), self.human, strict=True)
            return np.array([label_credit(each, share) for each, share in passed])
        ours, theirs = self._winners(scores), self._winners(self.human)
        shared, chosen, other = (self._sum(winners) for winners in (ours & theirs, ours, theirs))
        return shared / np.maximum(chosen, other)

    def top_scores(self, utilities: Array) -> Array:
        """Compute the score of each item's best text, shape (items,): the logistic function of its
        utility minus the mean utility of the others."""
        best = np.maximum.reduceat(utilities, self.starts)
        sizes = self._sum(np.ones(len(self.owner)))
        mean_others = (np.add.reduceat(utilities, self.starts) - best) / (sizes - 1)
        return logistic(best - mean_others)

    def _winners(self, scores: Array) -> NDArray[np.bool_]:
        return scores >= np.maximum.reduceat(scores, self.starts)[self.owner] - TIE

    def _sum(self, of: NDArray[np.bool_] | Array) -> Array:
        return np.add.reduceat(of.astype(np.float64), self.starts)

    @cached_property
    def rows(self) -> LabelRows:
        """Return the regression rows of the labels.

        Raises:
            InputError: single responses all have the same label.
        """
        return _response_rows(self) if self.are_single else _pair_rows(self)

    def fit(self, items: Mask, columns: Sequence[int], ridge: float) -> Combination:
        """Fit the signals in `columns` to the selected items; all other signals get the weight
        0."""
        size, chosen = self.values.shape[1], list(columns)
        means, scales, weights = np.zeros(size), np.ones(size), np.zeros(size)
        means[chosen] = self.values[items[self.owner]][:, chosen].mean(axis=0)
        selected = items[self.rows.owner]
        design, counts = (
            self.rows.take(self.values)[selected][:, chosen],
            self.rows.counts[selected],
        )
        ridges = np.full(len(chosen), ridge)
        if self.are_single:
            design = design - means[chosen]
        scale = np.sqrt((counts @ design**2) / counts.sum())
        scales[chosen] = np.where(scale > TIE, scale, 1.0)
        design = design / scales[chosen]
        if self.are_single:
            design = np.column_stack([design, np.ones(len(design))])
            ridges = np.append(ridges, UNPENALISED)
        fitted = fit_logistic(design, self.rows.shares[selected], counts, ridges)
        weights[chosen] = fitted[: len(chosen)]
        return Combination(means, scales, weights, float(fitted[len(chosen) :].sum()))

    def losses(self, fit: Combination, items: Mask) -> Array:
        """Compute the log-loss of each row of the selected items."""
        selected = items[self.rows.owner]
        odds, shares = (
            self.rows.take(fit.utilities(self.values))[selected],
            self.rows.shares[selected],
        )
        loss = shares * log_logistic(odds) + (1 - shares) * log_logistic(-odds)
        return -self.rows.counts[selected] * loss

    @cached_property
    def sha256(self) -> str:
        """Return the SHA-256 hash of ids, texts, labels and groups, which does not depend on the
        order of the items."""
        rows = [[i.id, i.input, list(i.candidates), list(i.human), i.group] for i in self.items]
        rows = sorted(json.dumps(row) for row in rows)
        return text_hash("\n".join(rows))


def gather_signals(
    items: Sequence[Item], verdicts: Iterable[Verdict], names: Sequence[str]
) -> LabelledSignals:
    """Collect the labelled items on which every signal has a complete verdict in each order of the
    candidates; values are averaged over orders. If a signal has both log-odds and scores, verdicts
    in the rarer of the two count as missing.

    Raises:
        InputError: a verdict concerns an unknown item.
    """
    labelled = [item for item in items if item.labelled]
    whole_ones = [v for v in verdicts if v.failure is None]
    units = {n: Counter(v.log_odds for v in whole_ones if v.judge == n) for n in names}
    in_odds = {n: counts[True] >= counts[False] for n, counts in units.items()}
    usable = [v for v in whole_ones if v.log_odds == in_odds.get(v.judge)]
    outcomes = gather_outcomes(items, usable)
    scores = {n: {id: o.scores for id, o in outcomes.get(n, {}).items()} for n in names}
    missing = {n: sum(not scores[n].get(i.id) for i in labelled) for n in names}
    complete = [item for item in labelled if all(scores[n].get(item.id) for n in names)]
    rows = [row for i in complete for row in zip(*(scores[n][i.id] for n in names), strict=True)]
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    left_out, by_score = len(labelled) - len(complete), {n for n in names if not in_odds[n]}
    return LabelledSignals(
        tuple(names), tuple(complete), values, missing, left_out, frozenset(by_score)
    )


@dataclass(frozen=True)
class LabelRows:
    """The rows of a regression: for pairs two candidates of an item, `first` minus `second`; for
    single responses a text alone, with `second` None.

    Attributes:
        first: The number of each row's first text.
        shares: For pairs 1 if people prefer the first text, 0.5 for a tie, and 0 otherwise; for
            single responses the share of people who pass the text.
        counts: The weights of the rows, which sum to 1 for each item.
        owner: The number of each row's item.
    """

    first: Numbering
    second: Numbering | None
    shares: Array
    counts: Array
    owner: Numbering

    def take(self, values: Array) -> Array:
        """Return the regression's input from values of the texts: their differences for pairs, the
        values themselves for single responses."""
        return values[self.first] - (0.0 if self.second is None else values[self.second])


def _pair_rows(data: LabelledSignals) -> LabelRows:
    rows = [
        (int(start) + a, int(start) + b, len(item.candidates), n)
        for n, (start, item) in enumerate(zip(data.starts, data.items, strict=True))
        for a, b in combinations(range(len(item.candidates)), 2)
    ]
    first, second, sizes, owner = np.array(rows, dtype=np.intp).reshape(-1, 4).T
    gap = data.human[first] - data.human[second]
    shares = np.where(np.abs(gap) <= TIE, 0.5, (gap > 0).astype(np.float64))
    return LabelRows(first, second, shares, 2 / (sizes * (sizes - 1)), owner)


def _response_rows(data: LabelledSignals) -> LabelRows:
    """Return the regression rows of single responses, each with the share of people who pass it.

    Raises:
        InputError: people pass all responses, or none.
    """
    if np.ptp(data.human) <= TIE:
        raise InputError("all responses have the same label; a fit needs good and bad ones")
    every = np.arange(len(data.owner))
    return LabelRows(every, None, data.human, np.ones(len(every)), data.owner)


RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""The ridge strengths to choose from. The penalty is ridge / 2 * |weights|^2, and is added to the
sum of losses over items."""

FOLDS, INNER_FOLDS = 10, 5
UNPENALISED = 1e-6
"""The ridge strength of the intercept, which is hardly penalised."""


@dataclass(frozen=True)
class Combination:
    """A weighted sum of standardised signals, the utility of a text: ((values - means) / scales) @
    weights + intercept. For pairs the intercept is 0."""

    means: Array
    scales: Array
    weights: Array
    intercept: float = 0.0

    def utilities(self, values: Array) -> Array:
        return ((values - self.means) / self.scales) @ self.weights + self.intercept


def draw_folds(groups: Numbering, folds: int, seed: int) -> Numbering:
    """Draw the fold of each item. All items of a group are in the same fold, and folds have about
    the same number of groups."""
    names, places = np.unique(groups, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    return (order % min(folds, len(names)))[places]


def split_folds(folds: Numbering) -> Iterator[tuple[Mask, Mask]]:
    """Yield the masks of training and of held-out items, for each fold."""
    for fold in np.unique(folds):
        yield folds != fold, folds == fold


def choose_ridge(data: LabelledSignals, items: Mask, seed: int) -> float:
    """Return the ridge strength with the lowest log-loss in a cross-validation on the selected
    items; the strongest of equals."""
    inside = np.flatnonzero(items)
    folds = np.full(len(items), -1)
    folds[inside] = draw_folds(data.group_of[inside], INNER_FOLDS, seed)
    columns = range(data.values.shape[1])
    losses = np.zeros(len(RIDGES))
    for fold in range(folds.max() + 1):
        learnt, held_out = items & (folds != fold), folds == fold
        for place, ridge in enumerate(RIDGES):
            losses[place] += data.losses(data.fit(learnt, columns, ridge), held_out).sum()
    return RIDGES[int(np.flatnonzero(losses <= losses.min() + TIE)[-1])]


@dataclass(frozen=True)
class CrossValidation:
    """The result of a cross-validation. `utilities`: the utility of each text by weights that were
    fitted without its question, shape (texts,). `loss`: the sum of the log-losses; `ridges`: the
    ridge strength of each fold."""

    folds: Numbering
    utilities: Array
    loss: float
    ridges: tuple[float, ...]


def cross_validate(data: LabelledSignals, seed: int) -> CrossValidation:
    """Run a nested cross-validation, in which the ridge strength of each fold is chosen on its
    training part alone."""
    folds = draw_folds(data.group_of, FOLDS, seed)
    ridges = tuple(choose_ridge(data, learnt, seed) for learnt, _ in split_folds(folds))
    return validate_columns(data, folds, ridges, range(data.values.shape[1]))


def validate_columns(
    data: LabelledSignals, folds: Numbering, ridges: Sequence[float], columns: Sequence[int]
) -> CrossValidation:
    """Cross-validate a fit to the signals in `columns` alone, with these folds and ridge
    strengths."""
    utilities, loss = np.zeros(len(data.owner)), 0.0
    for (learnt, held_out), ridge in zip(split_folds(folds), ridges, strict=True):
        fit = data.fit(learnt, columns, ridge)
        texts = held_out[data.owner]
        utilities[texts] = fit.utilities(data.values[texts])
        loss += float(data.losses(fit, held_out).sum())
    return CrossValidation(folds, utilities, loss, tuple(ridges))
