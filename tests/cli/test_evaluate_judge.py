"""`textevolve evaluate --judge`: any judge over candidates, on the scripted server."""

import json
import re

import pytest

from textevolve.llm.testing import Answer

INPUT, GOOD, BAD = "Why are there tides?", "The moon pulls the sea.", "I like cheese."
CASE = ("evaluate", INPUT, BAD, GOOD)


def fair(body, _number=0):
    content = body["messages"][-1]["content"]
    return Answer(yes=0.9 if GOOD in content else 0.2) if body.get("max_tokens") == 1 else None


@pytest.fixture
def fairly(server):
    server.script = fair
    return server


@pytest.fixture
def cases(home):
    rows = [
        {"id": "good", "input": INPUT, "candidates": [BAD, GOOD]},
        {"id": "tied", "input": INPUT, "candidates": [BAD, BAD + " Yes."]},
        {"id": "blank", "input": " ", "candidates": [GOOD]},
    ]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "cases.jsonl"


def test_a_case_is_judged_shown_and_kept(cli, fairly, model):
    outcome = cli(*CASE, "--judge", "probe", "-m", model)
    assert outcome.code == 0
    assert "best: B" in outcome.out
    assert "Does the response follow the instruction? 90% yes" in " ".join(outcome.out.split())
    run = re.match(r"run (\S+): evaluate, 1 case; ", outcome.err)[1]
    assert run in outcome.out
    calls = fairly.calls
    assert calls == 6
    again = cli(*CASE, "--judge", "probe", "-m", model)
    assert again.out == outcome.out
    assert cli("runs", "show", run).out == outcome.out
    assert fairly.calls == calls


def test_the_cases_are_not_overwritten(cli, server, model, cases, home):
    before = (home / cases).read_text()
    outcome = cli(
        "evaluate", cases, "-m", model, "--judge", "probe", "-o", f"../{home.name}/{cases}"
    )
    assert (outcome.code, server.calls) == (2, 0)
    assert "is read and would be overwritten; write to another file" in outcome.err
    assert (home / cases).read_text() == before
