"""Which first rounds may stand: the curve by hand, bounds against scipy, the guarantee by trial."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from textevolve.bench.escalation import (
    binomial_tail,
    coverage_risk_curve,
    select_threshold,
    upper_bound,
)

NAN = math.nan


@given(st.integers(1, 3000), st.data())
def test_the_binomial_tail_is_scipys(trials, data):
    most = data.draw(st.integers(0, trials))
    share = data.draw(st.floats(0, 1))
    expected = stats.binom.cdf(most, trials, share)
    assert binomial_tail(most, trials, share) == pytest.approx(expected, rel=1e-8, abs=1e-12)


@given(st.integers(1, 3000), st.data())
def test_the_bound_is_that_of_clopper_and_pearson(items, data):
    errors = data.draw(st.integers(0, items))
    doubt = data.draw(st.floats(0.001, 0.5))
    expected = 1.0 if errors == items else stats.beta.ppf(1 - doubt, errors + 1, items - errors)
    assert upper_bound(errors, items, doubt) == pytest.approx(expected, rel=1e-7)


CERTAINTY = (1.0, 1.0, 0.9, 0.7, 0.5, NAN)
FIRST = (1.0, 1.0, 0.0, 1.0, 0.5, NAN)
DEBATE = (1.0, 0.0, 1.0, 1.0, 1.0, 0.0)


def spending(first, second):
    return {"calls": (first, second, second)}


CALLS = spending([3] * 6, [6] * 6)


def test_a_debate_without_a_verdict_is_left_out_and_one_decided_at_once_is_not():
    debate = (NAN, NAN, *DEBATE[2:])
    (point,) = coverage_risk_curve(CERTAINTY, FIRST, debate, CALLS, thresholds=(1.0,))
    assert point.accuracy.value == pytest.approx(5 / 6)
    (point,) = coverage_risk_curve(CERTAINTY, FIRST, (NAN,) * 6, CALLS, thresholds=(1.0,))
    assert point.accuracy.value == 1
    assert math.isnan(point.difference.value)


def test_the_threshold_is_the_lowest_before_the_first_that_fails():
    """60 certain items, all right; 60 less so, a third wrong; 60 doubtful ones, all right."""
    certainty = np.repeat([0.95, 0.75, 0.55], 60)
    right = np.ones(180)
    right[60:80] = 0
    threshold_selection = select_threshold(certainty, right, agreement=0.9)
    assert threshold_selection.threshold == 0.76
    assert threshold_selection.items == 180
    assert threshold_selection.reason == ""
    failed = threshold_selection.steps[-1]
    assert (failed.threshold, failed.items, failed.errors) == (0.75, 120, 20)
    assert failed.bound == upper_bound(20, 120, 1 - 0.9) > 0.1
    assert all(s.bound <= 0.1 + 1e-12 and s.errors == 0 for s in threshold_selection.steps[:-1])
    assert threshold_selection.steps[0].threshold == 0.95
    assert select_threshold(certainty, right, agreement=0.75).threshold == 0
    coarse = select_threshold(certainty, right, agreement=0.9, thresholds=(0.9, 0.5))
    assert coarse.threshold == 0.9


@pytest.mark.parametrize(
    ("items", "agreement", "reason"),
    [
        (21, 0.9, "too few items: 21; at least 22 without an error are needed"),
        (0, 0.9, "too few items: 0; at least 22 without an error are needed"),
    ],
)
def test_too_few_items_are_said_to_be(items, agreement, reason):
    threshold_selection = select_threshold(np.ones(items), np.ones(items), agreement=agreement)
    assert threshold_selection.threshold is None
    assert threshold_selection.steps == ()
    assert threshold_selection.reason.startswith(reason)


def test_a_first_round_that_errs_too_often_is_said_to():
    right = np.tile([1, 1, 1, 0], 25)
    threshold_selection = select_threshold(np.ones(100), right, agreement=0.9)
    assert threshold_selection.threshold is None
    assert (
        "wrong on 25 of the 100 items with a certainty of 1 or more" in threshold_selection.reason
    )
    half = select_threshold(np.ones(100), np.full(100, 0.5), agreement=0.9)
    assert half.steps[0].errors == 100


def test_one_item_of_each_group_is_used_and_none_without_a_verdict():
    certainty, right = np.ones(90), np.ones(90)
    groups = [f"q{n // 3}" for n in range(90)]
    assert select_threshold(certainty, right, groups).items == 30
    right[:3] = NAN
    certainty[3:5] = NAN
    assert select_threshold(certainty, right, groups).items == 29
    threshold_selection, same = (
        select_threshold(certainty, right, groups, seed=3) for _ in range(2)
    )
    assert threshold_selection == same
    assert select_threshold(certainty, right, [None] * 90).items == 85


TRIALS = 400


def rising(certainty):
    return 0.35 + 0.63 * (2 * certainty - 1) ** 0.5


def cliff(certainty):
    return np.where(certainty > 0.8, 0.9, 0.45)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [rising, cliff])
@pytest.mark.parametrize(("items", "grouped"), [(60, False), (250, True)])
def test_the_agreement_promised_is_kept_as_often_as_promised(shape, items, grouped):
    """Trials in which new items decided at once agree less often than wanted: at most a tenth.

    The margin is three standard deviations of the trials' own noise. In groups all items share one
    fate, and to take them for independent would break the promise.
    """
    generator = np.random.default_rng([items, grouped, len(shape.__name__)])
    many = generator.uniform(0.5, 1, 200_000)
    truth = {}
    broken = count = 0
    for _ in range(TRIALS):
        certainty = generator.uniform(0.5, 1, items)
        right = (generator.random(items) < shape(certainty)).astype(float)
        groups = None
        if grouped:
            certainty, right = np.repeat(certainty, 3), np.repeat(right, 3)
            groups = np.repeat(np.arange(items), 3).tolist()
        threshold = select_threshold(certainty, right, groups, agreement=0.8).threshold
        if threshold is not None:
            count += 1
            if threshold not in truth:
                truth[threshold] = shape(many[many >= threshold]).mean()
            broken += truth[threshold] < 0.8
    assert broken <= TRIALS * 0.1 + 3 * math.sqrt(TRIALS * 0.1 * 0.9)
    if items == 250:
        assert count > 0.75 * TRIALS


# Any two judges


@st.composite
def two_judges(draw):
    """The certainty and credits of two judges on the same items, and what both take."""
    rows = draw(
        st.lists(
            st.tuples(
                st.floats(0, 1),
                *(st.sampled_from([0.0, 0.5, 1.0]),) * 2,
                *(st.integers(1, 50),) * 2,
            ),
            min_size=1,
            max_size=25,
        )
    )
    sure, first_values, second_values, cheap, dear = (
        np.array(column, float) for column in zip(*rows, strict=True)
    )
    return sure, first_values, second_values, {"tokens": (cheap, cheap + dear, dear)}


@given(two_judges())
def test_the_curve_goes_from_the_second_alone_to_the_first_alone(judged):
    sure, first, second, spent = judged
    points = coverage_risk_curve(*judged, thresholds=(1.01, *np.linspace(0, 1, 11)))
    shares = [point.share.value for point in points]
    assert shares == sorted(shares)  # thresholds fall, so coverage never does
    values = [point.tokens for point in points]
    assert values == sorted(values, reverse=True)
    none, *_, every = points
    assert (none.threshold, none.decided, every.decided) == (1.01, 0, sure.size)
    assert none.accuracy.value == pytest.approx(second.mean())
    assert none.difference.value == 0
    cheap, _, dear = spent["tokens"]
    assert none.tokens == pytest.approx((cheap + dear).sum() / dear.sum())
    assert every.threshold == 0
    assert every.accuracy.value == pytest.approx(first.mean())
    assert every.error.value == pytest.approx(1 - first.mean())
    assert every.difference.value == pytest.approx((first - second).mean())
    for point in points:
        at_once = sure >= point.threshold - 1e-9  # .7 reaches .7000000000000001
        assert point.accuracy.value == pytest.approx(np.where(at_once, first, second).mean())
