"""Calibration of probabilities: Brier score and calibration error.

A probability was predicted for an event; its outcome is 1 if the event occurred and 0 if not, or
the share of people who say that it did. A pair with a NaN is left out, and without pairs a
statistic is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from textevolve.errors import InputError
from textevolve.statistics.clusters import cluster_share
from textevolve.statistics.intervals import (
    DRAWS,
    UNIT,
    Array,
    Groups,
    Numbers,
    Statistic,
    bootstrap_interval,
    complete_pairs,
    mean_interval,
    mean_present,
    ratio,
)

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
    gaps, base = _gaps(predicted, came, numbers), mean_present(came)
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
