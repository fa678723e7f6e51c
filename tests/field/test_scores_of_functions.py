"""A user's judge or metric returns what its library makes: a truth of numpy, a Decimal, a pair.

Both doors take the same values. A cosine of equal texts is 1.0000000000000002 in floats.
"""

import json
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import textevolve
from textevolve.evaluation import EvaluationResult, Failure, check_result
from textevolve.metrics.label_metrics import grade

VALUES = [
    (np.bool_(True), 1.0),
    (np.float32(0.5), 0.5),
    (np.array(0.25), 0.25),
    (Decimal("0.8"), 0.8),
    (Fraction(4, 5), 0.8),
    ((0.8, "It is short."), 0.8),
    ((np.bool_(False), "It is long."), 0.0),
    ({"score": Decimal("0.8"), "comment": "It is short."}, 0.8),
    (SimpleNamespace(score=np.bool_(True), reason="It is short."), 1.0),
    (1.0000000000000002, 1.0),
    (-1e-16, 0.0),
    ((1.0000000000000002, "They are equal."), 1.0),
    (EvaluationResult(1.0000000000000002, True), 1.0),
]
NO_SCORES = ["0.8", 1.01, -0.01, float("nan"), None, Decimal("NaN"), [0.1, 0.2, 0.3], ("a", "b")]


@pytest.mark.parametrize(("value", "score"), VALUES)
def test_judge_and_metric_agree(value, score):
    judged = check_result(value)
    graded = grade(lambda _output, _label: value, "text", "label")
    assert isinstance(judged, EvaluationResult)
    assert isinstance(graded, EvaluationResult)
    assert judged.score == graded.score == score
    assert judged.feedback == graded.feedback


@pytest.mark.parametrize("value", NO_SCORES)
def test_no_score_in_both(value):
    assert isinstance(check_result(value), Failure)
    assert isinstance(grade(lambda _output, _label: value, "text", "label"), Failure)


@pytest.mark.usefixtures("home")
def test_pair_is_one_result():
    two = textevolve.evaluate("Why?", ["a", "b"], judge=lambda _case: (0.75, 0.25))
    assert two.scores == (0.75, 0.25)
    result = textevolve.evaluate("Why?", ["a"], judge=lambda _case: (Decimal("0.75"), "Short."))
    assert (result.scores, result.feedback) == ((0.75,), ("Short.",))
    each = textevolve.evaluate("Why?", ["a", "b"], judge=lambda _case: [(0.75, "x"), (0.25, "y")])
    assert each.scores == (0.75, 0.25)


def test_unreadable_number_of_a_node(cli, home):
    rows = [
        {"episode": "e", "step": n, "node": "plan", "input": "Say it.", "output": {"sure": value}}
        for n, value in enumerate((0.9, float("nan"), "high", True))
    ]
    (home / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = cli("nodes", "evaluate", "trace.jsonl", "--threshold", "sure=0.7")
    assert outcome.code == 3
    assert "sure is not a number but 'nan'" in outcome.err
    assert "sure is not a number but 'high'" in outcome.err
