"""Labelled items with what each signal said of them, as the arrays that a fit is made on.

Which judges are asked is decided above; how they are weighted is in `fitting.py`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from textevolve.bench.items import Item, question_of
from textevolve.bench.verdicts import Verdict, gather_outcomes
from textevolve.errors import InputError
from textevolve.statistics.intervals import TIE, group_numbers
from textevolve.statistics.regression import logistic
from textevolve.statistics.resampling import Array

Numbering: TypeAlias = NDArray[np.intp]
Labels: TypeAlias = Literal["pairs", "ratings"]

MOST_GRADES = 12
"""Different grades up to which each is a level of its own."""
BANDS = 10


@dataclass(frozen=True, eq=False)
class LabelledSignals:
    """Items with a value of every signal for each of their candidates, (texts, signals) in all.

    `missing`: how many labelled items each signal has no whole verdict on; `left_out`: items of
    which any is missing. Candidates of all items stand one after another. `scores`: the signals
    whose values are scores, and not log-odds.
    """

    names: tuple[str, ...]
    items: tuple[Item, ...]
    values: Array
    missing: Mapping[str, int]
    left_out: int
    scores: frozenset[str] = frozenset()

    @cached_property
    def owner(self) -> Numbering:
        """Of each text its item."""
        return np.repeat(np.arange(len(self.items)), [len(i.candidates) for i in self.items])

    @cached_property
    def starts(self) -> Numbering:
        """Of each item its first text."""
        sizes = [len(item.candidates) for item in self.items]
        return np.cumsum([0, *sizes])[:-1].astype(np.intp)

    @cached_property
    def human(self) -> Array:
        return np.array([label for item in self.items for label in item.human], dtype=np.float64)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        return tuple(question_of(item) for item in self.items)

    @cached_property
    def group_of(self) -> Numbering:
        """Of each item the number of its question."""
        return group_numbers(self.groups, len(self.items))

    def credits(self, scores: Array) -> Array:
        """The credit of each item (items,) by the scores of all texts: `top_credit`, at once."""
        ours, theirs = self._winners(scores), self._winners(self.human)
        shared, one, other = (self._sum(winners) for winners in (ours & theirs, ours, theirs))
        return shared / np.maximum(one, other)

    def top_scores(self, utilities: Array) -> Array:
        """Of each item (items,) the score of its best text: logistic(its utility - the mean of the
        others')."""
        best = np.maximum.reduceat(utilities, self.starts)
        sizes = self._sum(np.ones(len(self.owner)))
        others = (np.add.reduceat(utilities, self.starts) - best) / (sizes - 1)
        return logistic(best - others)

    def _winners(self, scores: Array) -> NDArray[np.bool_]:
        return scores >= np.maximum.reduceat(scores, self.starts)[self.owner] - TIE

    def _sum(self, of: NDArray[np.bool_] | Array) -> Array:
        return np.add.reduceat(of.astype(np.float64), self.starts)

    @cached_property
    def sha256(self) -> str:
        """Of ids, texts and labels; the same whatever the order of the items."""
        rows = [[i.id, i.input, list(i.candidates), list(i.human), i.group] for i in self.items]
        rows = sorted(json.dumps(row) for row in rows)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def gather_signals(
    items: Sequence[Item], verdicts: Iterable[Verdict], names: Sequence[str]
) -> LabelledSignals:
    """The labelled items on which every signal has a whole verdict in each order asked, orders
    averaged. Nothing that is missing is made up; and since log-odds and scores are not of one unit,
    a verdict in that which a signal has less often counts as missing.

    Raises:
        InputError: a verdict is on an item that is not there.
    """
    labelled = [item for item in items if item.labelled]
    whole_ones = [v for v in verdicts if v.failure is None]
    units = {n: Counter(v.log_odds for v in whole_ones if v.judge == n) for n in names}
    in_odds = {n: found[True] >= found[False] for n, found in units.items()}
    kept = [v for v in whole_ones if v.log_odds == in_odds.get(v.judge)]
    outcomes = gather_outcomes(items, kept)
    scores = {n: {id: o.scores for id, o in outcomes.get(n, {}).items()} for n in names}
    missing = {n: sum(not scores[n].get(i.id) for i in labelled) for n in names}
    whole = [item for item in labelled if all(scores[n].get(item.id) for n in names)]
    rows = [row for i in whole for row in zip(*(scores[n][i.id] for n in names), strict=True)]
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    left_out, by_score = len(labelled) - len(whole), {n for n in names if not in_odds[n]}
    return LabelledSignals(
        tuple(names), tuple(whole), values, missing, left_out, frozenset(by_score)
    )


def kind_of_labels(items: Iterable[Item]) -> Labels:
    """Ratings, as soon as an item's labels are neither a winner, nor votes, nor places."""
    comparisons = all(_is_comparison(item.human) for item in items if item.labelled)
    return "pairs" if comparisons else "ratings"


def _is_comparison(human: Sequence[float]) -> bool:
    places = all(label < 0 for label in human)
    return places or math.isclose(sum(human), 1.0) or set(human) == {0.5}


@dataclass(frozen=True)
class PairRows:
    """Each two candidates of an item: `first` minus `second` are the rows of a regression.

    `shares`: 1 where people prefer the first, 0.5 for a tie. `counts`: each item counts as one."""

    first: Numbering
    second: Numbering
    shares: Array
    counts: Array
    owner: Numbering


def pair_rows(data: LabelledSignals) -> PairRows:
    rows = [
        (int(start) + a, int(start) + b, len(item.candidates), n)
        for n, (start, item) in enumerate(zip(data.starts, data.items, strict=True))
        for a, b in combinations(range(len(item.candidates)), 2)
    ]
    first, second, sizes, owner = np.array(rows, dtype=np.intp).reshape(-1, 4).T
    gap = data.human[first] - data.human[second]
    shares = np.where(np.abs(gap) <= TIE, 0.5, (gap > 0).astype(np.float64))
    return PairRows(first, second, shares, 2 / (sizes * (sizes - 1)), owner)


@dataclass(frozen=True)
class GradeLevels:
    """The grades of all texts as levels from 0 on, with the grade that each stands for. `good`: the
    lowest grade that counts as good."""

    levels: Numbering
    values: Array
    good: float

    @property
    def good_level(self) -> int:
        return int(np.searchsorted(self.values, self.good - TIE))


def grade_levels(human: Array, good: float | None = None) -> GradeLevels:
    """Where there are too many grades they are put into bands of about the same number of texts,
    each of which stands for its mean. Good is, unless it is given, the upper half of the scale.

    Raises:
        InputError: all grades are the same, or none, or every one, is good.
    """
    grades, levels = np.unique(human, return_inverse=True)
    if len(grades) > MOST_GRADES:
        edges = np.unique(np.quantile(human, np.linspace(0, 1, BANDS + 1)[1:-1]))
        bands = np.searchsorted(edges, human, side="right")
        _, levels = np.unique(bands, return_inverse=True)
        grades = np.bincount(levels, weights=human) / np.bincount(levels)
    if len(grades) < 2:
        raise InputError("all ratings are the same, so nothing can be learnt from them")
    wanted = (grades[0] + grades[-1]) / 2 if good is None else good
    above = grades[grades >= wanted - TIE]
    if not len(above) or len(above) == len(grades):
        raise InputError(
            f"good must be a grade above {grades[0]:g} and up to {grades[-1]:g}, not {wanted:g}"
        )
    return GradeLevels(levels.astype(np.intp), grades, float(above[0]))
