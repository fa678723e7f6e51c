"""Ridge regressions beside those of scipy and statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from statsmodels.discrete.discrete_model import Logit
from statsmodels.miscmodels.ordinal_model import OrderedModel

from textevolve.errors import InputError
from textevolve.statistics.regression import (
    fit_logistic,
    fit_ordinal,
    level_chances,
    log_logistic,
    logistic,
)

seeds = st.integers(0, 10_000)
ridges = st.sampled_from([0.01, 0.3, 3.0, 100.0])


def draw_rows(seed, n=60, k=3):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, k)) * rng.uniform(0.2, 3, k)


def logistic_loss(weights, rows, shares, counts, ridge):
    odds = rows @ weights
    loss = counts * (np.logaddexp(0, odds) - shares * odds)
    return loss.sum() + ridge / 2 * weights @ weights


@given(seeds, ridges)
def test_logistic_is_the_minimum_that_scipy_finds(seed, ridge):
    rng, rows = draw_rows(seed)
    shares = rng.choice([0.0, 0.5, 1.0], len(rows))
    counts = rng.uniform(0.2, 1, len(rows))
    found = fit_logistic(rows, shares, counts, ridge)
    given_to = (rows, shares, counts, ridge)
    other = minimize(logistic_loss, np.zeros(3), given_to, method="BFGS", options={"gtol": 1e-8})
    assert logistic_loss(found, *given_to) <= other.fun + 1e-9
    np.testing.assert_allclose(found, other.x, atol=1e-4)


def test_logistic_is_that_of_statsmodels_where_nothing_is_penalised():
    rng, rows = draw_rows(3, n=300)
    labels = (rng.uniform(size=300) < expit(rows @ [1.0, -0.5, 0.2])).astype(float)
    theirs = Logit(labels, rows).fit(disp=0).params
    np.testing.assert_allclose(
        fit_logistic(rows, labels, np.ones(300), 1e-9), theirs, rtol=1e-6, atol=1e-8
    )


def test_what_a_plane_parts_has_finite_weights():
    rows = np.array([[1.0], [2.0], [-1.0]])
    found = fit_logistic(rows, np.array([1.0, 1.0, 0.0]), np.ones(3), 1e-3)
    assert np.isfinite(found).all()
    assert found[0] > 1


def draw_levels(rng, rows, number):
    levels = rng.integers(0, number, len(rows))
    levels[:number] = range(number)  # each is there
    return levels


def ordinal_loss(found, rows, levels, number, ridge):
    cuts, weights = found[: number - 1], found[number - 1 :]
    if (np.diff(cuts) <= 0).any():
        return 1e9
    chances = level_chances(rows @ weights, cuts)[np.arange(len(levels)), levels]
    return -np.log(np.maximum(chances, 1e-300)).sum() + ridge / 2 * weights @ weights


@given(seeds, ridges, st.integers(2, 6))
def test_ordinal_is_a_minimum(seed, ridge, number):
    """No slope is left, and no point beside it is lower."""
    rng, rows = draw_rows(seed)
    levels = draw_levels(rng, rows, number)
    weights, cuts = fit_ordinal(rows, levels, ridge)
    found = np.concatenate([cuts, weights])
    here = ordinal_loss(found, rows, levels, number, ridge)
    for _ in range(20):
        beside = found + rng.normal(size=found.size) * 10.0 ** rng.integers(-4, 0)
        assert ordinal_loss(beside, rows, levels, number, ridge) >= here - 1e-9
    other = minimize(
        ordinal_loss, found + 0.01, (rows, levels, number, ridge), method="Nelder-Mead"
    )
    assert here <= other.fun + 1e-6


def test_ordinal_is_that_of_statsmodels_where_nothing_is_penalised():
    rng, rows = draw_rows(5, n=400)
    noise = rng.logistic(size=400)
    levels = np.digitize(rows @ [0.8, -0.4, 0.1] + noise, [-1.5, 0.2, 1.4])
    model = OrderedModel(levels, rows, distr="logit").fit(method="bfgs", disp=0, gtol=1e-8)
    weights, cuts = fit_ordinal(rows, levels, 1e-9)
    np.testing.assert_allclose(weights, model.params[:3], atol=1e-4)
    theirs = model.model.transform_threshold_params(model.params)[1:-1]
    np.testing.assert_allclose(cuts, theirs, atol=1e-4)


@given(seeds, ridges)
def test_two_levels_are_a_logistic_regression_with_an_intercept(seed, ridge):
    rng, rows = draw_rows(seed, k=2)
    levels = draw_levels(rng, rows, 2)
    weights, (cut,) = fit_ordinal(rows, levels, ridge)

    def loss(found):
        odds = rows @ found[:2] - found[2]
        return (np.logaddexp(0, odds) - levels * odds).sum() + ridge / 2 * found[:2] @ found[:2]

    other = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose([*weights, cut], other.x, atol=1e-4)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=5), st.integers(1, 4))
def test_chances_of_levels_are_chances(utilities, number):
    chances = level_chances(np.array(utilities), np.arange(float(number)))
    assert (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1)


@given(st.floats(-700, 700))
def test_logistic_without_overflow(x):
    assert logistic(np.array(x)) == pytest.approx(expit(x), abs=1e-12)
    assert np.isfinite(log_logistic(np.array(x)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit_logistic(np.ones((2, 1)), np.ones(3), np.ones(2), 1.0), "shape"),
        (lambda: fit_logistic(np.ones((2, 1)), np.ones(2), np.ones(2), 0.0), "above 0"),
        (lambda: fit_ordinal(np.ones((2, 1)), np.array([0, 2]), 1.0), "each with a row"),
        (lambda: fit_ordinal(np.ones((2, 1)), np.array([0, 0]), 1.0), "two levels"),
    ],
)
def test_what_cannot_be_fitted_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()
