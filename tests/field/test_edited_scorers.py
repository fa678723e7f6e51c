"""A user edits the code that scores, and runs the same command again in the same store."""

import json
import os
import sqlite3
from contextlib import closing
from functools import partial

import pytest

from textevolve import Client
from textevolve.contents import digest_object
from textevolve.user_code import digest_code, load_function

ROWS = [{"id": f"r{n}", "out": f"yes {n}", "sum": "yes"} for n in range(4)]
COMPARE = ("compare", "-d", "rows.jsonl", "--outputs", "out", "--label", "sum")
FULL = "def worth(output, label=None):\n    return 1.0\n"
NONE = FULL.replace("1.0", "0.0")


@pytest.fixture
def rows(home):
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return home


def read_scores(home):
    """Return the scores that are stored for each run."""
    with closing(sqlite3.connect(home / "store.db")) as store:
        query = "SELECT run_id, sum(score) FROM records GROUP BY run_id ORDER BY 2"
        return [total for _, total in store.execute(query)]


def test_first_scores_stay(rows, cli):
    (rows / "m.py").write_text(FULL)
    assert cli(*COMPARE, "--metric", "m.py:worth", "--name", "main").code == 0
    (rows / "m.py").write_text(NONE)
    gate = ("--no-worse-than", "main", "--max-regressions", "0")
    outcome = cli(*COMPARE, "--metric", "m.py:worth", *gate)
    assert (outcome.code, read_scores(rows)) == (2, [4.0])
    assert "were not given in the same way" in outcome.err
    assert "m.py:worth" in outcome.err
    assert cli(*COMPARE, "--metric", "m.py:worth").code == 0
    assert read_scores(rows) == [0.0, 4.0]


def test_imported_modules_count(rows, cli, monkeypatch):
    monkeypatch.syspath_prepend(str(rows))
    (rows / "m.py").write_text(
        "def worth(output):\n    from weighing.scale import w\n    return w\n"
    )
    (rows / "weighing").mkdir()
    (rows / "weighing" / "__init__.py").write_text("")
    (rows / "weighing" / "scale.py").write_text("from .inner import w\n")
    (rows / "weighing" / "inner.py").write_text("w = 1.0\n")
    first_text = digest_code("m.py:worth")
    assert digest_code("m.py:worth") == first_text
    (rows / "weighing" / "inner.py").write_text("w = 0.5\n")
    assert digest_code("m.py:worth") != first_text


def test_resumed_scores_are_refused(rows, cli):
    (rows / "m.py").write_text(FULL)
    assert cli(*COMPARE, "--metric", "m.py:worth").code == 0
    (rows / "m.py").write_text(NONE)
    outcome = cli("runs", "resume", "last")
    assert outcome.code == 2
    assert "code.m.py:worth was" in outcome.err


def test_rules_call_edited_functions(rows, cli):
    (rows / "rules.yaml").write_text("rules: [{kind: call, function: 'm.py:worth'}]\n")
    for text in (FULL, NONE):
        (rows / "m.py").write_text(text)
        command = ("evaluate", "Say yes.", "yes", "--judge", "rules:rules.yaml")
        assert cli(*command).code == 0
    assert read_scores(rows) == [0.0, 1.0]


def test_renamed_files_are_the_same(rows):
    for name in ("a.py", "b.py"):
        (rows / name).write_text(FULL)
    assert digest_code("a.py:worth") == digest_code("b.py:worth")
    (rows / "b.py").write_bytes(FULL.replace("\n", "\r\n").encode())
    assert digest_code("a.py:worth") == digest_code("b.py:worth")


def test_stale_bytecode_is_not_run(rows):
    path = rows / "m.py"
    for text, score in ((FULL, 1.0), (NONE, 0.0)):
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert load_function("m.py:worth", rows)("x") == score


class Weight:
    def __init__(self, worth):
        self.worth = worth

    def read(self, output):
        return self.worth


def test_functions_differ_by_what_they_hold():
    def made(worth, *, keywords=()):
        return lambda output: worth if output in keywords else worth / 2

    functions = [
        *(made(worth, keywords=("a",)) for worth in (0.5, 1.0)),
        made(0.5, keywords=("b",)),
        Weight(0.5).read,
        Weight(1.0).read,
        partial(Weight.read, Weight(0.5)),
        partial(Weight.read, Weight(1.0)),
        lambda output: 1,
        lambda output: 2,
    ]
    digests = [digest_object(function) for function in functions]
    assert len(set(digests)) == len(functions)
    assert digest_object(Weight(0.5).read) == digest_object(Weight(0.5).read)
    assert digest_object({"b", "a"}) == digest_object({"a", "b"})


def test_two_lambdas_are_two_runs(rows):
    with Client(store=rows / "store.db") as client:
        for worth in (1.0, 0.25):
            compared = client.compare(
                ROWS, outputs="out", label="sum", metric=lambda output, worth=worth: worth
            )
            assert compared.variants[0].mean.value == worth
    assert read_scores(rows) == [1.0, 4.0]
