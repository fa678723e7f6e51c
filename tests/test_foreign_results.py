"""Results of other tools' judges keep their scores and their reasons."""

from types import SimpleNamespace

import pytest

from textevolve.evaluation import Case, EvaluationResult, Failure, check_result
from textevolve.loops.attempt import as_evaluator
from textevolve.metrics.plain import read_score
from textevolve.user_code import UserCodeError

SAID = "It names the moon."


@pytest.mark.parametrize(
    "result",
    [
        {"key": "correctness", "score": True, "comment": SAID, "metadata": None},
        SimpleNamespace(name="Factuality", score=1, metadata={"rationale": SAID}, error=None),
        SimpleNamespace(score=1.0, reason=SAID, success=True, error=None),
        SimpleNamespace(value=True, rationale=SAID, feedback=SimpleNamespace(value=True)),
        SimpleNamespace(value="yes", rationale=SAID, feedback=SimpleNamespace(value="yes")),
        {"score": 1.0, "feedback": SAID},
    ],
    ids=["openevals", "autoevals", "DeepEval", "MLflow", "a judge of MLflow", "ours"],
)
async def test_a_result_keeps_its_reason(result):
    assert check_result(result) == EvaluationResult(1.0, True, SAID)
    assert read_score(result, 0.5) == EvaluationResult(1.0, True, SAID)
    evaluation = await as_evaluator(lambda case: result)(Case("Why?", ("The moon.",)))
    assert evaluation.result == (EvaluationResult(1.0, True, SAID),)


@pytest.mark.parametrize(
    "result", [{}, None, {"score": None}, SimpleNamespace(value="high"), object()]
)
def test_what_has_no_score_is_a_failure(result):
    assert isinstance(check_result(result), Failure)


def test_the_error_of_another_tool_is_reported():
    no_score = check_result({"score": None, "comment": "I cannot tell."})
    assert "it says: I cannot tell." in no_score.reason
    assert "it says: no answer" in check_result(SimpleNamespace(error="no answer")).reason


def test_a_score_beyond_its_scale_is_a_failure():
    assert "outside 0 to 1" in check_result({"score": 7, "comment": SAID}).reason


@pytest.mark.parametrize(
    "said",
    ["<Event> is bound to a different event loop", "got Future attached to a different loop"],
)
def test_an_agent_of_another_loop_is_said_to_need_an_async_function(said):
    def agent(text):
        return text

    assert "pass an `async def`" in str(UserCodeError(agent, RuntimeError(said)))
    assert "async def" not in str(UserCodeError(agent, RuntimeError("no answer")))
