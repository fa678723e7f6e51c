"""Rows have their own checks, as people write them for other tools.

Each situation was reported to one of those tools; what is right was worked out by hand.
"""

import json

import pytest

import textevolve
from textevolve.errors import InputError
from textevolve.llm.testing import Answer

QUESTION = "When is the refund paid?"


def judge(text, checks, **row):
    """Return the result of a text whose row has these checks."""
    full_row = {"input": QUESTION, "output": text, "checks": checks, **row}
    (case,) = textevolve.evaluate_batch([full_row], judge="checks")
    return case.result[0]


# Weighted assertions: `equals` with weight 2 fails and `contains` with weight 1 holds.
WEIGHTED = [
    {"type": "equals", "value": "Hello world", "weight": 2},
    {"type": "contains", "value": "world", "weight": 1},
]


@pytest.mark.parametrize(
    ("threshold", "passed"), [(None, False), (0.5, False), (0.2, True), (0, True)]
)
def test_weights_with_a_threshold(home, threshold, passed):
    checks = WEIGHTED if threshold is None else {"assert": WEIGHTED, "threshold": threshold}
    result = judge("Goodbye world", checks)
    assert result.score == pytest.approx(1 / 3)
    assert result.passed == passed


@pytest.mark.parametrize(
    ("check", "text", "score"),
    [
        # A sign before any check turns both the verdict and the score.
        ({"type": "not-equals", "value": "Hello"}, "Hello", 0),
        ({"type": "not-equals", "value": "saddle"}, "Hello", 1),
        ({"type": "not-equals", "value": {"foo": "bar"}}, "hello world", 1),
        ({"type": "not-levenshtein", "value": "hello", "threshold": 2}, "hello", 0),
        ({"type": "not-contains-json", "value": {"required": ["a"]}}, 'So: {"a": 1}', 0),
        ({"type": "not-contains-json", "value": {"required": ["a"]}}, 'So: {"b": 1}', 1),
        ({"type": "not-is-json"}, "{}", 0),
        # A list in a text is split at commas, and quotes keep a comma.
        ("contains-any: <b>,</span>", "Glasgow, <b>fascinating</b>", 1),
        ("contains-any: <b> </span>", "Glasgow, <b>fascinating</b>", 0),
        ('contains-all:"1,000",in stock', "We have 1,000 in stock.", 1),
        # A number in the answer, above a bound.
        (r"regex: Score:\s*(5[1-9]|[6-9]\d|100)\s*%", "Score: 90%", 1),
        (r"regex: Score:\s*(5[1-9]|[6-9]\d|100)\s*%", "Score:10%", 0),
    ],
    ids=str,
)
def test_signs_and_lists(home, check, text, score):
    result = judge(text, [check])
    assert (result.score, result.passed) == (score, bool(score))


def test_shares_of_tools_with_a_sign(home):
    calls = [{"name": "find"}, {"name": "book"}]
    for expected, share in ((["find", "book"], 1), (["find", "book", "pay"], 0.8)):
        check = {"type": "not-tool-call-f1", "value": expected, "threshold": 0.5}
        result = judge("Done.", [check], tool_calls=calls)
        assert result.score == pytest.approx(1 - share)
        assert not result.passed


def test_a_judge_without_a_threshold_fails(home, server):
    """A measure that was left without a threshold must not pass with any score."""
    server.script = lambda body, _: None if "response_format" in body else Answer(yes=0.02)
    row = {"input": QUESTION, "output": "Bananas are yellow.", "checks": ["answer-relevance"]}
    (case,) = textevolve.evaluate_batch([row], judge=f"checks@{server.url}#scripted")
    assert case.result[0].score < 0.1
    assert not case.result[0].passed


def test_providers_of_rubrics_are_left_out(home, cli, server):
    """Many configurations name a grader of their own for each rubric, under promptfoo's names."""
    server.script = lambda *_: Answer(text='{"reason": "So it is.", "label": "yes"}')
    provider = {"id": "anthropic:messages:claude", "config": {"apiKeyRequired": False}}
    checks = [{"type": "llm-rubric", "value": text, "provider": provider} for text in ("a", "b")]
    row = {"input": QUESTION, "output": "Soon.", "assert": checks}
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", f"checks@{server.url}#scripted")
    assert (outcome.code, server.calls) == (0, 2)
    told = outcome.out + outcome.err
    assert "left out: 1 field: the provider of checks; they ask the judge's model" in told


def test_tables_of_promptfoo(home, cli):
    (home / "tests.csv").write_text(
        "input,output,__expected,__expected2\n"
        'Say hi,Bonjour le monde,Bonjour le monde,"contains-any: salut,Bonjour"\n'
        "Say bye,Au revoir,contains:Bonsoir,not-contains:Bon\n"
    )
    shown = cli("evaluate", "tests.csv", "--judge", "checks", "--json")
    scores = [json.loads(line)["candidates"][0]["score"] for line in shown.out.splitlines()]
    assert scores == [1, 0.5]
    refused = "input,output,__expected\nx,y,fn:output.includes('y')\n"
    (home / "tests.csv").write_text(refused)
    outcome = cli("evaluate", "tests.csv", "--judge", "checks")
    assert outcome.code == 2
    assert "tests.csv:2: checks:" in outcome.err
    assert "write a Python function" in outcome.err


def test_checks_without_a_judge_are_named(home, cli):
    row = {"input": QUESTION, "output": "Soon.", "assert": ["contains: 30 days"]}
    (home / "rows.jsonl").write_text(json.dumps(row))
    outcome = cli("evaluate", "rows.jsonl", "--judge", "look:length")
    assert "the column 'assert' has checks that no judge applies: add --judge checks" in outcome.err


# What is tested does not see its checks.

ROWS = [{"id": "a", "question": QUESTION, "checks": ["contains: 30 days", "rubric: kind"]}]


@pytest.mark.parametrize("judge", ["checks", "look:length"])
def test_targets_get_no_checks(home, judge):
    seen = []

    def application(row):
        seen.append(row)
        return "Within 30 days."

    rows = [{**ROWS[0], "checks": ["contains: 30 days"]}]
    compared = textevolve.compare(rows, targets=application, judge=judge)
    assert compared.failed == 0
    assert seen == [{"id": "a", "question": QUESTION}]


def test_prompts_show_no_checks(home, model):
    with pytest.raises(InputError, match="the checks of the row, which give the answer away"):
        textevolve.compare(ROWS, {"p": "{question} {checks}"}, models=[model], judge="checks")
    # A column of this name that holds no checks is one like any other.
    rows = [{"question": QUESTION, "checks": "Pay by check, please"}]
    compared = textevolve.compare(
        rows, {"p": "{question} {checks}"}, models=[model], judge="look:length"
    )
    assert compared.failed == 0


# Checks of the study.


def test_a_study_has_checks(home, cli, model):
    (home / "rows.csv").write_text("n,word\n1,one\n2,two\n")
    (home / "p.txt").write_text("Write {n}.")
    (home / "study.yaml").write_text(
        "kind: compare\nprompts: [p.txt]\ndata: rows.csv\n"
        f"models: ['{model}']\njudge: look:length\n"
        "check:\n  - 'not: contains: {word}'\n  - {max-cost: 1, name: cheap}\n"
    )
    outcome = cli("run", "study.yaml", "-o", "out.json")
    assert outcome.code == 0, outcome.err
    (variant,) = json.loads((home / "out.json").read_text())["variants"]
    assert variant["scorers"]["checks"]["value"] == 1
    assert set(variant["scorers"]) == {"look:length", "checks"}


def test_a_dry_run_counts_rubrics(home, cli, server, model):
    rows = [{"n": n, "checks": ["rubric: It is kind.", "max-words: 9"][n % 2 :]} for n in range(4)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "p.txt").write_text("Write {n}.")
    shown = cli(
        *("compare", "-p", "p.txt", "-m", model, "-d", "rows.jsonl"),
        *("--judge", "checks", "--dry-run", "--json"),
    )
    assert server.calls == 0
    assert json.loads(shown.out)["expected"]["calls"]["median"] == 6  # four outputs and two rubrics


def test_changed_checks_are_another_run(home, cli):
    def run(check):
        row = {"input": QUESTION, "output": "Within 30 days.", "checks": [check]}
        (home / "rows.jsonl").write_text(json.dumps(row))
        return cli("evaluate", "rows.jsonl", "--judge", "checks").err.split()[1]

    first = run("contains: 30 days")
    assert run("contains: 30 days") == first
    assert run("contains: 31 days") != first


def test_changed_functions_of_checks_are_another_run(home, cli):
    def run(score):
        (home / "own.py").write_text(f"def f(output):\n    return {score}\n")
        arguments = ("evaluate", QUESTION, "Soon.", "--check", "function: own.py:f")
        return cli(*arguments).err.split()[1]

    first = run(1)
    assert run(1) == first
    assert run(0) != first


# What an output costs.


def test_costs_of_applications(home):
    def application(row):
        return {"answer": "Soon.", "usage": {"prompt_tokens": 9, "cost": row.get("cost", 0.002)}}

    for most, passed in ((0.005, True), (0.001, False)):
        checks = [{"type": "cost", "threshold": most}, "max-seconds: 60"]
        row = {"input": QUESTION, "checks": checks}
        (case,) = textevolve.evaluate_batch([row], target=application, judge="checks")
        assert case.result[0].passed == passed
        compared = textevolve.compare([row], targets=application, judge="checks")
        assert next(iter(compared.outputs)).passed == passed


def test_unknown_costs_are_missing(home):
    rows = [{"input": QUESTION, "said": "Soon.", "checks": ["max-cost: 1"]}]
    compared = textevolve.compare(rows, outputs="said", judge="checks")
    (output,) = compared.outputs
    assert output.score is None
    assert "the cost of this output is not known" in output.failure.reason
