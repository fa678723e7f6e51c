"""`textevolve nodes` as it is used on the command line."""

import json

import pytest

from textevolve.llm.testing import Answer

STEP = {"episode": "a", "node": "write", "instruction": "GENERATE", "input": {"text": "Tides?"}}
LINES = [
    {
        **STEP,
        "node": "plan",
        "instruction": "DECOMPOSE",
        "output": {"text": "The moon, then the sun."},
    },
    {
        **STEP,
        "step": 1,
        "output": {"text": "The moon pulls on the sea."},
        "seconds": 2.0,
        "tokens": 130,
    },
    {**STEP, "step": 1, "node": "look", "error": "timeout", "seconds": 5},
    {**STEP, "episode": "b", "output": {"text": "Wind."}, "seconds": 1.0},
]


@pytest.fixture
def trace(home):
    def write(*lines, name="trace.jsonl"):
        path = home / name
        path.write_text("".join(json.dumps(one) + "\n" for one in lines or LINES))
        return name

    return write


def words(text):
    return " ".join(text.split())


def test_lines_that_cannot_be_used_are_said_and_the_rest_is_judged(cli, trace, home):
    path = home / trace()
    path.write_text(path.read_text() + "oops\n" * 7 + '{"node": "n", "step": -1}\n')
    outcome = cli("nodes", "evaluate", path.name, "--latency", 1)
    assert outcome.code == 3
    assert "4 nodes in 2 episodes" in outcome.out
    assert "scores case score reason ─" in words(outcome.out)  # and no columns without a text
    assert f"{path.name}:5 lacks a score: not valid JSON" in outcome.err
    assert "3 more cases lack a score" in outcome.err
    assert f"{path.name}:12" in words(cli("runs", "show", "last", "--failed").out)
    outcome = cli("nodes", "show", path.name)
    assert outcome.code == 3
    assert f"{path.name}:12" in words(outcome.out)


def test_text_in_a_trace_steers_no_terminal(cli, trace):
    bad = "\x1b[31mred\x1b]0;title\x07 [bold]"
    line = {"node": bad, "input": bad, "output": bad, "error": bad, "episode": bad}
    line["results"] = {bad: {"score": 0.5, "passed": True, "feedback": bad}}
    outcome = cli("nodes", "show", trace(line), "--states")
    assert outcome.code == 0, outcome.err
    assert "\x1b" not in outcome.out
    assert "[bold]" in outcome.out


def test_the_nodes_of_a_run_are_exported_and_judged_further(cli, server, model, trace, home):
    server.script = lambda body, _: Answer(yes=0.9)
    chosen = ("--judge", "probe", "-m", model, "--latency", 1)
    assert cli("nodes", "evaluate", trace(), *chosen, "--name", "first").code == 0
    assert cli("runs", "export", "first", "nodes.jsonl").code == 0
    outcome = cli("nodes", "evaluate", "nodes.jsonl", "--tokens", 100, "--json")
    assert outcome.code == 0, outcome.err
    assert list(outcome.rows[0]["results"]) == ["latency", "probe", "tokens"]
    piped = cli("nodes", "show", "-", "--json", stdin=(home / "nodes.jsonl").read_bytes())
    assert piped.rows[1]["rewards"] == {"latency": 0.5, "probe": pytest.approx(0.9)}
