"""A store that was written before there were studies: `before_studies.sql` is its dump."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.guard

DUMP = Path(__file__).parent / "before_studies.sql"
APPLICATION_ID = 0x54457631
CASE = ("evaluate", "Why are there tides?", "The moon pulls on the sea.")


@pytest.fixture
def older(home):
    """The path of the store of then."""
    path = home / "older.db"
    with closing(sqlite3.connect(path)) as store:
        store.executescript(DUMP.read_text())
        store.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return path


@pytest.fixture
def copied(home, older, cli, monkeypatch):
    """A store of today, into which the older one was copied."""
    monkeypatch.setenv("TEXTEVOLVE_TODAY", "2026-01-15")  # a part of the runs' prompts
    (home / "textevolve.toml").write_text(
        'model = "recorded/judge"\n'
        '[providers.recorded]\nbase_url = "http://127.0.0.1:9/v1"\nkeyless = true\n'
        "[retries]\nattempts = 1\n"
    )
    assert cli("config", "store", "copy", str(older), str(home / "store.db")).code == 0
    assert cli("config", "store", "check").code == 0
    return home


def test_it_is_refused_with_the_command_that_copies_it(cli, older):
    ended = cli("runs", "list", "--store", str(older))
    assert ended.code == 1
    assert f"textevolve config store copy {older} NEW" in ended.err


def test_its_runs_are_listed(cli, copied):
    ended = cli("runs", "list", "--json")
    assert ended.code == 0, ended.err
    assert {row["name"] for row in ended.rows} == {"tides", ""}
    assert {row["status"] for row in ended.rows} == {"finished"}


@pytest.mark.parametrize(
    "more", [("The wind blows at night.", "--rounds", "1"), ("--judge", "probe")], ids=str
)
def test_its_journal_answers_the_same_commands(cli, copied, more):
    ended = cli(*CASE, *more, "--json")
    assert ended.code == 0, ended.err
    assert len(ended.rows) == 1


def test_its_runs_can_be_deleted(cli, copied):
    assert cli("runs", "delete", "tides", "--yes").code == 0
    assert len(cli("runs", "list", "--json").rows) == 1


def test_a_run_without_records_says_with_which_date_its_journal_answers(cli, copied, monkeypatch):
    monkeypatch.delenv("TEXTEVOLVE_TODAY")
    for run in (one["id"] for one in cli("runs", "list", "--json").rows):
        ended = cli("runs", "show", run)
        assert ended.code == 2
        assert "TEXTEVOLVE_TODAY=2026-01-15 textevolve evaluate ..." in ended.err
