"""What is sent of a study: its fields, and whatever files it reads."""

import base64
import json

import pytest

from textevolve.evaluation import Case
from textevolve.remote.runs import write_study
from textevolve.runs.study import find_study
from textevolve.settings import Settings

MINE = """name: mine
agents:
  - {name: Reader, persona: You read.}
components:
  - {name: clarity, meaning: Whether it is clear.}
"""
CASE = json.dumps({"input": "2 + 2?", "candidates": ["4", "5"]}) + "\n"


@pytest.fixture
def send(home):
    """The body of a study; the working folder is the test's own."""

    def write(kind, given=None, **fields):
        study = find_study(kind)
        return write_study(study.spec(**fields), Settings(), {"name": "n"}, given)

    return write


def test_a_file_of_cases_is_sent_by_its_name(home, send):
    (home / "cases.jsonl").write_text(CASE)
    body = send("evaluate", cases="cases.jsonl")
    assert (body["kind"], body["cases"]) == ("evaluate", ["cases.jsonl"])
    assert body["run"] == {"name": "n", "files": {"cases.jsonl": CASE}}
    assert body["profile"]["name"] == "general"
    other = home / "below"
    other.mkdir()
    (other / "a.jsonl").write_text(CASE)
    for name in ("below", "below/*.jsonl"):
        assert send("evaluate", cases=name)["run"]["files"] == {"below/a.jsonl": CASE}
    full_text = str(home / "cases.jsonl")
    assert list(send("evaluate", cases=full_text)["run"]["files"]) == [full_text]


def test_files_behind_judges_and_profiles_are_sent(home, send):
    (home / "rules.yaml").write_text("rules:\n  - {kind: length, unit: words, max: 5}\n")
    (home / "mine.yaml").write_text(MINE)
    (home / "cases.jsonl").write_text(CASE)
    files = send("evaluate", cases="cases.jsonl", judge="rules:rules.yaml")["run"]["files"]
    assert set(files) == {"rules.yaml", "cases.jsonl"}
    body = send("evaluate", cases="cases.jsonl", profile="mine.yaml")
    assert body["profile"]["name"] == "mine"  # it is in the specification, whole


def test_what_is_no_text_is_sent_in_base64(home, send):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({"input": ["2 + 2?"], "output": ["4"]})
    parquet.write_table(table, home / "cases.parquet")
    sent = send("evaluate", cases="cases.parquet")["run"]["files"]["cases.parquet"]
    assert base64.b64decode(sent["base64"]) == (home / "cases.parquet").read_bytes()


def test_a_program_sends_its_cases(send):
    cases = [Case("2 + 2?", ("4",), "a", {"rounds": 1}, reference="4"), Case("x", ("y",), "b")]
    body = send("evaluate", cases)
    assert body["run"]["files"] == {}
    assert body["run"]["cases"] == [
        {
            "input": "2 + 2?",
            "candidates": ("4",),
            "id": "a",
            "parameters": {"rounds": 1},
            "reference": "4",
        },
        {"input": "x", "candidates": ("y",), "id": "b"},
    ]


def test_a_chain_is_sent_with_what_it_names(home, send):
    (home / "parts").mkdir()
    (home / "parts" / "p.md").write_text("Say {x}")
    (home / "inner.yaml").write_text("inputs: [x]\nsteps: [{ask: a, file: parts/p.md}]\n")
    outer = "inputs: [x]\nsteps: [{call: b, function: inner.yaml}]\n"
    (home / "outer.yaml").write_text(outer)
    sent = {"outer.yaml", "inner.yaml", "parts/p.md"}
    assert set(send("optimize", task="Write.", model="outer.yaml")["run"]["files"]) == sent
    assert set(send("chain", chain="outer.yaml", input={"x": "1"})["run"]["files"]) == sent
