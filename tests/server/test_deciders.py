"""How a judge's scores become probabilities of options."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.llm.decisions import choice, predicate, score
from textevolve.protocol.decisions import choice_confidence, score_confidence
from textevolve.server.decisions.serving import (
    DecidingJudge,
    describe_question,
    read_state,
    share_out,
    spread,
    state_text,
)

shares = st.lists(st.floats(0.001, 1), min_size=2, max_size=12).map(
    lambda row: [one / sum(row) for one in row]
)


@given(st.floats(0, 1), st.integers(2, 10))
def test_a_spread_score_keeps_its_expectation(value, levels):
    answer = spread(value, levels)
    assert sum(answer.probabilities) == pytest.approx(1)
    assert sum(n * p for n, p in enumerate(answer.probabilities)) / (levels - 1) == pytest.approx(
        value, abs=1e-9
    )
    assert sum(p > 0 for p in answer.probabilities) <= 2


@given(shares)
def test_confidence_is_that_of_the_reference(row):
    reference = pytest.importorskip("jevcompat.validate")
    assert choice_confidence(row) == pytest.approx(reference.choice_confidence(row), abs=1e-9)
    assert score_confidence(row) == pytest.approx(reference.score_confidence(row), abs=1e-9)


def results(*odds):
    return [EvaluationResult(0.5, True, metadata={"log_odds": odd}) for odd in odds]


def test_options_share_by_their_log_odds():
    assert share_out(results(0.0, math.log(3))).probabilities == pytest.approx((0.25, 0.75))
    plain = [EvaluationResult(0.5, True), EvaluationResult(0.75, True)]
    assert share_out(plain).probabilities == pytest.approx((0.25, 0.75))
    assert share_out(results(-5000.0, 5000.0)).probabilities == (0.0, 1.0)


def test_one_option_without_a_score_leaves_the_choice_without_an_answer():
    missing = Failure("failed", "no answer")
    assert share_out([*results(1.0), missing]) is missing


class Judge:
    """Keeps the cases that it is given."""

    def __init__(self, outcome):
        self.outcome, self.cases, self.rubrics = outcome, [], []

    def open(self, rubric):
        self.rubrics.append(rubric)
        return self

    async def __call__(self, case):
        self.cases.append(case)
        self.result = [self.outcome] * len(case.candidates)
        return self


RIGHT = predicate("q1", "Is it right?", yes="No error.")


async def test_a_question_is_the_rubric_of_a_judge_that_takes_one():
    judge = Judge(EvaluationResult(0.8, True))
    decision = await DecidingJudge(judge.open, True)({"input": "2 + 2?", "output": "4"}, [RIGHT])
    assert decision.answer("q1").share == pytest.approx(0.8)
    (case,) = judge.cases
    assert (case.input, case.candidates) == ("2 + 2?", ("4",))
    assert judge.rubrics == ["Yes means: No error. Is it right?"]


async def test_a_state_that_is_no_case_is_judged_by_the_question():
    judge = Judge(EvaluationResult(0.8, True))
    await DecidingJudge(judge.open, False)("Four.", [RIGHT])
    (case,) = judge.cases
    assert (case.input, case.candidates) == ("Is it right?", ("Four.",))
    assert judge.rubrics == [""]


async def test_options_are_candidates():
    judge = Judge(EvaluationResult(0.8, True))
    question = choice("q1", "Which tone?", {"curt": "few words", "warm": ""})
    decision = await DecidingJudge(judge.open, True)("Hello!", [question])
    assert decision.answer("q1").probabilities == (0.5, 0.5)
    (case,) = judge.cases
    assert (case.input, case.candidates) == ("Hello!\n\nWhich tone?", ("curt: few words", "warm"))


def test_levels_stand_in_brackets_where_they_can_be_told_apart():
    assert describe_question(score("q", "How clear?", ["not", "very"])) == "How clear? [not | very]"
    odd = score("q", "How clear?", ["a [b|c]", "very"])
    assert describe_question(odd) == "How clear? [a /b/c/ | very]"
    same = score("q", "How clear?", ["not", "not"])
    assert describe_question(same) == "How clear? (not; not)"


# What is made of the states that clients send.


def test_an_input_and_an_output_under_any_of_their_names_are_a_case():
    for state in (
        {"input": "Why?", "output": "So."},
        {"question": "Why?", "answer": "So."},
        {"instruction": "Why?", "response": "So."},
        {"Prompt": "Why?", "completion": "So."},
    ):
        assert read_state(state) == Case("Why?", ("So.",))
        assert read_state(json.dumps(state)) == Case("Why?", ("So.",))


def test_the_test_case_of_deepeval_is_a_case():
    state = {
        "test_case": {
            "input": "Why?",
            "actual_output": "So.",
            "expected_output": "Hence.",
            "retrieval_context": ["One.", "Two."],
        }
    }
    assert read_state(state) == Case("Why?", ("So.",), reference="Hence.", context="One.\n\nTwo.")


def test_of_a_conversation_the_last_reply_is_judged():
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    expected = Case("Why?", ("So.",))
    assert read_state(turns) == expected
    assert read_state({"messages": turns}) == expected
    assert read_state({"turns": turns}) == expected


def test_any_other_state_is_judged_whole():
    for state in ("So.", "{not JSON", ["a", "b"], {"subject": "Why?", "body": "So."}):
        assert read_state(state) == Case("", (state_text(state),))
    several = {"input": "Why?", "output_1": "So.", "output_2": "Thus."}
    assert read_state(several) == Case("", (state_text(several),))
    unanswered = [{"role": "user", "content": "Why?"}]
    assert read_state(unanswered) == Case("", ("Why?",))


def test_a_state_cannot_set_what_a_judge_does():
    case = read_state({"input": "Why?", "output": "So.", "parameters": {"rounds": 99}})
    assert case.input == 'Why?\n\nparameters: {"rounds":99}'
