"""Drawing items to label in strata of judges' verdicts, and the means over them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.labelling.drawing import (
    REST,
    TIED,
    allocate,
    draw_items,
    name_strata,
)
from textevolve.statistics.strata import stratified_mean, weigh_items

sizes = st.lists(st.integers(1, 60), min_size=1, max_size=6)


def test_strata_are_the_judges_that_agree():
    votes = [(0, 0, 1)] * 10 + [(1, 1, 0)] * 10 + [(0, None, TIED)] * 10 + [(0, 1, TIED)]
    names = name_strata(votes)
    assert names == ["aab"] * 20 + ["a-c"] * 10 + [REST]
    assert set(name_strata([(1, 0)] * 5 + [(0, 1)] * 5, directed=True)) == {"pf", "fp"}


@given(sizes, st.integers(0, 80), st.data())
def test_labels_are_distributed_completely_and_within_bounds(counts, further, data):
    by_name = {f"s{n}": count for n, count in enumerate(counts)}
    known = {name: data.draw(st.integers(0, size)) for name, size in by_name.items()}
    least = sum(max(0, min(2, size) - known[name]) for name, size in by_name.items())
    if further < least:
        with pytest.raises(InputError, match="too few"):
            allocate(by_name, known, further)
        return

    added = allocate(by_name, known, further)
    assert sum(added.values()) == min(further, sum(counts) - sum(known.values()))
    assert all(0 <= added[name] <= size - known[name] for name, size in by_name.items())


def test_each_stratum_gets_its_share_of_all_labels():
    by_name = {"a": 600, "b": 300, "c": 100}
    assert allocate(by_name, {}, 100) == {"a": 60, "b": 30, "c": 10}
    assert allocate(by_name, {"a": 60, "b": 30, "c": 10}, 100) == {"a": 60, "b": 30, "c": 10}


def test_a_second_draw_takes_other_items():
    strata = ["aa"] * 80 + ["ab"] * 40
    first = draw_items(strata, set(), 30, 1)
    assert sorted(first.values()) == [("aa", 80)] * 20 + [("ab", 40)] * 10
    second = draw_items(strata, set(first), 30, 2)
    assert not set(first) & set(second)
    assert sorted(second.values()) == sorted(first.values())


def test_the_mean_is_that_of_all_items_in_the_mean_over_draws():
    generator = np.random.default_rng(0)
    values = np.concatenate([generator.random(300) < 0.9, generator.random(100) < 0.3]) * 1.0
    strata = ["a"] * 300 + ["b"] * 100
    estimates = []
    held = []
    for seed in range(200):
        drawn = draw_items(strata, set(), 60, seed)
        places = list(drawn)
        names = list(drawn.values())
        weights = weigh_items(names, np.ones(60, dtype=bool))
        assert weights.sum() == pytest.approx(400)
        figure = stratified_mean(values[places], names, weights)
        estimates.append(figure.value)
        held.append(figure.interval.low <= values.mean() <= figure.interval.high)
    error = np.std(estimates) / math.sqrt(200)
    assert np.mean(estimates) == pytest.approx(values.mean(), abs=3 * error)
    assert np.mean(held) >= 0.93


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, math.nan]), min_size=4, max_size=40))
def test_one_stratum_is_a_plain_mean(values):
    present = [value for value in values if value == value]
    names = [("a", 1000)] * len(values)
    figure = stratified_mean(values, names, weigh_items(names, np.ones(len(values), dtype=bool)))
    if present:
        assert figure.value == pytest.approx(np.mean(present))
    else:
        assert math.isnan(figure.value)


def test_equal_values_in_a_stratum_are_no_certainty():
    names = [("a", 500)] * 10
    figure = stratified_mean([1.0] * 10, names, weigh_items(names, np.ones(10, dtype=bool)))
    assert (figure.value, figure.interval.high) == (1.0, 1.0)
    assert 0.6 < figure.interval.low < 0.95
