"""Fits of signals to labels, and what is told of them."""

import math
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.bench.fitting import (
    LabelledSignals,
    cross_validate,
    file_of,
    fit_signals,
    gather_signals,
)
from textevolve.bench.items import Item, top_credit
from textevolve.bench.verdicts import Verdict
from textevolve.errors import InputError
from textevolve.judges.fitted import parse_fitted

seeds = st.integers(0, 10_000)


def simulate(
    seed=0, items=60, weights=(1.5, 0.5, 0.0), sizes=(2,), single=False, names=None, each=2
):
    """Signals whose weighted sum, with noise, people go by; `each` items are on one question."""
    rng = np.random.default_rng(seed)
    made, values = [], []
    for n in range(items):
        size = 1 if single else int(rng.choice(sizes))
        rows = rng.normal(size=(size, len(weights)))
        felt = rows @ np.array(weights) + 0.5 * rng.logistic(size=size)
        human = tuple(-float((felt > x).sum()) - 1 for x in felt)
        if single:
            human = (float(felt[0] > 0),)
        texts = tuple("word " * int(rng.integers(1, 30)) for _ in range(size))
        made.append(Item(str(n), f"input {n}", texts, human, f"g{n // each}"))
        values.append(rows)
    names = names or ("probe", "pairwise", "look:length")[: len(weights)]
    return LabelledSignals(names, tuple(made), np.vstack(values), dict.fromkeys(names, 0), 0)


def changed(data, **what):
    return replace(data, **what)


@given(seeds)
def test_credits_at_once_are_those_of_each_item(seed):
    data = simulate(seed, items=12, sizes=(2, 3, 4))
    scores = np.round(data.values[:, 0])
    start = 0
    for item, credit in zip(data.items, data.credits(scores), strict=True):
        end = start + len(item.candidates)
        assert credit == pytest.approx(top_credit(scores[start:end], item.human))
        start = end


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True])
def test_what_is_said_of_an_item_was_learnt_without_its_question(single):
    data = simulate(single=single)
    validation = cross_validate(data, seed=0)
    held = validation.folds == validation.folds[0]
    turned = tuple(
        replace(item, human=(1 - item.human[0],) if single else item.human[::-1]) if out else item
        for item, out in zip(data.items, held, strict=True)
    )
    other = cross_validate(changed(data, items=turned), seed=0)
    texts = held[data.owner]
    np.testing.assert_array_equal(validation.utilities[texts], other.utilities[texts])
    assert not np.allclose(validation.utilities[~texts], other.utilities[~texts])
    assert validation.loss < other.loss


@given(seeds)
def test_the_order_of_candidates_and_the_unit_of_a_signal_change_nothing(seed):
    data = simulate(seed, items=30)
    turned = changed(
        data,
        items=tuple(replace(i, human=i.human[::-1]) for i in data.items),
        values=data.values.reshape(-1, 2, 3)[:, ::-1].reshape(-1, 3),
    )
    scaled = changed(data, values=data.values * np.array([10.0, 0.1, 3.0]) + 5)
    every = np.ones(30, dtype=bool)
    fits = [
        labelled_signals.fit(every, range(3), 3.0) for labelled_signals in (data, turned, scaled)
    ]
    for other in fits[1:]:
        np.testing.assert_allclose(fits[0].weights, other.weights, atol=1e-6)
    first_values, third = fits[0].utilities(data.values), fits[2].utilities(scaled.values)
    np.testing.assert_allclose(first_values, third, atol=1e-6)


def test_an_item_without_a_signal_leaves_and_is_counted():
    items = [Item(str(n), "?", ("a", "b"), (1.0, 0.0)) for n in range(3)]
    items.append(Item("unjudged", "?", ("a", "b"), (math.nan, math.nan)))
    verdicts = [
        Verdict(judge, item.id, order, (float(n), None if (judge, n) == ("two", 1) else 2.0))
        for n, item in enumerate(items)
        for judge in ("one", "two")
        for order in ("given", "reversed")
    ]
    data = gather_signals(items, verdicts, ("one", "two"))
    assert [item.id for item in data.items] == ["0", "2"]
    assert data.values.tolist() == [[0, 0], [2, 2], [2, 2], [2, 2]]
    assert data.missing == {"one": 0, "two": 1}
    assert data.left_out == 1
    assert gather_signals(items, verdicts[:4], ("one", "three")).left_out == 3
    assert data.scores == {"one", "two"}


@pytest.mark.parametrize("single", [False, True])
def test_a_fit_finds_what_people_go_by(single):
    data = simulate(5, items=300, weights=(1.0, 1.0, 0.0), single=single)
    fit = fit_signals(data, precision=0.7)
    weights = [signal.weight for signal in fit.signals]
    assert weights[0] > 0.5 > abs(weights[2])
    assert weights[1] > 0.5
    assert fit.difference.interval.low > 0
    assert fit.loss < fit.loss_of_nothing
    assert fit.warnings == ()
    assert fit.agreement.interval.low < fit.agreement.value < fit.agreement.interval.high
    file = file_of(fit, dict.fromkeys(data.names, ("m", "")), "both", date(2026, 1, 15))
    assert parse_fitted(file.text, "my.judge") == file
    assert file.threshold.holds == (fit.selection.threshold is not None)
    assert "70%" in file.threshold.guarantee
    assert file.labels["items"] == 300


def warned(data):
    return " ".join(fit_signals(data).warnings)


def test_a_fit_no_better_than_its_best_signal_says_so_by_name():
    answer = warned(simulate(2, weights=(2.0, 0.0, 0.0)))
    assert "does not beat its best single signal, probe," in answer


def test_too_few_items_are_refused():
    with pytest.raises(InputError, match="too few labelled items to fit: 12 on 6 questions"):
        fit_signals(simulate(items=12))
