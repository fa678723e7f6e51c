"""A user's rows have columns, pictures or passages that the command has no use for."""

import json

import pytest

import textevolve

ROWS = [
    {"id": f"r{n}", "n": n, "input": f"Q{n}?", "output": "x", "sum": str(n), "wheel": 1}
    for n in range(3)
]
CHAIN = "name: twice\ninputs: [n]\nsteps: [{ask: z, prompt: 'Double {n}'}]\n"


@pytest.fixture
def rows(home):
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (home / "p.txt").write_text("Say {n}")
    (home / "twice.yaml").write_text(CHAIN)
    return "rows.jsonl"


@pytest.mark.parametrize(
    ("command", "unread"),
    [
        ("evaluate rows.jsonl --judge look:length", "n, sum, wheel"),
        ("compare --outputs output -d rows.jsonl --input input -j look:length", "n, sum, wheel"),
        (
            "compare -p p.txt -d rows.jsonl --label sum --metric exact -m MODEL",
            "input, output, wheel",
        ),
        ("run chains run twice.yaml -d rows.jsonl -m MODEL", "input, output, sum, wheel"),
        (
            "optimize rows.jsonl --judge look:length --max-iterations 1 -m MODEL",
            "n, output, sum, wheel",
        ),
    ],
)
def test_unread_columns_are_named(cli, rows, model, command, unread):
    outcome = cli(*command.replace("MODEL", model).split())
    assert outcome.code in (0, 3), outcome.err
    line = f"left out: {unread.count(',') + 1} columns: nothing reads {unread}\n"
    assert outcome.err.count(line) == 1


def test_all_columns_may_be_read(cli, rows):
    # Without an input column the report shows the whole row.
    outcome = cli(
        "compare", "--outputs", "output", "-d", rows, "--metric", "regex:x", "--map", "q=input"
    )
    assert outcome.code == 0
    assert "nothing reads" not in outcome.err


def test_a_run_keeps_its_notes(cli, rows):
    cli("evaluate", rows, "--judge", "look:length")
    line = "left out: 3 columns: nothing reads n, sum, wheel"
    outcome = cli("runs", "show", "last")
    assert "3 columns: nothing reads n, sum, wheel" in " ".join(outcome.out.split())
    cli("runs", "export", "last", "out.json")
    with open("out.json", encoding="utf-8") as file:
        assert json.load(file)["left_out"] == [line]
    assert line in cli("runs", "resume", "last").err


def test_passages_without_reader_are_named(cli, home):
    row = {"input": "Why?", "output": "Tides.", "contexts": ["The moon pulls."]}
    (home / "rag.jsonl").write_text(json.dumps(row) + "\n")
    outcome = cli("evaluate", "rag.jsonl", "--judge", "look:length")
    assert "left out: 1 column: no judge reads contexts\n" in outcome.err
    own_outcome = cli("evaluate", "rag.jsonl", "--judge", "python:json.dumps")
    assert "no judge reads" not in own_outcome.err


def test_python_warns_of_columns(home, caplog):
    rows = [{"input": "q", "candidates": ["a"], "weigths": 1}]
    assert len(list(textevolve.evaluate_batch(rows, judge="look:length"))) == 1
    assert caplog.messages == ["left out: 1 column: nothing reads weigths"]


def test_fields_of_nodes_are_named(cli, home):
    node = {"node": "plan", "input": {"q": "x"}, "output": {"a": 1}, "colour": "red"}
    (home / "t.jsonl").write_text(json.dumps(node) + "\n")
    outcome = cli("nodes", "evaluate", "t.jsonl", "--threshold", "a=0")
    assert "left out: 1 column: nothing reads colour\n" in outcome.err
