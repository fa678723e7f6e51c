"""Bradley-Terry against scipy and by hand, and the sort."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

from textevolve.judges.pairwise import bradley_terry, mean_wins

few = settings(max_examples=min(40, settings().max_examples))


@few
@given(
    st.integers(2, 5).flatmap(
        lambda n: arrays(np.float64, (n, n), elements=st.sampled_from([0, 0.5, 1, 3, 10]))
    ),
    st.sampled_from([0.01, 0.1, 1.0]),
)
def test_bradley_terry_is_the_maximum_that_scipy_finds(wins, prior):
    def loss(logs):
        total = prior * (np.logaddexp(0, logs) + np.logaddexp(0, -logs)).sum()
        for a, b in itertools.permutations(range(len(wins)), 2):
            total += wins[a, b] * np.logaddexp(0, logs[b] - logs[a])
        return total

    np.fill_diagonal(wins, 0)
    values = bradley_terry(wins, prior)
    expected = optimize.minimize(loss, np.zeros(len(wins)), method="BFGS", options={"gtol": 1e-7})
    assert np.isfinite(values).all()
    assert values.mean() == pytest.approx(0, abs=1e-9)
    assert values == pytest.approx(expected.x - expected.x.mean(), abs=2e-3)


def test_bradley_terry_by_hand():
    assert bradley_terry(np.array([[0, 30], [10, 0]]), prior=1e-9) == pytest.approx(
        [math.log(3) / 2, -math.log(3) / 2]
    )
    assert bradley_terry(np.array([[0, 1.5], [1.5, 0]])) == pytest.approx([0, 0])
    assert bradley_terry(np.zeros((3, 3))) == pytest.approx([0, 0, 0])
    wins = np.array([[0, 1000, 1000], [0, 0, 500], [0, 500, 0]])
    undefeated = bradley_terry(wins, prior=1e-3)
    assert undefeated[0] > undefeated[1] == pytest.approx(undefeated[2])


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=6))
def test_strengths_are_found_again_from_exact_shares_of_wins(strengths):
    logs = np.array(strengths) - np.mean(strengths)
    wins = 1 / (1 + np.exp(logs[None, :] - logs[:, None]))
    np.fill_diagonal(wins, 0)
    values = bradley_terry(wins * 1e6, prior=1e-6)
    assert values == pytest.approx(logs, abs=1e-3)
    shares = mean_wins(values)
    assert ((shares >= 0) & (shares <= 1)).all()
    assert shares.mean() == pytest.approx(0.5)
