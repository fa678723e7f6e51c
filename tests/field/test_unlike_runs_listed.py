"""A user lists runs of one file that were judged by different judges."""

import json

CASE = {"id": "a", "input": "Why?", "output": "It is so.", "reference": "It is so."}


def test_unlike_judges_are_not_compared(home, cli, model):
    (home / "cases.jsonl").write_text(json.dumps(CASE) + "\n")
    judges = ("single", "jury", "debate", "metric:exact", "metric:contains", "probe", "probe+rules")
    for judge in judges:
        outcome = cli("evaluate", "cases.jsonl", "--judge", judge, "-m", model)
        assert outcome.code in (0, 3), outcome.err
    text = cli("runs", "list").out
    assert "points" not in text
    for judge in (
        "single:general",
        "jury:general",
        "debate:general",
        "metric:exact",
        "probe+rules",
    ):
        assert judge in text


def test_no_judge_is_best(home, cli):
    (home / "cases.jsonl").write_text(json.dumps({**CASE, "output": "It is so. Yes."}) + "\n")
    judges = ("--judge", "metric:exact", "--judge", "metric:contains")
    assert cli("evaluate", "cases.jsonl", *judges).code == 0
    text = cli("runs", "list").out
    assert "exact 0.0 %" in text
    assert "contains 100.0 %" in text
    decided = ("--score-by", "metric:exact")
    assert cli("evaluate", "cases.jsonl", *judges, *decided).code == 0
    text = cli("runs", "list").out  # the same run, in which one judge decides now
    assert "exact 0.0 %" in text
    assert "100.0 %" not in text


def test_thresholds_are_told_apart(home, cli, model):
    (home / "cases.jsonl").write_text(json.dumps(CASE) + "\n")
    for threshold in ("0.2", "0.9"):
        options = ("--judge", "probe", "--threshold", threshold, "-m", model)
        assert cli("evaluate", "cases.jsonl", *options).code in (0, 3)
    assert "points" not in cli("runs", "list").out
