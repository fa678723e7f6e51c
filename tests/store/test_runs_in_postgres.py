"""A password of a PostgreSQL server is shown nowhere, and kept nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from textevolve.store.repository import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def cases(home):
    path = home / "cases.jsonl"
    rows = [
        {"id": f"{n}", "input": f"Question {n}?", "candidates": [f"one {n}", f"two {n}"]}
        for n in range(4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluate(model, *more):
    return ("evaluate", "cases.jsonl", "--model", model, "--convergence", "0", *more)


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
    assert [outcome.code for outcome in done] == [0, 0, 0, 0, 0, 1]
    assert "there is no such database" in done[-1].err
    answer = "".join(outcome.out + outcome.err for outcome in done)
    answer += Path("out.html").read_text() + Path("out.json").read_text()
    assert "hushhush" not in answer
    with open_store(there) as store:
        text = store.read(
            lambda c: c.exec_driver_sql(
                "SELECT convert_from(spec, 'UTF8') || name || source FROM runs"
            ).all()
        )
    assert "hushhush" not in str(text)
