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


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        (("Advice", "--agents", "1"), 2, "agents must be from 2 to 12"),
        ((" ",), 2, "nothing is given"),
        (("@gone.txt",), 2, "gone.txt"),
        (("Advice", "-o", "made.docx"), 2, "must end in"),
    ],
)
def test_generate_refuses_in_one_line(cli, writer, model, home, more, code, reason):
    ended = cli("judges", "profiles", "generate", *more, "-m", model)
    assert (ended.code, writer.calls) == (code, 0)
    assert reason in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.slow
def test_beforehand_it_is_said_what_a_profile_may_take(cli, writer, model):
    found = json.loads(
        cli("judges", "profiles", "generate", "Advice", "-m", model, "--dry-run", "--json").out
    )
    assert (found["expected"]["calls"]["median"], writer.calls) == (1, 0)


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
