"""Labels are truths, numbers or objects, and a user compares and calibrates
by the same metric.

A label is written as a prompt writes a value (`true`), in both commands, to the editor and in
examples.
"""

import json
from datetime import date

import pytest

from textevolve.evaluation import EvaluationResult
from textevolve.loops.calibration.rewriting import show_demo
from textevolve.loops.calibration.trial_runner import Example
from textevolve.metrics.label_metrics import grade, open_metric

LABELS = [
    (True, "true"),
    (False, "false"),
    (1, "1"),
    (2.5, "2.5"),
    ({"a": [1]}, '{"a": [1]}'),
    ([True, False], "[true, false]"),
    (date(2026, 3, 1), "2026-03-01"),
]


@pytest.mark.parametrize(("label", "text"), LABELS)
def test_labels_have_one_text(label, text):
    result = grade(open_metric("exact"), text, label)
    assert isinstance(result, EvaluationResult)
    assert result.score == 1
    assert show_demo(Example("1", {"n": "2"}, label)) == f"n: 2\nanswer: {text}"


@pytest.mark.parametrize("kind", [bool, int])
def test_commands_agree_on_labels(kind, server, model, cli, home):
    def answer(body, _number):
        number = int(body["messages"][-1]["content"].split()[-1])
        return json.dumps(kind(number % 2))

    server.script = answer
    rows = [{"n": str(number), "label": kind(number % 2)} for number in range(12)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "t.txt").write_text("Number {n}")
    options = ("-m", model, "-d", "rows.jsonl", "--label", "label", "--metric", "exact")
    assert "12 of 12" in cli("compare", "-p", "t.txt", *options).out
    assert "The original scores 1 on all" in cli("calibrate", "t.txt", *options).out
