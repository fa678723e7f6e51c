"""`judges profiles generate`, `list`, `show` and `check` as they are used."""

import json

import pytest
from test_profile_writing import draft, writes

from textevolve.debate.profile import shipped_profiles


@pytest.fixture
def writer(server):
    server.script = writes(draft())
    return server


def test_generate_writes_a_file_that_show_reads(cli, writer, model, home):
    ended = cli(
        "judges", "profiles", "generate", "Advice to patients", "-m", model, "-o", "made.yaml"
    )
    assert ended.code == 0, ended.err
    assert "3 agents, 2 components" in ended.out
    assert "written to made.yaml" in ended.err
    shown = cli("judges", "profiles", "show", "made.yaml").out
    for part in ("name: Pharmacist", "name: safe", "clear: 0.6", "is the advice clear?"):
        assert part in shown
    listed = cli("runs", "list").out
    assert "finished" in listed


def test_a_profile_that_is_wrong_is_refused_with_file_line_and_reason(cli, home):
    (home / "bad.yaml").write_text("agents:\n  - name: A\n    persona: You look.\nrounds: many\n")
    ended = cli("judges", "profiles", "show", "bad.yaml")
    assert ended.code == 2
    assert "bad.yaml:4: rounds" in ended.err


def test_shipped_profiles_are_listed_and_shown_whole(cli):
    listed = cli("judges", "profiles", "list").out
    rows = json.loads(cli("judges", "profiles", "list", "--json").out)
    for name in shipped_profiles():
        assert name in listed
        shown = cli("judges", "profiles", "show", name)
        assert shown.code == 0
        assert "convergence" in shown.out
    assert [row["name"] for row in rows] == list(shipped_profiles())
    shown = json.loads(cli("judges", "profiles", "show", "general", "--json").out)
    assert shown in rows
