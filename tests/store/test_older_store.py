"""A store that was written before there were studies: `before_studies.sql` is its dump."""

from contextlib import closing
from pathlib import Path

import pytest

from textevolve.store.sqlite import sqlite3

DUMP = Path(__file__).parent / "before_studies.sql"
APPLICATION_ID = 0x54457631
CASE = ("evaluate", "Why are there tides?", "The moon pulls on the sea.")


@pytest.fixture
def older(home, monkeypatch):
    monkeypatch.setenv("TEXTEVOLVE_TODAY", "2026-01-15")  # a part of the runs' prompts
    with closing(sqlite3.connect(home / "store.db")) as store:
        store.executescript(DUMP.read_text())
        store.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    (home / "textevolve.toml").write_text(
        'model = "recorded/judge"\n'
        '[providers.recorded]\nbase_url = "http://127.0.0.1:9/v1"\nkeyless = true\n'
        "[retries]\nattempts = 1\n"
    )
    return home


def test_its_runs_are_listed(cli, older):
    ended = cli("runs", "list", "--json")
    assert ended.code == 0, ended.err
    assert {row["name"] for row in ended.rows} == {"tides", ""}
    assert {row["status"] for row in ended.rows} == {"finished"}


@pytest.mark.parametrize(
    "more", [("The wind blows at night.", "--rounds", "1"), ("--judge", "probe")], ids=str
)
def test_its_journal_answers_the_same_commands(cli, older, more):
    ended = cli(*CASE, *more, "--json")
    assert ended.code == 0, ended.err
    assert len(ended.rows) == 1


def test_its_runs_can_be_deleted(cli, older):
    assert cli("runs", "delete", "tides", "--yes").code == 0
    assert len(cli("runs", "list", "--json").rows) == 1


def test_a_run_without_records_says_with_which_date_its_journal_answers(cli, older, monkeypatch):
    monkeypatch.delenv("TEXTEVOLVE_TODAY")
    for run in (one["id"] for one in cli("runs", "list", "--json").rows):
        ended = cli("runs", "show", run)
        assert ended.code == 2
        assert "TEXTEVOLVE_TODAY=2026-01-15 textevolve evaluate ..." in ended.err
