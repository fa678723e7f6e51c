"""The sequential test against every pattern of signs there is."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from textevolve.errors import InputError
from textevolve.statistics.comparisons import (
    CASES_BETWEEN_FALSE_ALARMS,
    add_evidence,
    fewest_units,
    look_levels,
    sequential_test,
    sign_flip_test,
)
from textevolve.statistics.comparisons import ONE_SIDED_ALPHA as ALPHA

SIZES = {
    "right or wrong": [1.0] * 10,
    "graded": [0.05, 0.9, 0.1, 0.4, 0.35, 0.7, 0.25, 0.2, 0.65, 0.8],
    "one is large": [3.0, *[0.1] * 8],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(
    ("cuts", "levels"), [([], [ALPHA]), ([6], [0.02, ALPHA]), ([3, 7], [0.13, 0.14, 0.2])]
)
def test_of_all_patterns_of_signs_no_more_than_the_level_is_accepted(sizes, cuts, levels):
    accepted = 0
    for signs in itertools.product((1, -1), repeat=len(sizes)):
        given = [sign * size for sign, size in zip(signs, sizes, strict=True)]
        ends = [0, *cuts, len(given)]
        blocks = [given[start:end] for start, end in itertools.pairwise(ends)]
        looks = sequential_test(blocks, levels)
        assert looks[-1].accepted or len(looks) == len(blocks)
        accepted += looks[-1].accepted
    assert 0 < accepted / 2 ** len(sizes) <= levels[-1]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_levels_grow_to_the_whole(count):
    levels = look_levels(count)
    assert len(levels) == count
    assert levels == sorted(levels)
    assert levels[-1] == ALPHA
    assert count == 1 or levels[0] == pytest.approx(ALPHA * (0.2 + 0.8 / count**2))


@pytest.mark.parametrize("half", [3, 5, 7, 12])
def test_two_looks_at_right_and_wrong_spend_no_more_than_the_level(half):
    chance = 0.0
    for first_count, second_count in itertools.product(range(half + 1), repeat=2):
        blocks = [[1.0] * wins + [-1.0] * (half - wins) for wins in (first_count, second_count)]
        if sequential_test(blocks, look_levels(2))[-1].accepted:
            chance += math.comb(half, first_count) * math.comb(half, second_count) / 4**half
    assert ALPHA / 5 < chance <= ALPHA


def test_a_single_look_is_the_exact_test():
    wins = [1.0] * 9 + [-1.0] * 2 + [0.0] * 5
    (look,) = sequential_test([wins], [ALPHA])
    assert look.p == pytest.approx(binomtest(9, 11).pvalue / 2)
    graded = [0.3, -0.1, 0.25, 0.4, 0.05, -0.2, 0.6, 0.15]
    (look,) = sequential_test([graded], [ALPHA])
    assert look.p == pytest.approx(sign_flip_test(graded, [0.0] * len(graded)).p / 2)


def test_what_is_no_gain_is_never_accepted():
    for values in ([], [0.0] * 20, [-1.0] * 20, [1.0] * (fewest_units() - 1)):
        assert not sequential_test([values], [ALPHA])[-1].accepted
    assert sequential_test([[1.0] * fewest_units()], [ALPHA])[-1].accepted


RATES = st.floats(0.01, 0.99)


@given(RATES, st.floats(0, 1e4))
def test_evidence_grows_by_one_while_the_rate_holds(rate, evidence):
    after = rate * add_evidence(evidence, True, rate)
    after += (1 - rate) * add_evidence(evidence, False, rate)
    assert after == pytest.approx(1 + evidence)
    assert add_evidence(evidence, True, rate) < 1 + evidence < add_evidence(evidence, False, rate)


@given(RATES, st.lists(st.booleans(), min_size=1, max_size=30))
def test_evidence_sums_the_likelihood_ratios_from_each_beginning(rate, passed):
    evidence = 0.0
    for each in passed:
        evidence = float(add_evidence(evidence, each, rate))
    fallen = max(rate - 0.1, rate / 2)
    ratios = [fallen / rate if each else (1 - fallen) / (1 - rate) for each in passed]
    expected = math.fsum(math.prod(ratios[start:]) for start in range(len(ratios)))
    assert evidence == pytest.approx(expected)


def test_streams_side_by_side_are_those_one_by_one():
    passed = np.array([True, False, True])
    together = add_evidence(np.array([0.0, 3.0, 9.0]), passed, 0.8)
    single = [float(add_evidence(e, bool(p), 0.8)) for e, p in zip([0, 3, 9], passed, strict=True)]
    assert together.tolist() == pytest.approx(single)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, math.nan])
def test_a_rate_at_the_edge_is_refused(rate):
    with pytest.raises(InputError, match="above 0 and below 1"):
        add_evidence(0.0, True, rate)


@pytest.mark.slow
def test_mean_cases_to_a_false_alarm():
    generator = np.random.default_rng(5)
    evidence = np.zeros(200)
    cases = np.full(200, 60_000)
    for case in range(1, 60_000):
        evidence = add_evidence(evidence, generator.random(200) < 0.7, 0.7)
        cases[(evidence >= CASES_BETWEEN_FALSE_ALARMS) & (cases == 60_000)] = case
    assert cases.mean() + 3 * cases.std() / math.sqrt(200) >= CASES_BETWEEN_FALSE_ALARMS
