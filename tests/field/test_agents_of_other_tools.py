"""Somebody brings an agent file of another program (Letta's `.af`, in one line or indented).

Both are valid JSON by the standard, so the right answer says what the file lacks, not that it is
broken.
"""

import json

import pytest

FILE = {"agents": [{"name": "guide", "id": "agent-0", "tools": []}], "blocks": [], "tools": []}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("command", [("agents",), ("memories", "collections"), ("agents", "users")])
def test_what_a_file_lacks_is_named(cli, home, indent, command):
    (home / "guide.af").write_text(json.dumps(FILE, indent=indent))
    outcome = cli(*command, "import", "guide.af")
    assert outcome.code == 2
    assert "JSON" not in outcome.err
    assert "whose first line has the fields 'textevolve export' and 'kind'" in outcome.err


def test_other_versions_are_named(cli, home):
    (home / "later.jsonl").write_text('{"textevolve export": 7, "kind": "agents"}\n')
    assert "has version 7 of the format" in cli("agents", "import", "later.jsonl").err
