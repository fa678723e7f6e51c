"""A user writes a study file: prompts from files, and mistakes whose line an editor should show."""

import json

import pytest

from textevolve.runs.study import read_study_file

ROWS = [{"id": "r1", "n": 4, "sum": "8"}]
COMPARE = "kind: compare\ndata: rows.jsonl\nlabel: sum\nmetric: exact\n"


@pytest.mark.parametrize(
    "prompts",
    [
        "prompts: [r.txt]",
        "prompts: ['@r.txt']",
        "prompts: {r: '@r.txt'}",
        "prompts: {r: r.txt}",
        "prompts: {r: {file: r.txt}}",
        "prompts: [{file: r.txt}]",
        "prompts: [{name: r, file: r.txt}]",
    ],
)
def test_prompts_come_from_files(prompts, cli, home, server, model):
    (home / "r.txt").write_text("Double {n}")
    (home / "rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    (home / "s.yaml").write_text(f"{COMPARE}models: {model}\n{prompts}\n")
    assert cli("run", "s.yaml").code == 0
    assert server.requests[-1]["messages"][-1]["content"] == "Double 4"
    _, spec = read_study_file("s.yaml")
    assert [prompt.name for prompt in spec.prompts] == ["r"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("kind: compare\ndata: d\nprompts: 3\n", 3, "prompts must be a list of templates"),
        ("kind: compare\ndata: d\nprompts:\n- a {n}\n- nosuch.txt\n", 5, "cannot be read"),
        ("kind: compare\ndata: d\nprompts: {r: {file: nosuch.txt}}\n", 3, "cannot be read"),
        (
            "kind: compare\ndata: d\nprompts:\n- text: a\n  nme: x\n",
            4,
            "prompts.0: name is missing",
        ),
        (
            "kind: compare\ndata: d\nprompts:\n- a {n}\n- messages:\n  - {role: usr, content: x}\n",
            6,
            "role must be 'system', 'user' or 'assistant', not 'usr'",
        ),
        ("kind: compare\nprompts: [a]\nmetric: exact\n", 3, "metric exact needs a label"),
        ("kind: compare\nprompts: [a]\nlabel: x\nmetric: [exact, exact]\n", 4, "named twice"),
        ("kind: evaluate\ncases: x\njudge:\n- probe\n- nosuch\n", 5, "judge 'nosuch'"),
        ("kind: evaluate\ncases: x\nrounds: many\n", 3, "rounds: must be a valid number"),
        ("kind: evaluate\ncases: x\nmax_seconds: 3\n", 3, "write --time-limit"),
        ("kind: calibrate\ndata: d\ntemplate: {file: nosuch.txt}\n", 3, "cannot be read"),
        ("kind: nodes\ntrace: t\nthreshold:\n- confidence\n", 4, "NAME=NUMBER"),
        ("kind: nosuch\n", 1, "no kind of study is named 'nosuch'"),
    ],
)
def test_an_error_names_its_line(text, line, words, cli, home):
    (home / "s.yaml").write_text(text)
    outcome = cli("run", "s.yaml")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: s.yaml:{line}: "), outcome.err
    assert words in outcome.err
