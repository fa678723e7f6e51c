"""The judge of checks: rubrics ask a model, all others do not; what has no answer is missing."""

import json

import pytest

from textevolve import Client, Limits
from textevolve.errors import InputError
from textevolve.evaluation import CHECKS, Case, EvaluationResult, Failure
from textevolve.judges.judge import parse_judge
from textevolve.judges.opening import Judges
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.loops.rules import take_checks


def with_checks(*checks, **fields):
    parameters = {CHECKS: take_checks((), list(checks), {}, "row 1")}
    return Case("When is it paid?", ("Within 30 days.", "Soon."), "1", parameters, **fields)


async def judge(case, script=None, judge="checks"):
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "scripted") as client:
        opened = Judges("m", lambda _: client).open(parse_judge(judge))
        return await opened(case), server


def answer_by(label):
    return lambda _body, _call: Answer(text=json.dumps({"reason": "Seen.", "label": label}))


async def test_checks_in_code_ask_nobody():
    evaluation, server = await judge(with_checks("contains: 30 days", "max-words: 3"))
    assert [(r.score, r.passed) for r in evaluation.result] == [(1, True), (0.5, False)]
    assert (server.calls, evaluation.usage.calls) == (0, 0)


async def test_a_rubric_is_one_call():
    case = with_checks("rubric: It names a time.", "rubric: It names a time.", "not: rubric: Rude.")
    evaluation, server = await judge(case, answer_by("yes"))
    # Two criteria and two candidates; a criterion that stands twice is asked once.
    assert server.calls == evaluation.usage.calls == 4
    assert [r.score for r in evaluation.result] == [pytest.approx(2 / 3)] * 2
    prompt = json.dumps(server.requests[0])
    assert "It names a time." in prompt
    assert "> Within 30 days." in prompt
    assert "Soon." not in prompt


async def test_rubrics_pass_by_the_verdict():
    for label, passed in (("yes", True), ("No.", False)):
        evaluation, _ = await judge(with_checks("rubric: It is kind."), answer_by(label))
        assert [r.passed for r in evaluation.result] == [passed] * 2
    assert "Seen." in evaluation.result[0].feedback


@pytest.mark.parametrize("answer", [Answer(text="Hm."), Answer(text=""), Answer(status=500)])
async def test_a_rubric_without_answer_is_missing(answer):
    case = with_checks("contains: 30 days", "rubric: It is kind.")
    evaluation, _ = await judge(case, lambda *_: answer)
    for result in evaluation.result:
        assert isinstance(result, Failure)
        assert "rubric: It is kind." in result.reason


async def test_without_a_model_rubrics_are_missing():
    def refuse(name):
        raise AssertionError(name)

    opened = Judges("", refuse).open(parse_judge("checks"))
    evaluation = await opened(with_checks("rubric: It is kind."))
    assert "no model" in evaluation.result[0].reason
    assert (await opened(with_checks("contains: 30"))).result[0].passed


async def test_rows_without_checks_are_missing():
    evaluation, _ = await judge(Case("x", ("y", "z")))
    assert [r.reason[:21] for r in evaluation.result] == ["the row has no checks"] * 2


async def test_other_judges_answer_checks():
    case = with_checks("faithfulness", context="It is paid within 30 days.")
    evaluation, server = await judge(case)
    assert server.calls
    assert all(isinstance(result, EvaluationResult) for result in evaluation.result)
    missing, _ = await judge(with_checks("faithfulness"))
    assert "context" in missing.result[0].reason


async def test_a_threshold_of_the_row_decides():
    case = with_checks("contains: 30 days", "contains: Soon")
    case = Case(case.input, case.candidates, "1", {**case.parameters, "threshold": 0.5})
    evaluation, _ = await judge(case)
    assert [r.passed for r in evaluation.result] == [True, True]


async def test_rules_of_a_file_have_rubrics(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("- 'contains: 30 days'\n- 'rubric: It is kind.'\n")
    text = f"rules:{file}"
    assert parse_judge(text).models("m") == ("m",)
    evaluation, server = await judge(Case("x", ("30 days",)), answer_by("yes"), text)
    assert (evaluation.result[0].score, server.calls) == (1, 1)
    file.write_text("- 'contains: 30 days'\n")
    assert parse_judge(text).models("m") == ()


async def test_judges_that_compare_are_refused():
    stored = {"rules": ["judge: pairwise"]}
    with pytest.raises(InputError, match="compares"):
        await judge(Case("x", ("a",), "1", {CHECKS: stored}))


def test_rubrics_that_a_limit_forbids_are_resumed(home, server, model):
    server.script = lambda *_: Answer(text='{"reason": "Seen.", "label": "yes"}')
    checks = ["rubric: It is kind.", {"any": ["rubric: It is brief.", "contains: x"]}]
    rows = [{"id": "a", "input": "When?", "output": "Soon.", "checks": checks}]
    with Client(model=model, limits=Limits(calls=1)) as client:
        (case,) = client.evaluate_batch(rows, judge="checks", name="limited")
        assert case.failure.kind == "skipped"
        assert client.runs.get("limited").status != "finished"
    with Client(model=model) as client:
        client.runs.resume("limited")
        assert client.runs.get("limited").status == "finished"
    assert server.calls == 2
