import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import AccessError, AnswerError, BudgetError, InputError
from textevolve.evaluation import Case, EvaluationResult, Failure, PlainEvaluation, Usage
from textevolve.loops.rules import parse_rules
from textevolve.node_eval import (
    GENERATE,
    VERIFY,
    ConsistencyEvaluator,
    History,
    HistoryItem,
    JudgeEvaluator,
    LatencyEvaluator,
    Monitor,
    NodeEvaluator,
    NodeJudge,
    SnapshotLimits,
    ThresholdEvaluator,
    TokenEvaluator,
)
from textevolve.node_eval.evaluators import FieldError, read_value, similarity
from textevolve.node_eval.judging import judge_node
from textevolve.node_eval.snapshots import take_snapshot

SMALL = SnapshotLimits(characters=10, items=4)


def past(*outputs, **more):
    """A history of nodes of one name, of which the last is to be judged."""
    return History([[HistoryItem(1.0, GENERATE, {"q": 1}, o, node="n", **more)] for o in outputs])


# Fields.

STATE = {"a": 1, "b.c": 2, "b": {"c": 3, "d": [{"e": "x"}, {"e": "y"}]}, "none": None}


@pytest.mark.parametrize(
    ("key", "value"),
    [("a", 1), ("b.c", 2), ("b.d.0.e", "x"), ("b.d.-1.e", "y"), ("none", None), (None, STATE)],
)
def test_a_field_is_found_by_its_key_or_its_path(key, value):
    assert read_value(STATE, key, "output") == value


def test_without_a_key_the_text_of_a_state_is_read():
    assert read_value({"text": "the tide", "n": 1}, None, "output") == "the tide"


@pytest.mark.parametrize("key", ["c", "a.b", "b.d.2", "b.d.e", "b.d.-3", "", "."])
def test_a_field_that_is_not_there_is_an_error_that_names_it(key):
    with pytest.raises(FieldError, match=r"the output has no field"):
        read_value(STATE, key, "output")


# Checks.


def rules_on(name, rules, key):
    return JudgeEvaluator(
        name, parse_rules(f"rules: {rules}"), None, key, background=False, needs_input=False
    )


CHECKS = [ConsistencyEvaluator("c", "text"), rules_on("r", "[{kind: length, max: 3}]", "text")]


@pytest.mark.parametrize("evaluator", CHECKS, ids=lambda one: one.name)
def test_a_missing_or_cut_field_gives_no_score(evaluator):
    def judge(state):
        return asyncio.run(judge_node(past(state), evaluator))

    assert judge({}) == Failure("failed", "the output has no field 'text'")
    assert judge(None) == Failure("skipped", "no output was recorded")
    cut = judge(take_snapshot({"text": "word " * 9}, SMALL))
    assert cut.kind == "failed"
    assert "<35 more characters: not kept>" in cut.reason


def test_budgets():
    took = past({}, seconds=2.0, tokens=100)
    assert LatencyEvaluator("t", 2).evaluate(took).passed
    assert LatencyEvaluator("t", 0.5).evaluate(took).score == 0.25
    assert TokenEvaluator("t", 100).evaluate(took).score == 1.0
    result = TokenEvaluator("t", 50).evaluate(took)
    assert (result.score, result.passed, result.feedback) == (0.5, False, "100 of 50 tokens")
    for evaluator in (LatencyEvaluator("t", 2), TokenEvaluator("t", 2)):
        assert evaluator.evaluate(past({})).kind == "skipped"


def test_consistency_with_earlier_nodes():
    check = ConsistencyEvaluator("same", "text", earlier=2)
    outputs = [{"text": "far away"}, {"text": "a b c d"}, {}, {"text": "a b"}, {"text": "a b"}]
    result = check.evaluate(past(*outputs))
    assert result.score == pytest.approx((1 + 2 / 3) / 2)
    assert (result.passed, result.metadata) == (True, {"compared": 2})
    assert check.evaluate(past({"text": "a"})) == Failure(
        "skipped", "no earlier node to compare with"
    )


def test_consistency_of_the_same_node_or_instruction():
    history = past({"x": 1.0}, {"x": 0.5})
    other, last = history.entries[0][0], history.entries[1][0]
    other.node = "other"
    assert ConsistencyEvaluator("c", "x").evaluate(history).kind == "skipped"
    check = ConsistencyEvaluator("c", "x", of_same="instruction")
    assert check.evaluate(history).score == 0.5
    beside = History([[other, last]])
    assert ConsistencyEvaluator("c", "x", of_same="instruction").evaluate(beside).score == 0.5
    other.error = "raised ValueError"
    assert ConsistencyEvaluator("c", "x", of_same="instruction").evaluate(beside).kind == "skipped"


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(values, values)
def test_likeness_is_symmetrical_and_within_its_bounds(one, other):
    alike = similarity(one, other)
    assert 0 <= alike <= 1 + 1e-9
    assert math.isclose(alike, similarity(other, one))
    if one == one and "nan" not in repr(one):
        assert math.isclose(similarity(one, one), 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ThresholdEvaluator("", "key", 0.5),
        lambda: ThresholdEvaluator("t", "key", "high"),
        lambda: LatencyEvaluator("t", float("nan")),
        lambda: JudgeEvaluator("j", "probe"),
        lambda: NodeJudge([ThresholdEvaluator("t", "key", 0.5, [VERIFY])], instruction=GENERATE),
    ],
)
def test_what_cannot_be_used_is_refused_where_it_is_made(make):
    with pytest.raises(InputError):
        make()


# Judges.


def judge_with(outcome, asked=None):
    async def judge(case):
        if asked is not None:
            asked.append((case.input, case.candidates))
        if isinstance(outcome, Exception):
            raise outcome
        return PlainEvaluation((outcome,), Usage(1, 100, 0, 20, 0.5))

    return judge


async def test_a_judge_is_asked_about_the_chosen_fields():
    requests = []
    judge = judge_with(EvaluationResult(0.8, True, "good", {"k": 1}), requests)
    evaluator = JudgeEvaluator("judge", judge, "q", "text", [GENERATE])
    assert evaluator.background
    result = await evaluator.evaluate(past({"text": "the tide", "n": 2}))
    assert requests == [("1", ("the tide",))]
    assert (result.score, result.passed, result.feedback) == (0.8, True, "good")
    assert result.metadata == {"k": 1, "usage": {"calls": 1, "tokens": 120, "cost": 0.5}}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Failure("skipped", "budget"), Failure("skipped", "budget")),
        (BudgetError("spent"), Failure("skipped", "spent")),
        (AnswerError("no number"), Failure("failed", "no number")),
        (AccessError("wrong key"), Failure("failed", "wrong key")),
        (ValueError("bad luck"), Failure("failed", "raised ValueError: bad luck")),
    ],
)
def test_a_judge_that_gives_no_score_is_a_failure(outcome, expected):
    with Monitor([JudgeEvaluator("judge", judge_with(outcome), "q", "text")]) as monitor:
        item = monitor.end(monitor.begin("n", GENERATE, {"q": 1}), {"text": "the tide"})
        assert monitor.drain_sync(20)
    assert item.evaluation_results == {"judge": expected}


class Wrong(NodeEvaluator):
    async def evaluate(self, history):
        raise ValueError("bad luck")


async def test_evaluators_of_nodes_are_a_judge_for_the_loops():
    evaluators = [
        rules_on("length", "[{kind: length, max: 2}]", "answer"),
        rules_on("rules", "[{kind: must, pattern: tide}]", "answer"),
        ThresholdEvaluator("other", "key", 0.5, [VERIFY]),
    ]
    judge = NodeJudge(evaluators, instruction=GENERATE, output_key="answer")
    evaluation = await judge(Case("why", ("the tide", "the moon and more")))
    first_result, second_result = evaluation.result
    assert (first_result.score, first_result.passed, first_result.feedback) == (1.0, True, "")
    assert second_result.score == 0.25
    assert second_result.feedback.startswith("length: ")
    assert (evaluation.coverage, evaluation.usage.calls) == (1.0, 0)
    broken = await NodeJudge([*evaluators, Wrong("w")], output_key="answer")(Case("why", ("tide",)))
    assert broken.result == (Failure("failed", "w: raised ValueError: bad luck"),)
    assert broken.coverage == 0.0
    with pytest.raises(InputError):
        await judge(Case("why", ()))
