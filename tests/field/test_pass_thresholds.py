"""A team passes what reaches 0.8, with `--pass-threshold 0.8`, and its judge says pass from 0.5 on.

Three scores of 0.7 are three failures in the headline, the rows, the files, the list of runs, the
table and the gate alike; a sum of weights that rounding keeps below 0.8 passes.
"""

import csv
import json

import pytest

JUDGE = """
def seven(case):
    return [0.7 for _ in case.candidates]


def rounded(case):
    return [0.1 + 0.7 for _ in case.candidates]
"""


@pytest.fixture
def evaluate(cli, home, monkeypatch):
    (home / "own_judges.py").write_text(JUDGE)
    monkeypatch.syspath_prepend(str(home))
    rows = [{"id": str(n), "input": "Why?", "output": f"So {n}."} for n in range(3)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(judge, *options):
        return cli("evaluate", "rows.jsonl", "--judge", f"python:own_judges.{judge}", *options)

    return run


def test_scores_below_the_threshold(cli, evaluate, home):
    options = ("--pass-threshold", "0.8", "-o", "out.csv", "--min-pass-rate", "0.5")
    assert evaluate("seven", *options).code == 4
    outcome = evaluate("seven", "--pass-threshold", "0.8")
    assert "0 of 3 cases passed" in outcome.out
    assert "pass " not in outcome.out.split("Cases")[-1]
    with (home / "out.csv").open(encoding="utf-8-sig") as file:
        assert {row["passed"] for row in csv.DictReader(file)} == {"false"}
    assert "0.0 %" in cli("runs", "list").out


def test_verdicts_of_the_judge_again(cli, evaluate):
    evaluate("seven", "--pass-threshold", "0.8")
    assert "3 of 3 cases passed" in evaluate("seven").out
    assert "100.0 %" in cli("runs", "list").out


def test_rounding_below_the_threshold(evaluate):
    outcome = evaluate("rounded", "--pass-threshold", "0.8", "--min-pass-rate", "1")
    assert outcome.code == 0
    assert "3 of 3 cases passed" in outcome.out


def test_outputs_of_a_comparison(cli, evaluate):
    options = ("--data", "rows.jsonl", "--outputs", "output", "--judge", "python:own_judges.seven")
    outcome = cli("compare", *options, "--input", "input", "--pass-threshold", "0.8")
    assert "0 of 3" in outcome.out
