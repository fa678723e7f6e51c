"""The sequential test against every pattern of signs there is."""

import itertools
import math

import pytest
from scipy.stats import binomtest

from textevolve.statistics.comparisons import ONE_SIDED_ALPHA as ALPHA
from textevolve.statistics.comparisons import (
    fewest_units,
    look_levels,
    sequential_test,
    sign_flip_test,
)

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
