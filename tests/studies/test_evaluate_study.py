"""Evaluate as a study: one path for a debate and any other judge, through every door."""

import json
import math

import pytest

from textevolve import Case, EvaluationResult, Failure
from textevolve.judges.opening import JudgedCase
from textevolve.studies.evaluate import decode, encode

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def cases(home):
    rows = [{"id": f"c{n}", "input": f"{n}?", "candidates": ["a", "b"]} for n in range(6)]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "cases.jsonl"


def test_a_run_is_resumed_only_as_it_was_begun(cli, server, model, cases, home):
    (home / "mine.yaml").write_text("agents:\n- {name: Solo, persona: You judge.}\n")
    command = ("evaluate", cases, "-p", "mine.yaml", "-m", model, "--readout", "verbalized")
    assert cli(*command, "--max-calls", 3).code == 3
    (home / "mine.yaml").unlink()
    assert cli("runs", "resume").code == 0  # the profile was kept whole
    assert {len(row["profile"]["agents"]) for row in cli("runs", "show", "--json").rows} == {1}


def test_records_read_back_as_they_were(server, model, make_result, unusable):
    scored = EvaluationResult(0.5, True, "so", {"log_odds": 0.1, "odd": math.inf})
    case = Case("a", ("b", "c"), "1", {"seed": 1}, "gold")
    for record in (
        make_result(failed=((0, 1),)),
        unusable,
        JudgedCase(case, 3, (scored, Failure("failed", "why"))),
    ):
        assert decode(encode(record)) == record
    strange = JudgedCase(Case(5, ("\ud800", None)), 0, (Failure("failed", "no text"),) * 2)  # type: ignore
    assert decode(encode(strange)).case == Case("5", ("\ufffd", "None"))


def test_reports_name_what_was_settled(cli, server, model, cases):
    for texts in (("Which is longer?", "one", "seven"), (cases,)):
        shown = " ".join(cli("evaluate", *texts, "-m", model, "--rounds", 1).out.split())
        assert "Profile general: at most 1 round, sequential; scores by verbalized" in shown
