"""A judge that does no better than a look at the length is named."""

import numpy as np
import pytest

from textevolve.bench.agreement import look_at_length, read_sampling, summarise
from textevolve.bench.items import Item
from textevolve.bench.verdicts import Verdict
from textevolve.studies.labels.agreement import summary_sentence

LONG = "a much longer reply than the other"


def pairs(winners):
    """Items of two texts, of which the first is the longer one; `winners` are people's."""
    items = []
    for number, winner in enumerate(winners):
        human = (1.0, 0.0) if winner == 0 else (0.0, 1.0)
        items.append(Item(f"i{number}", f"q{number}", (LONG, "short"), human, f"g{number}"))
    return items


def chosen(items, winners, judge="probe"):
    """The verdicts of a judge that prefers these texts."""
    verdicts = []
    for item, winner in zip(items, winners, strict=True):
        scores = (1.0, 0.0) if winner == 0 else (0.0, 1.0)
        verdicts.append(Verdict(judge, item.id, "given", scores))
    return verdicts


def responses(lengths, passed):
    items = []
    for number, (length, passes) in enumerate(zip(lengths, passed, strict=True)):
        human = (1.0,) if passes else (0.0,)
        items.append(Item(f"i{number}", f"q{number}", ("x" * length,), human, f"g{number}"))
    return items


def groups_of(items):
    return [item.group for item in items]


@pytest.mark.parametrize(
    ("winners", "name", "share"),
    [
        ([0] * 30 + [1] * 10, "the longer text", 0.75),
        ([0] * 10 + [1] * 30, "the shorter text", 0.75),
    ],
)
def test_better_look_is_taken(winners, name, share):
    items = pairs(winners)
    rule = look_at_length(items, read_sampling(items, 0))
    assert (rule.name, rule.accuracy.value) == (name, share)


def test_judge_by_length_is_named():
    winners = [0] * 30 + [1] * 10
    items = pairs(winners)
    summary = summarise(items, chosen(items, [0] * 40))
    (judge,) = summary.judges
    assert judge.over_length.value == 0.0
    sentence = summary_sentence(summary)
    assert "the longer text) is right in 75.0 %" in sentence
    assert "not shown that probe does better" in sentence


def test_reading_judge_is_not_named():
    winners = [0] * 30 + [1] * 10
    items = pairs(winners)
    summary = summarise(items, chosen(items, winners))
    (judge,) = summary.judges
    assert judge.over_length.value == pytest.approx(0.25)  # 10 of 40 items, worked out by hand
    assert judge.over_length.interval.low > 0
    assert "length" not in summary_sentence(summary)


def test_lucky_judge_is_named():
    """One item more than the rule has, of forty, shows nothing."""
    winners = [0] * 30 + [1] * 10
    items = pairs(winners)
    summary = summarise(items, chosen(items, [0] * 39 + [1]))
    assert summary.judges[0].over_length.value == pytest.approx(1 / 40)
    assert "not shown" in summary_sentence(summary)


def test_missing_verdicts_are_left_out():
    items = pairs([0] * 30 + [1] * 10)
    summary = summarise(items, chosen(items[:35], [0] * 35))
    assert summary.judges[0].over_length.value == 0.0


@pytest.mark.parametrize(("sign", "name"), [(1, "long enough"), (-1, "short enough")])
def test_single_responses_pass_by_length(sign, name):
    """People pass the long responses (or the short ones), a tenth of which are exceptions."""
    random = np.random.default_rng(3)
    lengths = [int(n) for n in random.integers(5, 200, 80)]
    exceptions = random.random(80) < 0.1
    passed = []
    for length, is_exception in zip(lengths, exceptions, strict=True):
        passed.append((sign * (length - 100) > 0) != is_exception)
    items = responses(lengths, passed)
    rule = look_at_length(items, read_sampling(items, 0))
    assert name in rule.name
    assert rule.accuracy.value == pytest.approx(1 - exceptions.mean(), abs=0.06)


def test_length_of_noise_shows_nothing():
    """A threshold that is chosen on the items that it is measured on would be right too often."""
    random = np.random.default_rng(4)
    shares = []
    for _ in range(20):
        lengths = [int(n) for n in random.integers(5, 200, 40)]
        items = responses(lengths, random.random(40) < 0.5)
        shares.append(look_at_length(items, read_sampling(items, 0)).accuracy.value)
    assert np.mean(shares) < 0.6
