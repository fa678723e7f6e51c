"""Ridge regressions beside those of scipy and statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from textevolve.errors import InputError
from textevolve.statistics.calibration import fit_logistic, log_logistic, logistic

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
    values = fit_logistic(rows, shares, counts, ridge)
    given_to = (rows, shares, counts, ridge)
    other = minimize(logistic_loss, np.zeros(3), given_to, method="BFGS", options={"gtol": 1e-8})
    assert logistic_loss(values, *given_to) <= other.fun + 1e-9
    np.testing.assert_allclose(values, other.x, atol=1e-4)


def test_what_a_plane_parts_has_finite_weights():
    rows = np.array([[1.0], [2.0], [-1.0]])
    values = fit_logistic(rows, np.array([1.0, 1.0, 0.0]), np.ones(3), 1e-3)
    assert np.isfinite(values).all()
    assert values[0] > 1


def test_a_column_of_ones_without_a_penalty_is_the_intercept_of_statsmodels():
    from statsmodels.discrete.discrete_model import Logit

    rng, rows = draw_rows(4, n=300)
    labels = (rng.uniform(size=300) < expit(rows @ [1.0, -0.5, 0.2] - 0.7)).astype(float)
    design = np.column_stack([rows, np.ones(300)])
    theirs = Logit(labels, design).fit(disp=0).params
    ours = fit_logistic(design, labels, np.ones(300), np.full(4, 1e-9))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


@given(st.floats(-700, 700))
def test_logistic_without_overflow(x):
    assert logistic(np.array(x)) == pytest.approx(expit(x), abs=1e-12)
    assert np.isfinite(log_logistic(np.array(x)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fit_logistic(np.ones((2, 1)), np.ones(3), np.ones(2), 1.0), "shape"),
        (lambda: fit_logistic(np.ones((2, 1)), np.ones(2), np.ones(2), 0.0), "above 0"),
    ],
)
def test_what_cannot_be_fitted_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()
