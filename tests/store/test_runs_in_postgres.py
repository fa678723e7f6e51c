"""Whole runs in PostgreSQL: the same as in a file, and nothing is lost where something ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from textevolve.store import open_store

pytestmark = pytest.mark.slow

CASES, CALLS = 24, 6
DIFFERENT = ("run", "usage", "replayed", "spent", "reused")


@pytest.fixture
def cases(home):
    path = home / "cases.jsonl"
    rows = [
        {"id": f"{n}", "input": f"Question {n}?", "candidates": [f"one {n}", f"two {n}"]}
        for n in range(CASES)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def address(postgres, postgres_name, monkeypatch):
    """Also that of all commands."""
    found = postgres.address(postgres_name)
    monkeypatch.setenv("TEXTEVOLVE_STORE", found)
    return found


def results(cli, *where):
    """All that an export says of the last run, but what it took."""
    assert cli("runs", "export", "last", "found.json", *where).code == 0
    return strip(json.loads(Path("found.json").read_text()))


def strip(found):
    if isinstance(found, dict):
        return {name: strip(one) for name, one in found.items() if name not in DIFFERENT}
    return [strip(one) for one in found] if isinstance(found, list) else found


def evaluate(model, *more):
    return ("evaluate", "cases.jsonl", "--model", model, "--convergence", "0", *more)


def test_a_run_is_the_same_in_both_and_goes_on_in_the_other(
    cli, cases, server, model, address, home, postgres
):
    assert cli(*evaluate(model)).code == 0
    asked = server.calls
    assert cli(*evaluate(model, "--store", "plain.db")).code == 0
    assert server.calls == 2 * asked
    found = results(cli)
    assert found["scored"] == CASES
    assert found == results(cli, "--store", "plain.db")
    # A run over half of the cases, copied and gone on with over all.
    half = home / "half.jsonl"
    half.write_text("".join(cases.read_text().splitlines(keepends=True)[: CASES // 2]))
    half_of = ("evaluate", "half.jsonl", "--model", model, "--convergence", "0")
    assert cli(*half_of, "--store", "half.db").code == 0
    other = postgres.create("template0")
    try:
        there = postgres.address(other)
        assert cli("config", "store", "copy", "half.db", there).code == 0
        before = server.calls
        assert cli(*evaluate(model, "--store", there)).code == 0
        assert server.calls - before == asked // 2
        assert results(cli, "--store", there) == found
    finally:
        postgres.drop(other)
    told = cli("runs", "list", "--json")
    assert [row["cases"] for row in told.rows] == [CASES]
    assert cli("runs", "delete", "last", "--yes").code == 0
    assert cli("runs", "list", "--json").rows == []
    assert "no runs in postgresql://" in cli("runs", "list").out


def test_no_password_is_shown_or_kept(cli, cases, model, postgres, postgres_name):
    postgres.run("CREATE ROLE loud LOGIN SUPERUSER PASSWORD 'hushhush'")
    there = postgres.address(postgres_name, "loud", "hushhush")
    done = [
        cli(*evaluate(model, "--store", there, "-o", "out.html", "-o", "out.json")),
        cli("runs", "list", "--store", there),
        cli("runs", "show", "--store", there),
        cli("config", "store", "check", "--store", there, "--json"),
        cli("config"),
        cli("runs", "list", "--store", there.replace(postgres_name, "nowhere")),
    ]
    assert [one.code for one in done] == [0, 0, 0, 0, 0, 1]
    assert "there is no such database" in done[-1].err
    said = "".join(one.out + one.err for one in done)
    said += Path("out.html").read_text() + Path("out.json").read_text()
    assert "hushhush" not in said
    with open_store(there) as store:
        found = store.read(
            lambda c: c.exec_driver_sql(
                "SELECT convert_from(spec, 'UTF8') || name || source FROM runs"
            ).all()
        )
    assert "hushhush" not in str(found)
