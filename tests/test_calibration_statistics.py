"""Calibration figures against slow definitions written out here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from textevolve.errors import InputError
from textevolve.statistics.calibration import Calibration, bins_for, measure_calibration

probabilities = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.floats(0, 1, allow_nan=False).map(lambda p: round(p, 6)),
)


def measured(
    said: Sequence[float] | NDArray[np.float64],
    came: Sequence[float] | NDArray[np.float64],
    bins: int | None = None,
) -> Calibration:
    """The figures alone, with hardly a draw for their intervals."""
    return measure_calibration(said, came, bins=bins, draws=1)


forecasts = st.lists(st.tuples(probabilities, st.booleans()), min_size=1, max_size=80)


def slow_bins(said: Sequence[float], bins: int) -> list[list[int]]:
    """Places by bin: equal numbers stay together, where the middle one of them falls when all are
    ranked and cut into equal shares."""
    fields: dict[int, list[int]] = {}
    for place, p in enumerate(said):
        middle = sum(q < p for q in said) + Fraction(sum(q == p for q in said), 2)
        fields.setdefault(math.floor(bins * middle / len(said)), []).append(place)
    return [fields[number] for number in sorted(fields)]


@given(forecasts)
def test_the_brier_score_is_its_definition(pairs: list[tuple[float, bool]]):
    values, came = [p for p, _ in pairs], [float(o) for _, o in pairs]
    assert measured(values, came).brier.value == pytest.approx(
        fmean((p - o) ** 2 for p, o in pairs)
    )


@given(forecasts, st.integers(1, 12))
def test_the_error_and_the_curve_are_those_of_bins_counted_one_by_one(
    pairs: list[tuple[float, bool]], bins: int
):
    values, came = [p for p, _ in pairs], [float(o) for _, o in pairs]
    slow = slow_bins(values, bins)
    gaps = [abs(sum(values[i] - came[i] for i in inside)) for inside in slow]
    error = measured(values, came, bins).ece.value
    assert error == pytest.approx(sum(gaps) / len(values), abs=1e-12)
    curve = measured(values, came, bins).curve
    assert [reliability_bin.count for reliability_bin in curve] == [len(inside) for inside in slow]
    for reliability_bin, inside in zip(curve, slow, strict=True):
        assert reliability_bin.probability == pytest.approx(fmean(values[i] for i in inside))
        assert reliability_bin.observed.value == pytest.approx(fmean(came[i] for i in inside))
        assert reliability_bin.low == min(values[i] for i in inside)
        assert reliability_bin.high == max(values[i] for i in inside)


def test_masses_of_bins_are_equal_where_nothing_ties():
    values = np.linspace(0.01, 0.99, 100)
    curve = measured(values, np.zeros(100), 10).curve
    assert [reliability_bin.count for reliability_bin in curve] == [10] * 10
    assert [bins_for(n) for n in (0, 5, 39, 40, 99, 100, 5000)] == [2, 2, 3, 4, 9, 10, 10]


@pytest.mark.slow
def test_a_right_forecaster_errs_as_much_as_chance_makes_him():
    random = np.random.default_rng(1)
    values: list[float] = []
    spoken_values = random.uniform(size=200)
    for _ in range(200):
        came = (random.uniform(size=200) < spoken_values).astype(float)
        values.append(measured(spoken_values, came).ece.value)
    chance = measure_calibration(spoken_values, np.zeros(200)).ece_by_chance
    assert chance == pytest.approx(fmean(values), rel=0.06)


def test_an_overconfident_forecaster_is_told():
    random = np.random.default_rng(2)
    truth = random.uniform(0.3, 0.7, size=400)
    came = (random.uniform(size=400) < truth).astype(float)
    calibration = measure_calibration(np.where(truth > 0.5, 0.95, 0.05), came)
    assert calibration.ece.value > 3 * calibration.ece_by_chance
    assert calibration.brier.value > calibration.base_brier
    assert calibration.ece.interval.low < calibration.ece.value < calibration.ece.interval.high


def test_intervals_are_drawn_by_group():
    """Ten copies of each pair: one group a pair knows no more than the pairs alone."""
    random = np.random.default_rng(3)
    values = random.uniform(size=40)
    came = (random.uniform(size=40) < values).astype(float)
    alone = measure_calibration(values, came, bins=4)
    copied = measure_calibration(
        np.repeat(values, 10), np.repeat(came, 10), np.repeat(np.arange(40), 10).tolist(), bins=4
    )
    assert copied.brier.value == pytest.approx(alone.brier.value)
    assert copied.brier.interval.low == pytest.approx(alone.brier.interval.low)
    assert copied.brier.interval.high == pytest.approx(alone.brier.interval.high)


def test_what_is_missing_is_left_out_and_nothing_is_no_figure():
    nan = math.nan
    calibration = measure_calibration([0.2, nan, 0.9, 0.5], [0, 1, 1, nan], ["a", "a", "b", "b"])
    assert calibration.items == 2
    assert calibration.brier.value == pytest.approx((0.04 + 0.01) / 2)
    empty = measure_calibration([nan], [1])
    assert empty.items == 0
    assert empty.curve == ()
    assert all(math.isnan(s.value) for s in (empty.brier, empty.ece))
    assert math.isnan(empty.ece_by_chance)
    assert math.isnan(empty.base_rate)


@pytest.mark.parametrize(
    ("said", "came", "told"),
    [
        ([1.2], [1], "each probability must lie"),
        ([0.5], [2], "each outcome must lie"),
        ([0.5, 0.5], [1], "2 and 1"),
    ],
)
def test_what_is_no_probability_is_refused(said: list[float], came: list[float], told: str):
    with pytest.raises(InputError, match=told):
        measure_calibration(said, came)


def test_a_bin_is_needed():
    with pytest.raises(InputError, match="at least one bin"):
        measured([0.5], [1], 0)
