"""`--readout decide --decider MODEL` from end to end, with decisions that a chat model emulates."""

import json
from pathlib import Path

import pytest

from textevolve.llm.testing import Answer, ScriptedServer

INPUT, GOOD, BAD = "Why are there tides?", "The moon pulls the sea.", "I like cheese."
CASE = ("evaluate", INPUT, BAD, GOOD, "--rounds", "1", "--readout", "decide")
SETTINGS = """\
[providers.other]
base_url = "{url}"
key_env = "OTHER_KEY"
[prices."other/decider"]
input = 1.0
output = 1.0
"""
CELLS = 2 * 5
EMULATED = 2 * CELLS
"""One-token calls of a turn: each list of levels is shown in both directions."""


def decides(body, _number=0):
    """Of the levels that are listed the highest for the good text, else the lowest."""
    said = body["messages"][-1]["content"]
    if body.get("max_tokens") != 1:
        return None
    asked = said.rpartition("Response ")[2]
    label = asked[0]
    good = f"response {label}]]\n{GOOD}" in said
    first = said.rstrip().rpartition("one ")[2].partition(", ")[2].split()[0].strip(",")
    return Answer(yes=0.96 if (first == "2") == good else 0.01)


@pytest.fixture
def decider(home, monkeypatch):
    """Another endpoint, with a key of its own and a price."""
    with ScriptedServer(decides, key="secret") as other:
        (home / "textevolve.toml").write_text(SETTINGS.format(url=other.url))
        monkeypatch.setenv("OTHER_KEY", "secret")
        yield other


def one_token(server):
    return [body for body in server.requests if body.get("max_tokens") == 1]


def test_another_model_decides_and_is_told_everywhere(cli, server, model, decider):
    command = (*CASE, "-m", model, "--decider", "other/decider")
    ended = cli(*command)
    assert ended.code == 0, ended.err
    assert "Winner: B" in ended.out
    assert "other/decider" in ended.out
    assert (server.calls, decider.calls) == (3, 3 * EMULATED)
    assert not one_token(server)
    again = cli(*command)
    assert again.out == ended.out
    cli("runs", "export", "last", "run.html")
    cli("runs", "export", "last", "cases.jsonl")
    cli("runs", "export", "last", "run.json")
    assert "scores decided by other/decider, emulated" in Path("run.html").read_text()
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    decided = [turn["decided_by"] for case in cases for turn in case["turns"]]
    assert {(by["model"], by["emulated"]) for by in decided} == {("other/decider", True)}
    assert "other/decider" in Path("run.json").read_text()
    assert (server.calls, decider.calls) == (3, 3 * EMULATED)


def test_on_a_wire_of_its_own_one_request_fills_a_turn(cli, server, model, home):
    wire = "systemone"
    with ScriptedServer(wires=[wire]) as other:
        (home / "textevolve.toml").write_text(
            SETTINGS.replace(
                'key_env = "OTHER_KEY"', f'keyless = true\ndecisions = "{wire}"'
            ).format(url=other.url)
        )
        command = (*CASE, "-m", model, "--decider", "other/decider", "--order", "fixed")
        ended = cli(*command, "--json")
        assert ended.code == 0, ended.err
        turns = ended.rows[0]["turns"]
        assert [turn["decided_by"]["emulated"] for turn in turns] == [False] * 3
        asked = [body for body in other.requests if len(body["questions"]) == CELLS]
        assert len(asked) == 3
        assert server.calls == 3
        shared = asked[0]["state"].index("Round 1, Critic argued")
        assert len({body["state"][:shared] for body in asked}) == 1
        calls = other.calls
        assert cli(*command, "--json").out == ended.out
        assert other.calls == calls
        assert ended.rows[0]["metrics"]["calls"] == 6
        assert cli("runs", "show", "last").code == 0
        assert other.calls == calls
