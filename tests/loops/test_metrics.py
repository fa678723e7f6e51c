"""Evaluators as metrics: in plain Python, and in DSPy and GEPA where they are installed."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import textevolve
from textevolve import BudgetError, InputError, Limits
from textevolve.errors import AnswerError
from textevolve.evaluation import EvaluationResult, Failure, Usage


class Judgement:
    usage, coverage = Usage(), 1.0

    def __init__(self, outcome):
        self.result = (outcome,)


async def by_length(case):
    """A judge that likes long texts, and whose feedback is what it was asked about."""
    score = min(1.0, len(case.candidates[0]) / 10)
    return Judgement(EvaluationResult(score, score >= 0.5, f"asked: {case.input}"))


def failing(kind):
    async def judge(case):
        return Judgement(Failure(kind, "mumbled"))

    return judge


def test_texts_and_mappings_are_measured():
    metric = textevolve.as_metric(by_length)
    assert metric("Q?", "12345") == 0.5
    assert metric({"question": "Q?"}, {"reasoning": "long thoughts", "answer": "123"}) == 0.3
    assert metric.measure({"question": "Q?"}, "1").feedback == "asked: Q?"
    both = metric.measure({"question": "Q?", "context": 7}, "1")
    assert both.feedback == "asked: question: Q?\ncontext: 7"


def test_fields_are_picked_by_name_or_by_function():
    example, pred = {"question": "Q?", "label": "L"}, {"draft": "1", "final": "12"}
    metric = textevolve.as_metric(by_length, input="question", output="final")
    assert metric(example, pred) == 0.2
    new_metric = textevolve.as_metric(
        by_length, input=lambda e: f"{e['question']} {e['label']}", output=lambda p: p["draft"] * 4
    )
    assert new_metric.measure(example, pred) == EvaluationResult(0.4, False, "asked: Q? L")


def test_with_a_trace_it_says_whether_it_passes():
    assert textevolve.as_metric(by_length)("Q?", "123456", trace=[]) is True
    strict = textevolve.as_metric(by_length, threshold=0.7)
    assert strict("Q?", "123456", []) is False
    assert strict("Q?", "1234567", []) is True


def test_what_has_no_score_is_never_a_zero_that_nobody_chose():
    with pytest.raises(AnswerError, match="could not be judged: mumbled"):
        textevolve.as_metric(failing("failed"))("Q?", "x")
    metric = textevolve.as_metric(failing("failed"), missing=0.1, threshold=0.05)
    assert metric("Q?", "x") == 0.1
    assert metric("Q?", "x", []) is False
    assert "could not be judged (mumbled)" in metric.measure("Q?", "x").feedback
    with pytest.raises(BudgetError):
        textevolve.as_metric(failing("skipped"), missing=0.1)("Q?", "x")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: textevolve.as_metric(by_length, threshold=2), "threshold"),
        (lambda: textevolve.as_metric(by_length, input="q")({"p": 1}, "x"), "no field 'q'"),
        (lambda: textevolve.as_metric(by_length)(7, "x"), "is a int"),
        (lambda: textevolve.as_metric(by_length)("Q?", " "), "candidate 1 is blank"),
        (lambda: textevolve.as_metric("pairwise"), "cannot be compared"),
    ],
)
def test_what_cannot_be_used_is_refused(home, call, reason):
    with pytest.raises(InputError, match=reason):
        call()


# Judges by their names


async def test_a_judge_by_name_works_from_anywhere_and_is_kept(home, server, model):
    with textevolve.as_metric("probe", model=model) as metric:
        here = metric("Q?", "A.")
        assert server.calls == 3
        assert (await metric.ameasure("Q?", "A.")).score == here
        with ThreadPoolExecutor(8) as threads:
            scores = list(threads.map(lambda n: metric("Q?", f"Text {n % 4}."), range(16)))
        assert scores[:4] == scores[4:8] == scores[8:12] == scores[12:]
        assert len(server.seen) == 3 * 5
    calls = server.calls
    with textevolve.as_metric("probe", model=model) as metric:
        assert metric("Q?", "A.") == here
    assert server.calls == calls
    with pytest.raises(InputError, match="is closed"):
        metric("Q?", "A.")


def test_limits_hold_over_all_calls(home, server, model):
    client = textevolve.Client(model, limits=Limits(calls=5))
    with client.as_metric("probe", missing=0.0) as metric:
        metric("Q?", "A.")
        with pytest.raises(BudgetError, match="the limit of 5 calls"):
            metric("Q?", "B.")
        assert metric("Q?", "A.") > 0
    assert server.calls == 5


PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
*_, PLAIN, DSPY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_in_the_docs_runs(home, model, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    names = {}
    exec(PLAIN, names)
    assert 0 < names["score"] < 1
    assert isinstance(names["passed"], bool)
    assert "% yes" in names["feedback"]
