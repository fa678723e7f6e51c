"""Judges on labelled items: what is asked and mapped back, and the figures made of the verdicts."""

import json
import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asking import judge_items
from textevolve.bench.agreement import measure_consistency, summarise
from textevolve.bench.items import Item, share_winners, top_credit
from textevolve.bench.verdicts import Verdict
from textevolve.errors import AnswerError, BudgetError, InputError
from textevolve.evaluation import EvaluationResult, Failure, Usage
from textevolve.rows.writing import plain
from textevolve.statistics.comparisons import items_needed
from textevolve.statistics.intervals import wilson_interval

SPENT = Usage(calls=1, prompt_tokens=8, completion_tokens=2, cost=0.5)


@dataclass
class Ruled:
    """Judges by a rule on the candidates as they are shown; notes every case."""

    rule: object
    seconds: float = 3.0
    asked: list = field(default_factory=list)

    async def __call__(self, case):
        self.asked.append(case)
        outcome = self.rule(case)
        if isinstance(outcome, Exception):
            raise outcome
        return Ruling(tuple(map(as_result, outcome)), SPENT, self.seconds)


@dataclass
class Ruling:
    result: tuple
    usage: Usage
    seconds: float
    coverage: float = 1.0


def as_result(score):
    return score if isinstance(score, Failure | EvaluationResult) else EvaluationResult(score, True)


def by_length(case):
    return [len(text) / 100 for text in case.candidates]


def pairs(*winners, **fields):
    """Pairs of a short and a long text; the winner is 1 (the short one), 2 or "tie"."""
    human = {1: (1.0, 0.0), 2: (0.0, 1.0), "tie": (0.5, 0.5)}
    return [
        Item(f"i{n}", f"question {n}", ("short", "rather long"), human[w], **fields)
        for n, w in enumerate(winners)
    ]


async def measure(items, **judges):
    rules = {name: j if isinstance(j, Ruled) else Ruled(j) for name, j in judges.items()}
    return summarise(items, await judge_items(items, rules))


async def test_verdicts_stand_in_the_order_of_the_item():
    items = pairs(1, 2)
    judge = Ruled(by_length)
    verdicts = await judge_items(items, {"length": judge})
    assert [(v.item, v.order) for v in verdicts] == [
        ("i0", "given"),
        ("i0", "reversed"),
        ("i1", "given"),
        ("i1", "reversed"),
    ]
    assert {v.scores for v in verdicts} == {(0.05, 0.11)}
    assert [c.candidates[0] for c in judge.asked] == ["short", "rather long"] * 2
    assert {(v.usage, v.seconds, v.failure) for v in verdicts} == {(SPENT, 3.0, None)}
    assert [c.input for c in judge.asked[::2]] == ["question 0", "question 1"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AnswerError("no number"), "failed"),
        (InputError("candidate 1 is blank"), "failed"),
        (BudgetError("the limit of calls is reached"), "skipped"),
    ],
)
async def test_what_fails_fails_alone(error, kind):
    judge = Ruled(lambda case: error if case.id == "i1" else by_length(case))
    verdicts = await judge_items(pairs(1, 1, 1), {"j": judge})
    failed = [v for v in verdicts if v.failure]
    assert {v.item for v in failed} == {"i1"}
    assert {v.failure for v in failed} == {Failure(kind, str(error))}
    assert {v.scores for v in failed} == {(None, None)}
    assert len(verdicts) == 6


async def test_log_odds_rank_where_all_have_them():
    def saturated(odds):
        return EvaluationResult(1.0, True, metadata={} if odds is None else {"log_odds": odds})

    def both(_case):
        return [saturated(40.0), saturated(41.0)]

    def one(_case):
        return [saturated(40.0), saturated(None)]

    rules = {"both": Ruled(both), "one": Ruled(one)}
    verdicts = await judge_items(pairs(2), rules, orders="given")
    assert [v.scores for v in verdicts] == [(40.0, 41.0), (1.0, 1.0)]


async def test_a_judge_that_always_agrees():
    summary = await measure(pairs(*[2] * 6, *[2] * 4), length=by_length)
    (judge,) = summary.judges
    assert judge.accuracy.value == 1
    assert math.isnan(judge.kappa.value)
    assert judge.accuracy.interval == wilson_interval(10, 10)
    assert (judge.covered, judge.coverage, judge.ties) == (10, 1, 0)
    assert (judge.position.consistency.value, judge.position.first) == (1, 0.5)
    assert judge.per_item.calls == 2
    assert judge.per_item.tokens == 20
    assert judge.per_item.seconds == 6
    assert judge.per_item.cost == 1
    assert judge.usage.calls == 20


async def test_position_with_ties_and_a_third_text():
    items = [Item(f"i{n}", "q", ("a", "b", "c"), (1, 0, 0)) for n in range(4)]

    def rule(case):
        turned = case.candidates[0] == "c"
        given = {"i0": (1, 0, 0), "i1": (0, 1, 0), "i2": (1, 1, 0), "i3": (0, 0, 1)}[case.id]
        back = {"i0": (0, 1, 0), "i1": (0, 1, 0), "i2": (1, 0, 0), "i3": (1, 0, 0)}[case.id]
        return [float(v) for v in (back[::-1] if turned else given)]

    (judge,) = (await measure(items, rule=rule)).judges
    place = judge.position
    assert (place.items, place.consistency.value) == (4, 0.25)
    assert place.first == (1 + 0 + 0 + 0 + 0.5 + 0 + 0 + 0) / 8


async def test_kappa_by_hand():
    """Ten pairs: the judge says 1 in four of the six that are 1, and 2 in three of the others."""
    items = pairs(*[1] * 6, *[2] * 4)
    right = {f"i{n}" for n in (0, 1, 2, 3, 6, 7, 8)}

    def rule(case):
        first = (int(case.id[1:]) < 6) == (case.id in right)
        scores = [float(first), float(not first)]
        return scores if case.candidates[0] == "short" else scores[::-1]

    (judge,) = (await measure(items, rule=rule)).judges
    assert judge.accuracy.value == pytest.approx(0.7)
    assert judge.kappa.value == pytest.approx((0.7 - 0.5) / 0.5)
    assert judge.accuracy.interval.low < 0.7 < judge.accuracy.interval.high
    assert judge.kappa.interval.low < 0.4 < judge.kappa.interval.high


async def test_an_item_counts_only_with_all_its_orders():
    def rule(case):
        lost = case.id == "i0" and case.candidates[0] == "short"
        return AnswerError("cut") if lost else by_length(case)

    (judge,) = (await measure(pairs(1, 2, 2, 1), rule=rule)).judges
    assert (judge.items, judge.covered, judge.coverage) == (4, 3, 0.75)
    assert judge.accuracy.value == pytest.approx(2 / 3)
    assert judge.position.items == 3
    assert judge.failures == {"cut": 1}


async def test_comparisons():
    """Of twelve items the second judge is right in ten, the first in four of those."""
    items = pairs(*[1] * 12)

    def right_in(count):
        def rule(case):
            first = int(case.id[1:]) < count
            return [float((text == "short") == first) for text in case.candidates]

        return rule

    summary = await measure(items, four=right_in(4), ten=right_in(10), twelve=right_in(12))
    compared = {(c.first, c.second): c for c in summary.comparisons}
    assert list(compared) == [("four", "ten"), ("four", "twelve"), ("ten", "twelve")]
    judge_comparison = compared["four", "ten"]
    assert (judge_comparison.items, judge_comparison.better, judge_comparison.worse) == (12, 0, 6)
    assert judge_comparison.difference.value == pytest.approx(-0.5)
    assert (
        judge_comparison.difference.interval.low < -0.5 < judge_comparison.difference.interval.high
    )
    assert judge_comparison.permutation == pytest.approx(2 / 2**6)
    credits = [[1.0] * n + [0.0] * (12 - n) for n in (4, 10)]
    assert judge_comparison.items_needed == items_needed(*credits, tests=3)
    ps = sorted(c.permutation for c in summary.comparisons)
    assert sorted(c.permutation_holm for c in summary.comparisons) == pytest.approx(
        [3 * ps[0], 2 * ps[1], ps[2]]
    )


async def test_items_of_a_group_are_not_counted_as_independent():
    """Six items of one question flip together: one throw of a coin, and no interval."""
    items = [replace(i, group="one") for i in pairs(*[2] * 6)]
    summary = await measure(items, length=by_length, tied=lambda _: [0.5, 0.5])
    (compared,) = summary.comparisons
    assert compared.permutation == 1
    assert summary.groups == 1
    assert summary.judges[0].accuracy.interval.reason == "one group only"


scores = st.integers(0, 3).map(float)
drawn_pairs = st.lists(
    st.tuples(*[st.tuples(scores, scores)] * 3, st.integers(0, 3)), min_size=1, max_size=12
)


@given(drawn_pairs)
def test_figures_of_any_verdicts_hold_together(rows):
    items = [
        Item(f"i{n}", "q", ("a", "b"), human, f"g{group}")
        for n, (human, _, _, group) in enumerate(rows)
    ]
    verdicts = [
        Verdict("j", f"i{n}", order, answer)
        for n, (_, *both, _) in enumerate(rows)
        for order, answer in zip(("given", "reversed"), both, strict=True)
    ]
    summary = summarise(items, verdicts)
    (judge,) = summary.judges
    sides = [(h[0] > h[1]) - (h[0] < h[1]) for h, *_ in rows]
    ours = [(a[0] + b[0] > a[1] + b[1]) - (a[0] + b[0] < a[1] + b[1]) for _, a, b, _ in rows]
    expected_counts = [1 - abs(o - s) / 2 for o, s in zip(ours, sides, strict=True)]
    assert judge.accuracy.value == pytest.approx(sum(expected_counts) / len(rows))
    assert judge.ties == ours.count(0) / len(rows)
    place = judge.position
    assert place.items == len(rows)
    again = summarise(items, verdicts[::-1])
    assert json.dumps(plain(again), allow_nan=False) == json.dumps(plain(summary))


candidates = st.integers(2, 5).flatmap(
    lambda size: st.tuples(*[st.lists(scores, min_size=size, max_size=size)] * 2)
)


@given(candidates)
def test_shared_winners_agree_as_much_as_accuracy_says(sides):
    judged, human = sides
    table = share_winners(judged, human, 6)
    assert table.trace() == pytest.approx(top_credit(judged, human))
    assert table.sum() == pytest.approx(1)
    assert (table >= 0).all()
    for shares, values in ((table.sum(axis=1), judged), (table.sum(axis=0), human)):
        best = [v == max(values) for v in values]
        assert shares[: len(best)] == pytest.approx([b / sum(best) for b in best])


def repeat(winners, places=2):
    """Verdicts on items, of which each sample is a list of winners, None for a failure."""
    made = []
    for sample, of_sample in enumerate(winners):
        for number, winner in enumerate(of_sample):
            scores = tuple(float(place == winner) for place in range(places))
            failure = Failure("failed", "no use") if winner is None else None
            if failure:
                scores = (None,) * places
            made.append(Verdict("j", f"i{number}", "given", scores, failure=failure, sample=sample))
    return made


def test_a_judge_is_measured_against_itself():
    items = [Item(f"i{n}", f"q{n}", ("a", "b"), (1.0, 0.0)) for n in range(6)]
    assert measure_consistency(items, repeat([[0, 0, 0, 1, 1, 1]])) == {}
    same = measure_consistency(items, repeat([[0, 0, 0, 1, 1, 1]] * 3))["j"]
    assert (same.items, same.flips.value, same.kappa.value) == (6, 0.0, 1.0)
    # Cohen's table of the first five: 2 both first, 2 both second, 1 differs; by hand, Fleiss'
    # kappa of two raters: (4/5 - (.5**2 + .5**2)) / (1 - .5) = .6. The sixth failed once.
    once = measure_consistency(items, repeat([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, None]]))["j"]
    assert (once.items, once.flips.value) == (5, 0.2)
    assert once.kappa.value == pytest.approx(0.6, abs=1e-9)
