"""Prediction-powered means against the published formula."""

import math

import numpy as np
import pytest
from scipy import stats

from textevolve.bench import rates

NAN = float("nan")


def verdicts(yes, no):
    return [1] * yes + [0] * no


def test_powered_mean_is_the_formula_of_ppi_plus_plus():
    random = np.random.default_rng(2)
    people = random.normal(3, 1, 80)
    ours = people + random.normal(1, 0.5, 80)
    judged = random.normal(4, 1.1, 1000)
    powered_mean = rates.powered_mean([*judged, NAN], [*ours, NAN, 1.0], [*people, 1.0, NAN])
    weight = np.cov(people, ours, bias=True)[0, 1] / (
        (1 + 80 / 1000) * np.var([*ours, *judged], ddof=1)
    )
    assert 0 < weight < 1
    value = people.mean() + weight * (judged.mean() - ours.mean())
    error = math.sqrt(np.var(weight * judged) / 1000 + np.var(people - weight * ours) / 80)
    z = stats.norm.ppf(0.975)
    assert powered_mean.value == pytest.approx(value)
    assert (powered_mean.interval.low, powered_mean.interval.high) == pytest.approx(
        (value - z * error, value + z * error)
    )
    assert powered_mean.human == pytest.approx(people.mean())
    half = z * people.std() / math.sqrt(80)
    assert powered_mean.human_interval.high == pytest.approx(people.mean() + half)
    assert (powered_mean.texts, powered_mean.labelled, powered_mean.clipped) == (1000, 80, False)


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
    powered_mean = rates.powered_mean([0.0, 1.0] * 50, [1.0, 0.0] * 15, people, bounds=(0, 1))
    assert (powered_mean.interval.high, powered_mean.clipped) == (1.0, True)
    assert rates.powered_mean([0.0, 1.0] * 50, [1.0, 0.0] * 15, people).interval.high > 1


def test_a_powered_mean_that_does_not_exist_says_why():
    for judged, ours, people, reason in [
        ([1, 0], [], [], "fewer than two labelled texts"),
        ([1, 0], [1], [1], "fewer than two labelled texts"),
        ([], [1, 0], [1, 0], "no unlabelled text"),
    ]:
        powered_mean = rates.powered_mean(judged, ours, people)
        assert math.isnan(powered_mean.value)
        assert powered_mean.interval.reason == reason
    alike = rates.powered_mean([1, 0], [1, 0, 1], [1, 1, 1])
    assert alike.value == 1
    assert alike.interval.reason == "no variation among the labelled texts"
