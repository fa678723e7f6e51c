"""A user names an option twice that takes one value, such as a second judge, file or gate."""

import csv
import io
import json

import pytest

import textevolve
from textevolve.errors import InputError

ROWS = [
    {"id": "a", "input": "Why?", "candidate": "Tides", "reference": "Tides"},
    {"id": "b", "input": "What?", "candidate": "Sun", "reference": "Moon"},
    {"id": "c", "input": "Who?", "candidates": ["Ann", "Bob"], "reference": "Bob"},
]
JUDGES = ("--judge", "metric:exact", "--judge", "metric:regex:n")


@pytest.fixture
def rows(home):
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return "rows.jsonl"


@pytest.mark.parametrize(
    ("command", "values"),
    [
        (("compare", "-d", "one.csv", "--data", "two.csv"), ("one.csv", "two.csv")),
        (("compare", "-done.csv", "-d", "two.csv"), ("one.csv", "two.csv")),
        (("runs", "list", "--limit=3", "--limit", "3"), ("3", "3")),
        (("evaluate", "x", "y", "--rubric", "clear", "--rubric", "safe"), ("clear", "safe")),
        (("evaluate", "x.jsonl", "--map", "id=a", "--map", "id=b"), ("id=a", "id=b")),
    ],
)
def test_a_second_value_is_refused(cli, command, values):
    outcome = cli(*command)
    assert outcome.code == 2
    assert "more than once" in outcome.err
    assert all(value in outcome.err for value in values)


def test_opposite_switches_are_refused(cli):
    outcome = cli("evaluate", "q", "a", "--rules", "--no-rules")
    assert (outcome.code, outcome.err) == (2, "error: give only one of --rules and --no-rules\n")


def test_a_repeated_switch_is_harmless(cli, home):
    assert cli("runs", "list", "--json", "--json").code == 0


def test_each_judge_has_its_gate(cli, rows):
    outcome = cli("evaluate", rows, *JUDGES, "--min-pass-rate", "0.6")
    assert outcome.code == 0
    # exact: a and c of three; the letter n: "Sun" and "Ann" of three
    assert "gate holds for metric:exact: pass rate 0.667" in outcome.err
    assert "gate holds for metric:regex:n: pass rate 0.667" in outcome.err
    assert outcome.err.count("gate ") == 2


def test_a_named_judge_is_gated_alone(cli, rows):
    outcome = cli(
        "evaluate", rows, *JUDGES, "--min-pass-rate", "0.9", "--score-by", "metric:regex:n"
    )
    assert "metric:regex:n" in outcome.err.partition("gate fails")[2]
    assert "gate fails for metric:exact" not in outcome.err
    refused = cli("evaluate", rows, *JUDGES, "--min-mean", "0.9", "--score-by", "probe")
    assert refused.code == 2
    assert "metric:exact, metric:regex:n" in refused.err


def test_each_judge_has_its_column(cli, rows, home):
    cli("evaluate", rows, *JUDGES, "-o", "scores.csv", "-o", "lines.jsonl", "-o", "sum.json")
    table = list(csv.DictReader(io.StringIO((home / "scores.csv").read_text())))
    scores = [
        (row["text"], row["score.metric:exact"], row["score.metric:regex:n"]) for row in table
    ]
    assert scores == [
        ("Tides", "1.0", "0.0"),
        ("Sun", "0.0", "1.0"),
        ("Ann", "0.0", "1.0"),
        ("Bob", "1.0", "0.0"),
    ]
    lines = [json.loads(line) for line in (home / "lines.jsonl").read_text().splitlines()]
    assert [line["judge"] for line in lines] == ["metric:exact", "metric:regex:n"] * 3
    assert json.loads((home / "sum.json").read_text())["cases"] == 3


def test_a_study_file_names_several(cli, rows, home):
    (home / "study.yaml").write_text(
        "kind: evaluate\ncases: rows.jsonl\njudge: [metric:exact, metric:regex:n]\n"
    )
    outcome = cli("run", "study.yaml")
    assert outcome.code == 0
    assert "metric:exact: 2 of 3 cases passed" in " ".join(outcome.out.split())


def test_python_takes_several(home):
    judges = ["metric:regex:n", "metric:regex:B"]
    result = textevolve.evaluate("Who?", ["Ann", "Bob"], judge=judges)
    assert result.scores == (1.0, 0.0)
    assert {name: of.scores for name, of in result.by_judge.items()} == {
        "metric:regex:n": (1.0, 0.0),
        "metric:regex:B": (0.0, 1.0),
    }
    batch = textevolve.evaluate_batch([{"input": "Who?", "candidates": ["Ann"]}], judge=judges)
    assert [(result.judge, result.scores) for result in batch] == [
        ("metric:regex:n", (1.0,)),
        ("metric:regex:B", (0.0,)),
    ]


def test_one_judge_fails_alone(cli, home, server, model):
    (home / "rows.jsonl").write_text(json.dumps({**ROWS[0], "reference": None}) + "\n")
    outcome = cli(
        "evaluate", "rows.jsonl", "--judge", "metric:exact", "-j", "metric:regex:T", "--json"
    )
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.code == 3
    assert [line["status"] for line in lines] == ["failed", "scored"]


def test_options_of_debates_need_one(cli, home):
    with pytest.raises(InputError, match=r"debate:general\+rounds=1"):
        textevolve.evaluate("q", ["a"], judge=["probe", "debate:general"], rounds=1)
