"""Fields, names and rows that cannot be used as they are: what the refusal says, or what is taken.

What is right was read in the reports: an empty field is called empty with its line, two agents
whose names look the same are refused, and rows of another tool are read or lead to the option.
"""

import json

import pytest

from textevolve import InputError
from textevolve.debate.profile import parse_profile
from textevolve.rows import read_rows
from textevolve.rows.columns import is_text_column

AGENT = "agents:\n  - {name: Zoë, persona: a}\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("agents:\n  - name: Dog\n    persona:\n", "x:3: agents.0.persona has no value"),
        ("agents:\n", "x:1: agents has no value"),
        (f"{AGENT}components:\n", "x:3: components has no value"),
        (f"{AGENT}weights:\n", "x:3: weights has no value"),
    ],
)
def test_empty_fields_are_called_so(text, place):
    with pytest.raises(InputError, match=place):
        parse_profile(text, "x")


@pytest.mark.parametrize("name", ["Zoe\u0308", "ZOË"])
def test_names_that_look_the_same_are_refused(name):
    with pytest.raises(InputError, match="two agents have the name"):
        parse_profile(f"{AGENT}  - {{name: {name}, persona: b}}\n", "x")


def test_rows_stand_under_cases(tmp_path):
    file = tmp_path / "capitals.json"
    case = {"name": "france", "inputs": "Capital?", "expected_output": "Paris"}
    file.write_text(json.dumps({"name": "capitals", "cases": [case], "evaluators": []}))
    assert [row for _, row in read_rows(str(file), "row", is_text_column)] == [case]


def test_rows_without_roles_lead_on(tmp_path, cli):
    file = tmp_path / "rows.json"
    turns = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    file.write_text(json.dumps([{"turns": turns, "scenario": "A greeting"}]))
    assert "--map messages=" in cli("evaluate", str(file)).err
    file.write_text(json.dumps([{"input": "2+2?", "target": "4"}]))
    assert "compare" in cli("evaluate", str(file)).err
