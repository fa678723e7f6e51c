"""Calibration of probabilities: Brier score and calibration error.

A probability was predicted for an event; its outcome is 1 if the event occurred and 0 if not, or
the share of people who say that it did. A pair with a NaN is left out, and without pairs a
statistic is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from textevolve.errors import InputError
from textevolve.loading import NDArray, np
from textevolve.statistics.intervals import (
    DRAWS,
    UNIT,
    Array,
    Groups,
    Numbers,
    Statistic,
    bootstrap_interval,
    cluster_share,
    complete_pairs,
    mean_interval,
    mean_present,
    ratio,
)

# Logistic regression with a ridge penalty, by Newton's method.
#
# The functions are pure arithmetic on arrays; the caller chooses the variables and the strength of
# the penalty.


STEPS = 100
HALVINGS = 50
CLOSE = 1e-12
"""The size of Newton's decrement, as a share of the function's value, at which the minimum counts
as reached."""


def logistic(x: Array) -> Array:
    """Compute 1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


def log_logistic(x: Array) -> Array:
    """Compute the logarithm of the logistic function, accurate also for tiny values."""
    return np.asarray(-np.logaddexp(0.0, -x))


def fit_logistic(rows: Array, shares: Array, counts: Array, ridge: float | Array) -> Array:
    """Fit a logistic regression to `rows` (n, k), and return its weights (k,).

    It minimises sum(counts * cross-entropy(shares, logistic(rows @ weights))) + sum(ridge *
    weights^2) / 2, in natural logarithms. `ridge` may differ between weights, as for an intercept,
    which is the weight of a column of ones. `shares` lie in [0, 1]; a tie is one half (Papke and
    Wooldridge 1996, "Econometric methods for fractional response variables"). With a ridge above 0
    the function is strictly convex and has one minimum, even if a plane separates the rows, which
    damped Newton steps find (Boyd and Vandenberghe 2004, 9.5).

    Raises:
        InputError: the shapes do not fit, or the ridge is not above 0.
    """
    if rows.ndim != 2 or any(each.shape != (len(rows),) for each in (shares, counts)):
        raise InputError(
            f"rows must have the shape (n, k), and targets n numbers, not {rows.shape}"
        )

    strengths = np.broadcast_to(ridge, rows.shape[1])
    if not (strengths > 0).all():
        raise InputError(f"the ridge must be above 0, not {ridge}")

    # The value of the function, its gradient (k,) and its second derivative (k, k).
    def slopes(weights: Array) -> tuple[float, Array, Array]:
        odds = rows @ weights
        chance = logistic(odds)
        losses = shares * log_logistic(odds) + (1 - shares) * log_logistic(-odds)
        value = float((strengths * weights) @ weights / 2 - counts @ losses)
        gradient = strengths * weights - rows.T @ (counts * (shares - chance))
        spread = counts * chance * (1 - chance)
        curvature = (rows.T * spread) @ rows + np.diag(strengths)
        return value, gradient, curvature

    here = np.zeros(rows.shape[1])
    value, gradient, curvature = slopes(here)

    for _ in range(STEPS):
        step = -np.linalg.solve(curvature, gradient)
        promise = float(gradient @ step)
        if -promise <= CLOSE * (1 + abs(value)):
            break
        size = 1.0

        for _ in range(HALVINGS):
            there = here + size * step
            slopes_there = slopes(there)
            # A step is halved until it lowers the function by a share of what its slope predicts
            # (Armijo).
            if slopes_there[0] <= value + 1e-4 * size * promise:
                break
            size /= 2
        else:
            break  # nothing lower can be told apart in floating point

        here = there
        (value, gradient, curvature) = slopes_there

    return here


BINS = 10  # the default for the largest number of bins
LEAST_IN_BIN = 10


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """A bin of `count` similar probabilities from `low` to `high`: their mean (`probability`), and
    the share of their events that occurred (`observed`), with a Wilson interval by group."""

    low: float
    high: float
    count: int
    probability: float
    observed: Statistic


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration figures of `items` pairs of probability and outcome, with 95 % intervals by
    group.

    Attributes:
        brier: The Brier score: the mean squared difference between probability and outcome.
        ece: The expected calibration error. It is never below 0; with few pairs it is above 0 even
            if every probability is right.
        ece_by_chance: The calibration error that would be expected if every probability were right.
        base_rate: The mean outcome.
        base_brier: The Brier score of always predicting the base rate, which useful predictions
            must beat.
        curve: The bins of the calibration curve.
    """

    items: int
    brier: Statistic
    ece: Statistic
    ece_by_chance: float
    base_rate: float
    base_brier: float
    curve: tuple[ReliabilityBin, ...]


def measure_calibration(
    probabilities: Numbers,
    outcomes: Numbers,
    groups: Groups | None = None,
    *,
    bins: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Calibration:
    """Compute all calibration figures with their intervals; items of the same group are not
    independent.

    Brier (1950), "Verification of forecasts expressed in terms of probability", for one of two
    classes. The calibration error is that of Naeini et al. (2015), "Obtaining well calibrated
    probabilities using Bayesian binning", with the bins of equal mass of Nixon et al. (2019),
    "Measuring calibration in deep learning"; equal probabilities share a bin. `bins`: the number of
    bins, by default that of `bins_for`.

    Raises:
        InputError: a number is outside [0, 1], the numbers of probabilities and outcomes differ, or
            there is no bin.
    """
    predicted, came, clusters = complete_pairs(probabilities, outcomes, groups)
    for name, side in (("probability", predicted), ("outcome", came)):
        if side.size and not (side.min() >= 0 and side.max() <= 1):
            raise InputError(f"each {name} must lie in [0, 1]; convert other scales first")
    numbers = _numbers_of_bins(predicted, bins)
    bin_masks = [numbers == number for number in np.unique(numbers)]
    names = clusters.tolist()
    gaps = _gaps(predicted, came, numbers)
    base = mean_present(came)
    ends = bootstrap_interval(gaps, _error_of, names, draws=draws, seed=seed, bounds=UNIT)
    squares = (predicted - came) ** 2
    spread = mean_interval(squares, names, draws=draws, seed=seed, bounds=UNIT)

    return Calibration(
        items=int(predicted.size),
        brier=Statistic(mean_present(squares), spread),
        ece=Statistic(float(_error_of(gaps.sum(axis=0))), ends),
        ece_by_chance=_error_by_chance(predicted, numbers),
        base_rate=base,
        base_brier=mean_present((base - came) ** 2),
        curve=tuple(_bin(predicted[b], came[b], clusters[b]) for b in bin_masks),
    )


def bins_for(items: int) -> int:
    """Return the number of bins: `BINS`, or fewer so that each has `LEAST_IN_BIN` pairs; at least
    2."""
    return max(2, min(BINS, items // LEAST_IN_BIN))


def _numbers_of_bins(predicted: Array, bins: int | None) -> NDArray[np.intp]:
    """Return the bin of each probability, by its rank; equal probabilities share the bin of their
    middle rank."""
    number = bins_for(predicted.size) if bins is None else bins
    if number < 1:
        raise InputError(f"a calibration error needs at least one bin, not {number}")
    if not predicted.size:
        return np.zeros(0, dtype=np.intp)
    ranked = np.sort(predicted)
    below, within = (np.searchsorted(ranked, predicted, side) for side in ("left", "right"))

    return number * (below + within) // (2 * predicted.size)


def _gaps(predicted: Array, came: Array, numbers: NDArray[np.intp]) -> Array:
    """Return for each pair a row to be summed (pairs, bins + 1): prediction minus outcome in the
    column of its bin, and 1 in the last column."""
    features = np.zeros((predicted.size, int(numbers.max(initial=0)) + 2))
    features[np.arange(predicted.size), numbers] = predicted - came
    features[:, -1] = 1.0
    return features


def _error_of(sums: Array) -> Array:
    """Compute the calibration error from sums of the rows of `_gaps`, whose shape is (..., bins +
    1)."""
    return ratio(np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1])


def _error_by_chance(predicted: Array, numbers: NDArray[np.intp]) -> float:
    """Return the calibration error expected if outcomes follow the probabilities: in each bin
    predictions and outcomes differ by a normal error, whose mean size is sqrt(2 / pi) standard
    deviations."""
    if not predicted.size:
        return math.nan
    variances = np.bincount(numbers, weights=predicted * (1 - predicted))
    return float(np.sqrt(2 / math.pi * variances).sum() / predicted.size)


def _bin(predicted: Array, came: Array, groups: NDArray[np.intp]) -> ReliabilityBin:
    return ReliabilityBin(
        low=float(predicted.min()),
        high=float(predicted.max()),
        count=int(predicted.size),
        probability=float(predicted.mean()),
        observed=cluster_share(came, groups.tolist()),
    )
