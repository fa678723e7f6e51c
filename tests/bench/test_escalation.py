"""Which first rounds may stand: the curve by hand, bounds against scipy, the guarantee by trial."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from textevolve.bench.escalation import (
    FINE_THRESHOLDS,
    SpentOnItems,
    ThresholdSelection,
    binomial_tail,
    coverage_risk_curve,
    fewest_items,
    select_threshold,
    upper_bound,
)
from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Usage
from textevolve.judges.cascade import certainty_of

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


def test_a_bound_of_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="3 errors in 2 items"):
        upper_bound(3, 2, 0.1)


@pytest.mark.parametrize(("errors", "risk", "items"), [(0, 0.1, 22), (0, 0.05, 45), (2, 0.2, 25)])
def test_the_fewest_items_that_could_show_a_risk(errors, risk, items):
    assert fewest_items(errors, risk, 0.1) == items
    assert upper_bound(errors, items, 0.1) <= risk < upper_bound(errors, items - 1, 0.1)


CERTAINTY = (1.0, 1.0, 0.9, 0.7, 0.5, NAN)
FIRST = (1.0, 1.0, 0.0, 1.0, 0.5, NAN)
DEBATE = (1.0, 0.0, 1.0, 1.0, 1.0, 0.0)


def spending(first, second):
    return {"calls": SpentOnItems(first, second, second)}


CALLS = spending([3] * 6, [6] * 6)


def test_the_curve_by_hand():
    points = coverage_risk_curve(CERTAINTY, FIRST, DEBATE, CALLS, thresholds=(0.0, 0.8, 1.0))
    assert [p.threshold for p in points] == [1.0, 0.8, 0.0]
    assert [p.decided for p in points] == [2, 3, 5]
    for name, expected in {
        "share": (2 / 6, 3 / 6, 5 / 6),
        "error": (0, 1 / 3, 1.5 / 5),
        "accuracy": (5 / 6, 4 / 6, 3.5 / 6),
        "difference": (1 / 6, 0, -0.5 / 6),
        "calls": (30 / 36, 27 / 36, 21 / 36),
    }.items():
        figures = [getattr(p, name) for p in points]
        assert [f.value for f in figures] == pytest.approx(expected), name
        for figure in figures:
            assert figure.interval.low <= figure.value <= figure.interval.high, name


def test_a_debate_without_a_verdict_is_left_out_and_one_decided_at_once_is_not():
    debate = (NAN, NAN, *DEBATE[2:])
    (point,) = coverage_risk_curve(CERTAINTY, FIRST, debate, CALLS, thresholds=(1.0,))
    assert point.accuracy.value == pytest.approx(5 / 6)
    (point,) = coverage_risk_curve(CERTAINTY, FIRST, (NAN,) * 6, CALLS, thresholds=(1.0,))
    assert point.accuracy.value == 1
    assert math.isnan(point.difference.value)


def test_an_item_without_any_verdict_is_in_no_share():
    debate = (*DEBATE[:5], NAN)
    (point,) = coverage_risk_curve(CERTAINTY, FIRST, debate, CALLS, thresholds=(0.8,))
    assert (point.decided, point.share.value) == (3, 3 / 5)


def test_the_curves_own_thresholds_lie_evenly_in_coverage():
    generator = np.random.default_rng(1)
    certainty = 1 - generator.exponential(0.1, 100)
    right = generator.random(100) < certainty
    points = coverage_risk_curve(
        certainty, right, right, spending(np.full(100, 3), np.full(100, 6))
    )
    shares = [p.share.value for p in points]
    assert shares == sorted(shares)
    assert np.diff(shares).max() < 0.06
    assert (shares[0], shares[-1]) == (1 / 100, 1)
    assert points[-1].calls.value == 0.5
    assert all(p.difference.value == 0 for p in points)
    nothing = (NAN,) * 3
    assert coverage_risk_curve(nothing, nothing, (1, 0, 1), spending((3, 3, 3), (6, 6, 6))) == ()


def test_intervals_are_wider_where_items_come_in_groups():
    generator = np.random.default_rng(2)
    right = np.repeat(generator.random(50) < 0.7, 8)
    certainty, calls = np.ones(400), spending(np.full(400, 3), np.full(400, 6))
    widths = [
        np.subtract(f.interval.high, f.interval.low)
        for groups in (None, np.repeat(np.arange(1, 51), 8).tolist())
        for p in coverage_risk_curve(certainty, right, right, calls, groups, thresholds=(1.0,))
        for f in (p.error,)
    ]
    assert widths[1] > 2 * widths[0]
    (never,) = coverage_risk_curve(
        certainty,
        np.ones(400),
        right,
        calls,
        np.repeat(np.arange(1, 51), 8).tolist(),
        thresholds=(1.0,),
    )
    assert never.error.value == 0
    assert never.error.interval.high == pytest.approx(1.96**2 / (50 + 1.96**2), abs=1e-4)


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="one entry for each item"):
        coverage_risk_curve((1, 1), (1, 1), (1, 1), spending((3, 3), (6,)))


def test_the_threshold_is_the_lowest_before_the_first_that_fails():
    """60 certain items, all right; 60 less so, a third wrong; 60 doubtful ones, all right."""
    certainty = np.repeat([0.95, 0.75, 0.55], 60)
    right = np.ones(180)
    right[60:80] = 0
    found = select_threshold(certainty, right, agreement=0.9)
    assert found.threshold == 0.76
    assert found.items == 180
    assert found.reason == ""
    failed = found.steps[-1]
    assert (failed.threshold, failed.items, failed.errors) == (0.75, 120, 20)
    assert failed.bound == upper_bound(20, 120, 1 - 0.9) > 0.1
    assert all(s.bound <= 0.1 + 1e-12 and s.errors == 0 for s in found.steps[:-1])
    assert found.steps[0].threshold == 0.95
    assert select_threshold(certainty, right, agreement=0.75).threshold == 0
    coarse = select_threshold(certainty, right, agreement=0.9, thresholds=(0.9, 0.5))
    assert coarse.threshold == 0.9


@pytest.mark.parametrize(
    ("items", "agreement", "reason"),
    [
        (21, 0.9, "too few items: 22 without an error are the least that could show it, not 21"),
        (30, 0.99, "too few items: 230 without an error"),
        (0, 0.9, "too few items: 22 without an error are the least that could show it, not 0"),
    ],
)
def test_too_few_items_are_said_to_be(items, agreement, reason):
    found = select_threshold(np.ones(items), np.ones(items), agreement=agreement)
    assert found.threshold is None
    assert found.steps == ()
    assert found.reason.startswith(reason)


def test_a_threshold_needs_enough_items_above_it():
    found = select_threshold(np.full(100, 0.5), np.ones(100), thresholds=(0.9, 0.8))
    assert found.threshold is None
    assert found.reason == "too few items: at no threshold are 52 decided at once"
    few = select_threshold(np.full(30, 0.5), np.ones(30), thresholds=(0.9, 0.4))
    assert few.threshold == 0.4


def test_a_first_round_that_errs_too_often_is_said_to():
    right = np.tile([1, 1, 1, 0], 25)
    found = select_threshold(np.ones(100), right, agreement=0.9)
    assert found.threshold is None
    assert (
        "too many errors: of 100 items with a certainty of 1 or more 25 are wrong" in found.reason
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
    one, same = (select_threshold(certainty, right, groups, seed=3) for _ in range(2))
    assert one == same
    assert select_threshold(certainty, right, [None] * 90).items == 85


@pytest.mark.parametrize("wrong", [{"agreement": 1.0}, {"confidence": 0.0}])
def test_what_can_never_be_promised_is_refused(wrong):
    with pytest.raises(InputError, match="between 0 and 1"):
        select_threshold((1.0,), (1.0,), **wrong)


TRIALS = 400


def rising(certainty):
    return 0.35 + 0.63 * (2 * certainty - 1) ** 0.5


def barely_too_low(certainty):
    return np.full_like(certainty, 0.799)


def cliff(certainty):
    return np.where(certainty > 0.8, 0.9, 0.45)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [rising, barely_too_low, cliff])
@pytest.mark.parametrize(("items", "grouped"), [(60, False), (250, False), (250, True)])
def test_the_agreement_promised_is_kept_as_often_as_promised(shape, items, grouped):
    """Trials in which new items decided at once agree less often than wanted: at most a tenth.

    The margin is three standard deviations of the trials' own noise. In groups all items share one
    fate, and to take them for independent would break the promise.
    """
    generator = np.random.default_rng([items, grouped, len(shape.__name__)])
    many = generator.uniform(0.5, 1, 200_000)
    truth = {}
    broken = found = 0
    for _ in range(TRIALS):
        certainty = generator.uniform(0.5, 1, items)
        right = (generator.random(items) < shape(certainty)).astype(float)
        groups = None
        if grouped:
            certainty, right = np.repeat(certainty, 3), np.repeat(right, 3)
            groups = np.repeat(np.arange(items), 3).tolist()
        threshold = select_threshold(certainty, right, groups, agreement=0.8).threshold
        if threshold is not None:
            found += 1
            if threshold not in truth:
                truth[threshold] = shape(many[many >= threshold]).mean()
            broken += truth[threshold] < 0.8
    assert broken <= TRIALS * 0.1 + 3 * math.sqrt(TRIALS * 0.1 * 0.9)
    if shape is not barely_too_low and items == 250:
        assert found > 0.75 * TRIALS


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80), st.data())
def test_no_threshold_is_below_one_that_failed(rows, data):
    certainty, right = zip(*rows, strict=True)
    agreement = data.draw(st.sampled_from([0.5, 0.7, 0.8]))
    found = select_threshold(certainty, right, agreement=agreement)
    assert isinstance(found, ThresholdSelection)
    assume(found.steps)
    bounds = [step.bound for step in found.steps]
    assert all(bound <= 1 - agreement for bound in bounds[:-1])
    thresholds = [step.threshold for step in found.steps]
    assert thresholds == sorted(thresholds, reverse=True)
    if found.threshold is not None:
        at_once = [r for c, r in rows if c >= found.threshold]
        assert sum(at_once) / len(at_once) > agreement
        assert (found.reason, found.threshold in thresholds) == ("", True)
    else:
        assert bounds[0] > 1 - agreement


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
    sure, first, second, cheap, dear = (
        np.array(column, float) for column in zip(*rows, strict=True)
    )
    return sure, first, second, {"tokens": SpentOnItems(cheap, cheap + dear, dear)}


@given(two_judges())
def test_the_curve_goes_from_the_second_alone_to_the_first_alone(judged):
    sure, first, second, spent = judged
    points = coverage_risk_curve(*judged, thresholds=(1.01, *np.linspace(0, 1, 11)))
    shares = [point.share.value for point in points]
    assert shares == sorted(shares)  # thresholds fall, so coverage never does
    taken = [point.tokens.value for point in points]
    assert taken == sorted(taken, reverse=True)
    none, *_, every = points
    assert (none.threshold, none.decided, every.decided) == (1.01, 0, sure.size)
    assert none.accuracy.value == pytest.approx(second.mean())
    assert none.difference.value == 0
    assert none.tokens.value == pytest.approx(
        (spent["tokens"].first + spent["tokens"].second).sum() / spent["tokens"].second.sum()
    )
    assert every.threshold == 0
    assert every.accuracy.value == pytest.approx(first.mean())
    assert every.error.value == pytest.approx(1 - first.mean())
    assert every.difference.value == pytest.approx((first - second).mean())
    for point in points:
        at_once = sure >= point.threshold
        assert point.accuracy.value == pytest.approx(np.where(at_once, first, second).mean())


def test_what_is_not_known_to_be_spent_is_left_out():
    spent = {"cost": SpentOnItems((1.0, NAN, 1.0), (5.0, 5.0, NAN), (4.0, 4.0, 4.0))}
    (point,) = coverage_risk_curve((1, 1, 0), (1, 1, 1), (1, 1, 1), spent, thresholds=(0.5,))
    assert point.cost.value == 0.25
    assert math.isnan(point.tokens.value)


def test_the_fine_thresholds_rise_and_lie_within_what_a_cascade_takes():
    assert list(FINE_THRESHOLDS) == sorted(set(FINE_THRESHOLDS))
    assert (FINE_THRESHOLDS[0], FINE_THRESHOLDS[-1]) == (0.01, 0.99999)
    assert {0.991, 0.9991, 0.99991} <= set(FINE_THRESHOLDS)
    assert all(float(f"{one:.6g}") == one for one in FINE_THRESHOLDS)


@dataclass(frozen=True)
class Scored:
    """What a judge of two candidates says, by its log-odds."""

    result: tuple[EvaluationResult, ...]
    usage: Usage = Usage()
    coverage: float = 1.0


def judge_pairs(generator, number, *, sharp, bias):
    """The certainty of a pointwise judge on pairs and whether it is right. It answers with log-odds
    far from 0 (`sharp`) and likes the first text (`bias`), and so do the people who labelled."""
    worth = generator.normal(0, 1, number)
    odds = sharp * (worth + generator.normal(0, 0.5, number) + bias)
    labels = worth + 0.3 * bias + generator.normal(0, 0.4, number) > 0
    made = [
        Scored(tuple(EvaluationResult(0.5, True, "", {"log_odds": s * o / 2}) for s in (1, -1)))
        for o in odds.tolist()
    ]
    return np.array([certainty_of(one) for one in made]), ((odds > 0) == labels).astype(float)


@pytest.mark.parametrize(
    ("sharp", "bias", "found"),
    [
        (8, 0.4, True),
        pytest.param(8, 0.0, True, marks=pytest.mark.slow),
        pytest.param(20, 0.8, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_the_promise_is_kept_for_any_judge_and_any_annotator(sharp, bias, found):
    """At 95 % in at least 94 of 100 simulations, also where certainty lies near 1, and where judge
    and people have a bias and err by chance."""
    generator = np.random.default_rng([sharp, round(10 * bias)])
    many_sure, many_right = judge_pairs(generator, 20_000, sharp=sharp, bias=bias)
    kept = selected = 0
    for _ in range(200):
        sure, right = judge_pairs(generator, 150, sharp=sharp, bias=bias)
        made = select_threshold(
            sure, right, agreement=0.85, confidence=0.95, thresholds=FINE_THRESHOLDS
        )
        selected += made.threshold is not None
        above = many_sure >= (2 if made.threshold is None else made.threshold)
        kept += not above.any() or many_right[above].mean() >= 0.85
    assert kept >= 0.94 * 200
    assert (selected > 100) == found
