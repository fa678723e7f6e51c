"""Two runs side by side: differences on the users that both have, and how sure they are."""

import random

import numpy as np
import pytest

from textevolve.evaluation import Failure
from textevolve.memory_eval.judgement import MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.metrics import (
    METRICS,
    JudgementSums,
    compare_metrics,
    compute_metrics,
)


def sums_of(labels):
    """Integrity points with these labels, by user; None is a judgement that failed."""
    sums = JudgementSums()
    for user, given in labels.items():
        sums.add_time(user)
        for item, label in enumerate(given):
            point = Subject(
                "integrity", user, 0, item, {}, type="event", source="primary", importance=0.5
            )
            outcome = Failure("failed", "x") if label is None else MemoryVerdict(label, "")
            sums.add(MemoryJudgement(point, outcome))
    return sums


def drawn_labels(seed, users):
    chance = random.Random(seed)
    return {user: chance.choices([0, 1, 2, None], k=chance.randint(1, 6)) for user in users}


def recall(labels, users):
    every = [label for user in users for label in labels[user]]
    return every.count(2) / len(every)


@pytest.mark.parametrize("seed", range(2))
def test_differences_and_intervals_are_those_of_drawing_the_same_users_from_both(seed):
    users = sorted(f"u{n}" for n in range(30))
    first, second = drawn_labels(seed, users), drawn_labels(seed + 100, users)
    made = compare_metrics(sums_of(first), sums_of(second), draws=200, seed=seed).overall["recall"]
    assert made.first == pytest.approx(recall(first, users), abs=1e-9)
    assert made.difference == pytest.approx(recall(second, users) - recall(first, users), abs=1e-9)
    draws = np.random.default_rng(seed).integers(0, len(users), (200, len(users)))
    chosen = [[users[index] for index in draw] for draw in draws]
    found = [recall(second, some) - recall(first, some) for some in chosen]
    assert [made.low, made.high] == pytest.approx(np.quantile(found, [0.025, 0.975]), abs=1e-9)


def test_only_users_in_both_are_compared_and_the_others_are_named():
    first = sums_of({"a": [2], "b": [0], "c": [2, 2, 2]})
    second = sums_of({"b": [2], "a": [2], "d": [0]})
    made = compare_metrics(first, second)
    assert (made.users, made.only_first, made.only_second) == (("a", "b"), ("c",), ("d",))
    found = made.overall["recall"]
    assert (found.first, found.second, found.difference) == (0.5, 1, 0.5)


def test_values_are_those_of_the_runs_own_figures():
    users = [f"u{n}" for n in range(4)]
    runs = [sums_of(drawn_labels(seed, users)) for seed in (1, 2)]
    made = compare_metrics(*runs)
    first, second = (compute_metrics(run) for run in runs)
    assert list(made.overall) == list(METRICS)
    for name in METRICS:
        assert made.overall[name].first == first.overall[name].all.value
        assert made.overall[name].second == second.overall[name].all.value


def test_a_clear_difference_leaves_out_zero():
    users = [f"u{n}" for n in range(10)]
    worse = sums_of({user: [2, 0, 0, n % 3] for n, user in enumerate(users)})
    better = sums_of({user: [2, 2, 2, n % 3] for n, user in enumerate(users)})
    made = compare_metrics(worse, better).overall["weighted_recall"]
    assert made.difference == 0.5
    assert not made.clear  # every user gained the same, so there is nothing to draw from
    uneven = {user: [2, 2, 0 if n % 2 else 2, n % 3] for n, user in enumerate(users)}
    assert compare_metrics(worse, sums_of(uneven)).overall["recall"].clear


def test_what_is_missing_in_a_run_is_said():
    made = compare_metrics(sums_of({"a": [None], "b": []}), sums_of({"a": [2], "b": [2]}))
    assert (made.overall["recall"].first, made.overall["recall"].difference) == (0, 1)
    assert made.overall["fmr"].reason == "not measured in the first and the second run"


def test_one_user_in_common_has_no_interval_and_none_has_no_figure():
    one = compare_metrics(sums_of({"a": [2], "b": [0]}), sums_of({"a": [0]})).overall["recall"]
    assert (one.difference, one.low, one.reason) == (-1, None, "no interval: one user only")
    none = compare_metrics(sums_of({"a": [2]}), sums_of({"b": [2]}))
    assert (none.users, none.overall) == ((), {})
