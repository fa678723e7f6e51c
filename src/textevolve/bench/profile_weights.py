"""Weights of a profile's components by people's labels: arithmetic on scores that are there.

The regression is that of fitted judges (`fitting.py`), without weights below 0, since a profile has
none. Where the scores come from is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from textevolve.bench.fitting import (
    INNER_FOLDS,
    Mask,
    Problem,
    choose_ridge,
    draw_folds,
    pose_problem,
    split_folds,
)
from textevolve.bench.items import Item
from textevolve.bench.labelled_signals import LabelledSignals
from textevolve.statistics.resampling import Array

FEWEST_ITEMS, FEWEST_QUESTIONS = 6, 5
"""Below which nothing is fitted: with so few items almost any weights look better."""
CLEAR = 1e-9


def fit_weights(
    items: Sequence[Item], scores: Sequence[Array], names: Sequence[str], seed: int = 0
) -> Array | None:
    """Weights (k,) in [0, 1], the highest 1, under which the candidates of highest weighted score
    are people's. `scores`: of each item (candidates, k).

    None where there are too few items, or no component speaks for people's choice.
    """
    if len(items) < FEWEST_ITEMS:
        return None
    data = LabelledSignals(tuple(names), tuple(items), np.vstack(scores), {}, 0)
    if len(np.unique(data.group_of)) < FEWEST_QUESTIONS:
        return None
    found = _fit(pose_problem(data, "pairs"), np.ones(len(items), dtype=np.bool_), seed)
    return found if found.any() else None


def gain_of_fit(
    items: Sequence[Item],
    scores: Sequence[Array],
    current: Mapping[str, float],
    seed: int = 0,
) -> float:
    """How much more credit an item has on average under weights that were fitted without its
    question than under the `current` ones, which stand in the order of the components."""
    data = LabelledSignals(tuple(current), tuple(items), np.vstack(scores), {}, 0)
    problem = pose_problem(data, "pairs")
    texts = np.zeros(len(data.owner))
    for learnt, held in split_folds(draw_folds(data.group_of, INNER_FOLDS, seed)):
        weights = _fit(problem, learnt, seed)
        chosen = held[data.owner]
        texts[chosen] = data.values[chosen] @ weights
    now = data.values @ np.array(list(current.values()))
    return float((data.credits(texts) - data.credits(now)).mean())


def _fit(problem: Problem, items: Mask, seed: int) -> Array:
    """All 0 where nothing speaks for people's choice. A component that would speak against it is
    left out, and the others are fitted anew."""
    ridge = choose_ridge(problem, items, seed)
    columns = list(range(len(problem.data.names)))
    while columns:
        found = problem.fit(items, columns, ridge)
        weights: Array = np.asarray(found.weights / found.scales)
        if (weights[columns] > CLEAR).all():
            highest = float(weights.max())
            return np.array([round(float(weight) / highest, 2) for weight in weights])
        columns = [column for column in columns if weights[column] > CLEAR]
    return np.zeros(len(problem.data.names))
