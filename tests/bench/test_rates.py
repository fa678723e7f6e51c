"""Corrected rates against the published formulas, simulation and ppi-python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from textevolve.bench import rates
from textevolve.errors import InputError

NAN = float("nan")
VERDICTS = st.lists(st.sampled_from([0.0, 1.0, NAN]), max_size=30)


def verdicts(yes, no):
    return [1] * yes + [0] * no


def labelled(hits, misses, alarms, rejects):
    """(judge's, people's) verdicts."""
    judged = verdicts(hits, misses) + verdicts(alarms, rejects)
    return judged, verdicts(hits + misses, 0) + verdicts(0, alarms + rejects)


def draw(random, rate, sensitivity, specificity, texts, labels):
    """Verdicts of such a judge on texts of which `rate` are good, and on as many labelled ones of
    each kind as `labels` says."""
    truth = random.random(texts) < rate
    people = np.repeat([True, False], labels)
    said = [
        np.where(t, random.random(t.size) < sensitivity, random.random(t.size) >= specificity)
        for t in (truth, people)
    ]
    return said[0], said[1], people


def test_rogan_gladen_by_hand():
    found = rates.correct_rate(verdicts(50, 50), *labelled(9, 1, 2, 8))
    assert (found.sensitivity, found.specificity, found.observed) == (0.9, 0.8, 0.5)
    assert found.value == pytest.approx((0.5 + 0.8 - 1) / 0.7)
    assert (found.texts, found.labelled, found.clipped) == (100, 20, False)


def test_a_perfect_judge_is_left_alone():
    found = rates.correct_rate(verdicts(30, 70), *labelled(400, 0, 0, 400))
    assert found.value == pytest.approx(0.3)
    wilson = stats.binomtest(30, 100).proportion_ci(method="wilson")
    assert found.interval.low == pytest.approx(wilson.low, abs=0.02)
    assert found.interval.high == pytest.approx(wilson.high, abs=0.02)


@given(VERDICTS, VERDICTS, VERDICTS)
def test_the_correction_undoes_the_errors_or_says_why_not(judged, ours, people):
    size = min(len(ours), len(people))
    found = rates.correct_rate(judged, ours[:size], people[:size])
    if math.isnan(found.value):
        assert found.interval.reason
        assert math.isnan(found.interval.low)
        assert not found.clipped
        return
    assert 0 <= found.value <= 1
    wrong = (1 - found.specificity) * (1 - found.value)
    if 0 < found.value < 1:
        assert found.sensitivity * found.value + wrong == pytest.approx(found.observed)
    if not found.interval.reason:
        assert 0 <= found.interval.low <= found.interval.high <= 1


def lang_reiczigel(n, x, n_se, x_se, n_sp, x_sp, level):
    """The formula as its authors' script has it, in plain numbers."""
    z = stats.norm.ppf((1 + level) / 2)
    p, se, sp = (x + z * z / 2) / (n + z * z), (x_se + 1) / (n_se + 2), (x_sp + 1) / (n_sp + 2)
    youden = se + sp - 1
    rate = (p + sp - 1) / youden
    a, b = se * (1 - se) / (n_se + 2), sp * (1 - sp) / (n_sp + 2)
    error = math.sqrt(p * (1 - p) / (n + z * z) + a * rate**2 + b * (1 - rate) ** 2) / youden
    shift = 2 * z * z * (rate * a - (1 - rate) * b)
    return rate + shift - z * error, rate + shift + z * error


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_interval_of_lang_and_reiczigel(level):
    found = rates.correct_rate(verdicts(120, 80), *labelled(45, 5, 8, 52), level=level)
    expected = lang_reiczigel(200, 120, 50, 45, 60, 52, level)
    assert (found.interval.low, found.interval.high) == pytest.approx(expected)


def test_the_interval_covers_the_true_rate_as_often_as_it_says():
    random = np.random.default_rng(11)
    held = 0
    for _ in range(600):
        found = rates.correct_rate(*draw(random, 0.6, 0.85, 0.75, 300, 50))
        held += found.interval.low <= 0.6 <= found.interval.high
    assert 0.93 <= held / 600 <= 0.99


def test_what_lies_outside_is_clipped_and_said():
    none = rates.correct_rate(verdicts(1, 99), *labelled(45, 5, 10, 40))
    assert (none.value, none.interval.low, none.clipped) == (0, 0, True)
    every = rates.correct_rate(verdicts(99, 1), *labelled(40, 10, 5, 45))
    assert (every.value, every.interval.high, every.clipped) == (1, 1, True)


@pytest.mark.parametrize(
    ("judged", "labels", "reason"),
    [
        ([], labelled(5, 1, 1, 5), "no text without a label was judged"),
        ([NAN], labelled(5, 1, 1, 5), "no text without a label was judged"),
        ([1, 0], labelled(5, 1, 0, 0), "one class only"),
        ([1, 0], ([], []), "one class only"),
        ([1, 0], labelled(5, 5, 5, 5), "no better than chance"),
        ([1, 0], labelled(1, 5, 5, 1), "no better than chance"),
    ],
)
def test_what_cannot_be_corrected_is_no_number(judged, labels, reason):
    found = rates.correct_rate(judged, *labels)
    assert math.isnan(found.value)
    assert reason in found.interval.reason
    assert not found.clipped


def test_a_single_label_of_one_class_gives_no_interval():
    found = rates.correct_rate(verdicts(5, 95), *labelled(100, 900, 0, 1))
    assert not math.isnan(found.value)
    assert found.interval.reason == "too few labels of one class"


def test_missing_verdicts_are_left_out_and_others_refused():
    ours, people = labelled(9, 1, 2, 8)
    found = rates.correct_rate([1, 0, NAN], [*ours, NAN, 1], [*people, 1, NAN])
    assert found == rates.correct_rate([1, 0], ours, people)
    with pytest.raises(InputError, match="0 or 1"):
        rates.correct_rate([0.5], ours, people)
    with pytest.raises(InputError, match="item by item"):
        rates.correct_rate([1], ours, people[:-1])


# Prediction-powered inference


def test_powered_mean_is_the_formula_of_ppi_plus_plus():
    random = np.random.default_rng(2)
    people = random.normal(3, 1, 80)
    ours = people + random.normal(1, 0.5, 80)
    judged = random.normal(4, 1.1, 1000)
    found = rates.powered_mean([*judged, NAN], [*ours, NAN, 1.0], [*people, 1.0, NAN])
    weight = np.cov(people, ours, bias=True)[0, 1] / (
        (1 + 80 / 1000) * np.var([*ours, *judged], ddof=1)
    )
    assert 0 < weight < 1
    value = people.mean() + weight * (judged.mean() - ours.mean())
    error = math.sqrt(np.var(weight * judged) / 1000 + np.var(people - weight * ours) / 80)
    z = stats.norm.ppf(0.975)
    assert found.value == pytest.approx(value)
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (value - z * error, value + z * error)
    )
    assert found.human == pytest.approx(people.mean())
    half = z * people.std() / math.sqrt(80)
    assert found.human_interval.high == pytest.approx(people.mean() + half)
    assert (found.texts, found.labelled, found.clipped) == (1000, 80, False)


def test_a_good_judge_narrows_the_interval_and_a_useless_one_does_not_matter():
    random = np.random.default_rng(9)
    people = (random.random(150) < 0.6).astype(float)
    good = np.where(random.random(150) < 0.92, people, 1 - people)
    more = (random.random(3000) < 0.59).astype(float)
    sharp = rates.powered_mean(more, good, people, bounds=(0, 1))
    width = sharp.interval.high - sharp.interval.low
    assert width < 0.75 * (sharp.human_interval.high - sharp.human_interval.low)
    dull = rates.powered_mean([1.0] * 3000, [1.0] * 150, people)
    assert dull.value == dull.human
    assert dull.interval == dull.human_interval


def test_powered_mean_is_clipped_to_its_bounds_and_says_so():
    people = verdicts(29, 1)
    found = rates.powered_mean([0.0, 1.0] * 50, [1.0, 0.0] * 15, people, bounds=(0, 1))
    assert (found.interval.high, found.clipped) == (1.0, True)
    assert rates.powered_mean([0.0, 1.0] * 50, [1.0, 0.0] * 15, people).interval.high > 1


def test_a_powered_mean_that_does_not_exist_says_why():
    for judged, ours, people, reason in [
        ([1, 0], [], [], "fewer than two labelled texts"),
        ([1, 0], [1], [1], "fewer than two labelled texts"),
        ([], [1, 0], [1, 0], "no unlabelled text"),
    ]:
        found = rates.powered_mean(judged, ours, people)
        assert math.isnan(found.value)
        assert found.interval.reason == reason
    alike = rates.powered_mean([1, 0], [1, 0, 1], [1, 1, 1])
    assert alike.value == 1
    assert alike.interval.reason == "no variation among the labelled texts"
    with pytest.raises(InputError, match="confidence level"):
        rates.powered_mean([1, 0], [1, 0], [1, 0], level=95)
