"""A damaged store: what reads it says so in one line, and what is whole gets into a new one."""

import json
import random
import sqlite3
from contextlib import closing

import pytest

from textevolve.llm.testing import ScriptedServer

pytestmark = pytest.mark.guard

CASES = 40
CALLS = CASES * 6
RUNS = ("first", "second")
PAGE, BRANCH, LEAVES = 4096, 5, (2, 10, 13)
KINDS = ("texts", "calls", "runs", "cases", "reuses", "records")


@pytest.fixture(scope="module")
def sound():
    """A server of its own, and the bytes of the store below once it was made."""
    with ScriptedServer() as server:
        yield {"server": server, "model": f"{server.url}#m"}


@pytest.fixture
def store(home, cli, sound):
    """A store with two runs; the second found answers of the first, and a third was removed."""
    path = home / "store.db"
    rows = [
        {"input": f"Which is {n}?", "candidates": [f"It is {n}. " + "Why? " * (n % 7 * 300), "No."]}
        for n in range(CASES)
    ]
    rows += [{**row, "input": f"And {row['input']}"} for row in rows[:3]]
    (home / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:CASES]))
    (home / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[38:]))
    if "bytes" not in sound:
        options = ("-m", sound["model"], "--convergence", "none", "--readout", "verbalized")
        assert cli("evaluate", "cases.jsonl", "--name", "removed", *options, "--seed", 7).code == 0
        assert cli("evaluate", "cases.jsonl", "--name", "first", *options).code == 0
        assert cli("runs", "delete", "removed", "-y").code == 0
        assert (
            cli(
                "evaluate", "more.jsonl", "--name", "second", *options, "--weights", "accuracy=1"
            ).code
            == 0
        )
        sound["bytes"] = path.read_bytes()
    path.write_bytes(sound["bytes"])
    return path


def rows_of(path):
    """All rows by kind, as SQLite gives them."""
    with closing(sqlite3.connect(path)) as raw:
        columns = {"runs": "id, name, fingerprint, source, spec"}
        return {
            kind: set(raw.execute(f"SELECT {columns.get(kind, '*')} FROM {kind}")) for kind in KINDS
        }


def check(cli, path, target):
    """What `config store check` finds, with the rows that are whole in a new store."""
    (found,) = cli("config", "store", "check", "--store", path, "--salvage", target, "--json").rows
    return found


def flip(path, sound, place, length=1):
    """Other bytes in one place."""
    data = bytearray(sound["bytes"])
    for n in range(place, min(place + length, len(data))):
        data[n] ^= random.Random(n).randrange(1, 256)
    path.write_bytes(data)
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def test_what_stands_in_the_log_of_a_store_that_was_killed_is_read_too(home, store, sound, cli):
    with closing(sqlite3.connect(store)) as raw:
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        with raw:
            raw.execute("UPDATE runs SET name = 'renamed' WHERE name = 'first'")
        with raw:
            raw.execute("DELETE FROM cases WHERE run_id = (SELECT id FROM runs LIMIT 1)")
        left = store.with_name("left.db")
        left.write_bytes(store.read_bytes())
        log = store.with_name("store.db-wal").read_bytes()
        left.with_name("left.db-wal").write_bytes(log)
        kept = rows_of(store)
    check(cli, left, home / "copy.db")
    assert rows_of(home / "copy.db")["runs"] == kept["runs"]
    assert rows_of(home / "copy.db")["cases"] == kept["cases"]


def places(size, number, seed):
    """Places all over a file, with those that every reader needs."""
    rng = random.Random(seed)
    first = [0, 5, 16, 17, 18, 20, 28, 32, 36, 44, 56, 68, 100, 103, 105, 4095]
    return first + [rng.randrange(size) for _ in range(number)]


READING = (
    ("runs", "list", "--json"),
    ("runs", "show", "first", "--json"),
    ("runs", "show", "second"),
    ("runs", "replay", "second", "--temperature", "2", "--json"),
    ("runs", "export", "second", "out.html"),
    ("nodes", "show", "second"),
    ("config", "store", "check"),
    ("runs", "delete", "second", "-y"),
)


def check_reading(cli, command):
    ended = cli(*command)
    said = [line for line in ended.err.splitlines() if line.startswith("error:")]
    assert ended.code in (0, 1, 2, 3), (command, ended)
    assert "Traceback" not in ended.err
    assert len(said) <= 1
    if ended.code == 1:
        assert said, (command, ended)
    return ended


@pytest.mark.slow
def test_no_command_that_reads_fails_without_a_line_that_says_why(store, cli, sound):
    """cli() lets through whatever is not ours."""
    for turn, place in enumerate(places(len(sound["bytes"]), 8, 1)):
        flip(store, sound, place, length=1 if turn % 2 else 24)
        check_reading(cli, READING[turn % len(READING)])
