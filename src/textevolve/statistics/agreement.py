"""Agreement of raters beyond chance (kappa, alpha), and the power of a score to separate passes
from failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations

from textevolve.loading import np
from textevolve.statistics.intervals import (
    DRAWS,
    TIE,
    UNIT,
    Array,
    Groups,
    Numbers,
    Statistic,
    bootstrap_interval,
    complete_pairs,
    draw_weights,
    ratio,
    resampling_interval,
)


def kappa_of(tables: Array) -> Array:
    """Compute Cohen's kappa of each table (..., q, q) of the classes of two raters, shape (...).

    Cohen (1960), "A coefficient of agreement for nominal scales", eq. 1: (po - pe) / (1 - pe),
    where pe is the sum over classes of the product of both raters' shares. It is NaN if pe is 1,
    which means that both raters use only one and the same class.
    """
    total = tables.sum(axis=(-2, -1))
    agreed = ratio(np.trace(tables, axis1=-2, axis2=-1), total)
    chance = ratio((tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1), total**2)
    room = 1 - chance

    return ratio(agreed - chance, np.where(room > TIE, room, 0.0))


def alpha_of(tables: Array, distance: Array) -> Array:
    """Compute Krippendorff's alpha of each table of coincidences (..., q, q), shape (...).

    Krippendorff (2011), "Computing Krippendorff's alpha-reliability": 1 - Do / De. An item that m
    raters classified adds 1 / (m - 1) to the table for each ordered pair of them, so that items may
    have any number of raters from 2. `distance` (q, q): the distance of two classes, 0 for equal
    ones; for nominal classes 1 for all others, for an interval scale the squared difference. It is
    NaN if all ratings are the same class.
    """
    used = tables.sum(axis=-1)
    total = used.sum(axis=-1)
    seen = ratio((tables * distance).sum(axis=(-2, -1)), total)
    products = used[..., :, None] * used[..., None, :]
    chance = ratio((products * distance).sum(axis=(-2, -1)), total * (total - 1))

    return 1 - ratio(seen, np.where(chance > TIE, chance, 0.0))


def table_statistic(
    tables: Array, measure: Callable[[Array], Array], groups: Groups | None, *, seed: int
) -> Statistic:
    """Compute a measure of the sum of tables (items, q, q), with its interval by group."""
    shape = tables.shape[1:]
    interval = bootstrap_interval(
        tables.reshape(len(tables), math.prod(shape)),
        lambda sums: measure(sums.reshape(*sums.shape[:-1], *shape)),
        groups,
        seed=seed,
        bounds=(-1, 1),
    )

    return Statistic(float(measure(tables.sum(axis=0))), interval)


def coincidences(ratings: Sequence[Sequence[int]], classes: int) -> Array:
    """Return a table of coincidences for each item (items, q, q), as `alpha_of` describes it, of
    the classes, from 0, that its raters chose; their number may vary."""
    tables = np.zeros((len(ratings), classes, classes))
    for table, raters in zip(tables, ratings, strict=True):
        for a, b in permutations(raters, 2):
            table[a, b] += 1 / (len(raters) - 1)

    return tables


def krippendorff_alpha(
    ratings: Sequence[Sequence[int]],
    classes: int,
    groups: Groups | None,
    *,
    squared: bool = False,
    seed: int,
) -> Statistic:
    """Compute Krippendorff's alpha, nominal or for squared differences (`squared`), with its
    interval by group. `ratings`: as in `coincidences`."""
    places = np.arange(classes, dtype=np.float64)
    gaps = np.abs(places[:, None] - places[None, :])
    distance = gaps**2 if squared else np.sign(gaps)
    tables = coincidences(ratings, classes)

    return table_statistic(tables, lambda sums: alpha_of(sums, distance), groups, seed=seed)


def area_under_curve(
    scores: Numbers, passed: Numbers, groups: Groups | None = None, *, seed: int = 0
) -> Statistic:
    """Compute the area under the ROC curve, with its interval by group: the probability that an
    item that passed has a higher score than one that failed, ties half. NaN if all are of one kind.

    Hanley and McNeil (1982), "The meaning and use of the area under a receiver operating
    characteristic (ROC) curve".
    """
    ours, labels, numbers = complete_pairs(scores, passed, groups)
    names, places = np.unique(numbers, return_inverse=True)
    drawn = draw_weights(names.size, DRAWS, seed) if names.size else [np.ones((1, 0))]
    each = [weighted_area(ours, labels, weights[:, places]) for weights in drawn]
    interval = resampling_interval(np.concatenate(each))
    value = float(weighted_area(ours, labels, np.ones(ours.size)))

    return Statistic(value, interval.clipped(*UNIT))


def weighted_area(scores: Array, passed: Array, weights: Array) -> Array:
    """Compute the area under the ROC curve for each row of weights (..., items), shape (...)."""
    if not scores.size:
        return np.full(weights.shape[:-1], math.nan)
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-math.inf))
    won, lost = (
        np.add.reduceat((weights * side)[..., order], starts, axis=-1)
        for side in (passed, 1 - passed)
    )
    below = np.cumsum(lost, axis=-1) - lost / 2

    return ratio((won * below).sum(axis=-1), won.sum(axis=-1) * lost.sum(axis=-1))


def best_threshold(scores: Array, passed: Array) -> float:
    """Return the threshold of scores at which Cohen's kappa with the labels (NaN: none) is highest.
    It lies halfway between two scores; of equally good ones it is the nearest to one half. NaN if
    there is none."""
    ours, labels, _ = complete_pairs(scores, passed)
    values, places = np.unique(ours, return_inverse=True)
    counts = np.zeros((2, values.size))
    np.add.at(counts, (labels.astype(np.intp), places), 1.0)
    failed = np.cumsum(counts, axis=1)[:, :-1].T
    tables = np.stack([failed, counts.sum(axis=1) - failed], axis=1)
    kappas = np.nan_to_num(kappa_of(tables), nan=-math.inf)
    best = np.flatnonzero(kappas >= kappas.max(initial=-math.inf) - TIE)
    if not best.size or math.isinf(kappas[best[0]]):
        return math.nan
    halfway = (values[best] + values[best + 1]) / 2

    return float(halfway[np.abs(halfway - 0.5).argmin()])
