"""Two runs side by side: differences on the users that both have, and how sure they are."""

import json
import random

import numpy as np
import pytest

from textevolve.evaluation import Failure
from textevolve.memory_eval.judgement import MemoryJudgement, MemoryVerdict, Subject
from textevolve.memory_eval.metrics import (
    METRICS,
    TYPE_METRICS,
    JudgementSums,
    compare_metrics,
    compute_metrics,
)
from textevolve.report.data import plain


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


@pytest.mark.parametrize("seed", range(5))
def test_differences_and_intervals_are_those_of_drawing_the_same_users_from_both(seed):
    users = sorted(f"u{n}" for n in range(30))
    first, second = drawn_labels(seed, users), drawn_labels(seed + 100, users)
    made = (
        compare_metrics(sums_of(first), sums_of(second), draws=200, seed=seed).overall["recall"].all
    )
    assert made.first == pytest.approx(recall(first, users), abs=1e-9)
    assert made.difference == pytest.approx(recall(second, users) - recall(first, users), abs=1e-9)
    draws = np.random.default_rng(seed).integers(0, len(users), (200, len(users)))
    chosen = [[users[index] for index in draw] for draw in draws]
    found = [recall(second, some) - recall(first, some) for some in chosen]
    assert [made.low, made.high] == pytest.approx(np.quantile(found, [0.025, 0.975]), abs=1e-9)


def test_answers_are_compared_by_question_type_and_difficulty():
    def told(labels):
        sums = JudgementSums()
        for user, label in labels.items():
            one = Subject("question", user, 0, 1, {}, question_type="Recall", difficulty="easy")
            sums.add(MemoryJudgement(one, MemoryVerdict(label, "")))
        return sums

    before, after = {"a": "Omission", "b": "Correct"}, {"a": "Correct", "b": "Correct"}
    made = compare_metrics(told(before), told(after))
    for found in (made.by_question_type["Recall"], made.by_difficulty["easy"]):
        assert list(found) == ["question_correct", "question_hallucination", "question_omission"]
        one = found["question_correct"].all
        assert (one.first, one.second, one.difference) == (0.5, 1, 0.5)


def test_only_users_in_both_are_compared_and_the_others_are_named():
    first = sums_of({"a": [2], "b": [0], "c": [2, 2, 2]})
    second = sums_of({"b": [2], "a": [2], "d": [0]})
    made = compare_metrics(first, second)
    assert (made.users, made.only_first, made.only_second) == (("a", "b"), ("c",), ("d",))
    found = made.overall["recall"].all
    assert (found.first, found.second, found.difference) == (0.5, 1, 0.5)


def test_a_run_does_not_differ_from_itself():
    run = sums_of(drawn_labels(3, [f"u{n}" for n in range(8)]))
    made = compare_metrics(run, run)
    for name, pair in made.overall.items():
        if pair.all.first is not None:
            assert pair.all.difference == 0, name
            assert not pair.all.clear
            assert pair.all.reason == "no interval: no variation between the users"


def test_values_are_those_of_the_runs_own_figures():
    users = [f"u{n}" for n in range(4)]
    runs = [sums_of(drawn_labels(seed, users)) for seed in (1, 2)]
    made = compare_metrics(*runs)
    first, second = (compute_metrics(run) for run in runs)
    assert list(made.overall) == list(METRICS)
    assert list(made.by_type["event"]) == list(TYPE_METRICS)
    for kind in ("all", "valid"):
        for name in METRICS:
            found = getattr(made.overall[name], kind)
            assert found.first == getattr(first.overall[name], kind).value
            assert found.second == getattr(second.overall[name], kind).value
        found = getattr(made.by_type["event"]["kept"], kind)
        assert found.first == getattr(first.by_type["event"]["kept"], kind).value


def test_a_clear_difference_leaves_out_zero():
    users = [f"u{n}" for n in range(10)]
    worse = sums_of({user: [2, 0, 0, n % 3] for n, user in enumerate(users)})
    better = sums_of({user: [2, 2, 2, n % 3] for n, user in enumerate(users)})
    made = compare_metrics(worse, better).overall["weighted_recall"].all
    assert made.difference == 0.5
    assert not made.clear  # every user gained the same, so there is nothing to draw from
    uneven = {user: [2, 2, 0 if n % 2 else 2, n % 3] for n, user in enumerate(users)}
    assert compare_metrics(worse, sums_of(uneven)).overall["recall"].all.clear


def test_what_is_missing_in_a_run_is_said():
    made = compare_metrics(sums_of({"a": [None], "b": []}), sums_of({"a": [2], "b": [2]}))
    found = made.overall["recall"]
    assert (found.all.first, found.all.difference) == (0, 1)
    assert found.valid.difference is None
    assert found.valid.reason == "not measured in the first run"
    assert made.overall["fmr"].all.reason == "not measured in the first and the second run"


def test_a_run_without_integrity_has_no_figure_of_all_points_of_a_type():
    updated = JudgementSums()
    for user in ("a", "b"):
        subject = Subject("update", user, 0, 1, {}, type="event", source="primary")
        updated.add(MemoryJudgement(subject, MemoryVerdict("Correct", "")))
    found = (
        compare_metrics(updated, sums_of({"a": [2], "b": [0]}))
        .by_type["event"]["memory_accuracy"]
        .all
    )
    assert (found.first, found.second) == (None, 0.5)
    assert found.reason == "not measured in the first run"


def test_one_user_in_common_has_no_interval_and_none_has_no_figure():
    one = compare_metrics(sums_of({"a": [2], "b": [0]}), sums_of({"a": [0]})).overall["recall"].all
    assert (one.difference, one.low, one.reason) == (-1, None, "no interval: one user only")
    none = compare_metrics(sums_of({"a": [2]}), sums_of({"b": [2]}))
    assert (none.users, none.overall, none.by_type) == ((), {}, {})


def test_a_comparison_is_plain_json():
    made = plain(compare_metrics(sums_of({"a": [2], "b": [0, 1]}), sums_of({"a": [0], "b": [2]})))
    assert json.loads(json.dumps(made, allow_nan=False))["users"] == ["a", "b"]
    assert made["overall"]["recall"]["all"]["first"] == pytest.approx(1 / 3)
