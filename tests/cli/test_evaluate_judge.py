"""`textevolve evaluate --judge`: any judge over candidates, on the scripted server."""

import csv
import json
import re

import pytest

from textevolve.llm.testing import Answer

INPUT, GOOD, BAD = "Why are there tides?", "The moon pulls the sea.", "I like cheese."
CASE = ("evaluate", INPUT, BAD, GOOD)


def fair(body, _number=0):
    said = body["messages"][-1]["content"]
    return Answer(yes=0.9 if GOOD in said else 0.2) if body.get("max_tokens") == 1 else None


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
    ended = cli(*CASE, "--judge", "probe", "-m", model)
    assert ended.code == 0
    assert "best: B" in ended.out
    assert "Does the response follow the instruction? 90% yes" in " ".join(ended.out.split())
    run = re.match(r"run (\S+): evaluate, 1 case; ", ended.err)[1]
    assert run in ended.out
    calls = fairly.calls
    assert calls == 6
    again = cli(*CASE, "--judge", "probe", "-m", model)
    assert again.out == ended.out
    assert cli("runs", "show", run).out == ended.out
    assert fairly.calls == calls


def test_a_reference_in_the_data_is_used_and_its_absence_made_up_for(cli, fairly, model, home):
    rows = [
        {"input": INPUT, "candidates": [BAD, GOOD], "reference": "Of gravity.", "source": "web"},
        {"input": "Why is it so?", "candidates": [BAD, GOOD]},
    ]
    (home / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    planned = cli("evaluate", "gold.jsonl", "-j", "reference", "-m", model, "--dry-run", "--json")
    ended = cli("evaluate", "gold.jsonl", "-j", "reference", "-m", model)
    assert ended.code == 0
    own = [b for b in fairly.requests if "Answer it yourself" in b["messages"][-1]["content"]]
    assert len(own) == 1
    planned = json.loads(planned.out)
    assert planned["expected"]["calls"]["median"] == 13
    assert fairly.calls == 13
    assert ended.err.count("columns: input, candidates, reference; unread: source\n") == 1


def test_a_reference_that_a_judge_does_not_look_at_is_named(cli, server, model, home):
    row = {"input": INPUT, "candidates": [BAD, GOOD], "answer": "Of gravity."}
    (home / "gold.jsonl").write_text(json.dumps(row))
    ended = cli("evaluate", "gold.jsonl", "-j", "probe", "-m", model)
    assert "warning: only judges with a reference, such as --judge reference, read" in ended.err


def test_a_batch_is_a_line_a_case_and_one_that_fails_fails_alone(cli, fairly, model, cases):
    ended = cli("evaluate", cases, "--judge", "probe", "-m", model)
    assert ended.code == 3
    good, tied, blank = (
        re.search(rf"^{name} .*$", ended.out.split("\nCases\n")[1], re.MULTILINE)[0]
        for name in ("good", "tied", "blank")
    )
    assert re.match(r"good +0\.20 fail +0\.90 pass ", good)
    assert re.match(r"tied +0\.20 fail +0\.20 fail ", tied)
    assert re.match(r"blank +failed +– +failed: the input is blank", blank)
    assert "3 cases: 2 scored, 1 failed; mean score 0.550" in ended.out
    assert "case blank lacks a score: the input is blank" in ended.err


def test_json_lines_and_csv_say_the_same(home, cli, fairly, model, cases):
    rows = cli("evaluate", cases, "--judge", "probe", "-m", model, "--json").rows
    assert [row["best"] for row in rows] == [1, None, None]
    assert [row["status"] for row in rows] == ["scored", "scored", "failed"]
    assert rows[0]["usage"]["calls"] == 6
    assert cli("evaluate", cases, "--judge", "probe", "-m", model, "-o", "a.csv").code == 3
    with (home / "a.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["id"] for row in table] == ["good", "good", "tied", "tied", "blank"]
    for row, candidate in zip(table, (c for r in rows for c in r["candidates"]), strict=True):
        assert row["text"] == candidate["text"]
        assert row["score"] == ("" if candidate["score"] is None else str(candidate["score"]))
    assert [row["best"] for row in table[:2]] == ["false", "true"]
    assert table[-1]["reason"] == "the input is blank"
    assert cli("evaluate", cases, "--judge", "probe", "-m", model, "-o", "a.jsonl").code == 3
    written = [json.loads(line) for line in (home / "a.jsonl").read_text().splitlines()]
    assert written == rows


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--judge", "probe", "--rounds", 2), "rounds is an option of debates"),
    ],
)
def test_bad_input_is_one_line(cli, server, model, options, reason):
    ended = cli(*CASE, "-m", model, *options)
    assert (ended.code, ended.out, server.calls) == (2, "", 0)
    assert reason in ended.err
    assert ended.err.splitlines()[-1].startswith("error: ")


def test_the_cases_are_not_overwritten(cli, server, model, cases, home):
    before = (home / cases).read_text()
    ended = cli("evaluate", cases, "-m", model, "--judge", "probe", "-o", f"../{home.name}/{cases}")
    assert (ended.code, server.calls) == (2, 0)
    assert "is read and would be overwritten; write to another file" in ended.err
    assert (home / cases).read_text() == before
