"""A user improves a prompt, and some of its trials have no score: answers were cut at the token
limit, or the metric raised. The search says how many and why, and ends as incomplete.

A trial that has no score speaks for no template, and neither does one that an output is to blame
for, which counts as 0 and is no gap.
"""

import json
import re

import pytest

from textevolve.llm.testing import Answer

METRICS = {
    "raises": "def score(output, label):\n"
    "    if output in ('1', '3', '4'):\n        raise RuntimeError('429: the quota is used up')\n"
    "    return float(output == label)\n",
    "scores": "def score(output, label):\n    return float(output == label)\n",
}


@pytest.fixture
def calibrate(server, model, cli, home):
    """Calibrate a prompt on 12 rows with answers of this script and this metric."""

    def calibrate(answer, metric="scores", more=(), count=12):
        server.script = lambda body, _number: answer(body["messages"][-1]["content"])
        rows = [{"n": str(n), "label": str(n % 5)} for n in range(count)]
        (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (home / "t.txt").write_text("The number is {n}")
        (home / "own.py").write_text(METRICS[metric])
        data = ("-d", "rows.jsonl", "--label", "label", "--metric", "own.py:score")
        limits = ("--budget", "40", "--seed", "1", "--strategy", "reflect", "-o", "o.json")
        return cli("calibrate", "t.txt", "-m", model, *data, *limits, *more)

    return calibrate


def answer_number(prompt):
    match = re.search(r"^(?:Now: )?The number is (\d+)$", prompt)
    if match is None:
        return json.dumps({"template": "Now: The number is {n}"})
    number = int(match[1])
    return str(number % 5) if number % 2 else "none"


def cut_answer(prompt):
    text = answer_number(prompt)
    if text == "none" and prompt[-1] in "048":
        return Answer(text="It is prob", finish_reason="length")
    return text


def test_cut_answers_are_reported(calibrate, server):
    outcome = calibrate(cut_answer, count=30)
    assert outcome.code == 3
    assert "trials have no score, the first: the output was cut at the token limit" in outcome.err
    assert "--max-output-tokens may be too low" in outcome.err
    requests = [str(request) for request in server.requests]
    assert any("You improve" in text and "the output was cut" in text for text in requests)


def test_gates_count_trials(calibrate):
    outcome = calibrate(cut_answer, more=("--min-mean", "0"), count=30)
    assert outcome.code == 4
    assert re.search(r"gate fails: \d+ of \d+ trials without a score, more than 0", outcome.err)
    assert calibrate(cut_answer, more=("--max-failed", "0.9"), count=30).code == 0


def test_raising_metrics_are_reported(calibrate):
    outcome = calibrate(answer_number, "raises")
    assert outcome.code == 3
    assert "429: the quota is used up" in outcome.err


def test_wrong_answers_are_no_gap(calibrate):
    outcome = calibrate(answer_number)
    assert outcome.code == 0
    assert "no score" not in outcome.err
