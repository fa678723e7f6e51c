"""A damaged store: what reads it says so in one line, and what is whole gets into a new one."""

import json
import random
import re
import sqlite3
from contextlib import closing

import pytest

from textevolve.llm.testing import ScriptedServer

pytestmark = pytest.mark.guard

CASES = 20
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
    (home / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[18:]))
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


@pytest.mark.slow
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
        rows = rows_of(store)
    check(cli, left, home / "copy.db")
    assert rows_of(home / "copy.db")["runs"] == rows["runs"]
    assert rows_of(home / "copy.db")["cases"] == rows["cases"]


def places(size, number, seed):
    """Places all over a file, with those that every reader needs."""
    rng = random.Random(seed)
    first_counts = [0, 5, 16, 17, 18, 20, 28, 32, 36, 44, 56, 68, 100, 103, 105, 4095]
    return first_counts + [rng.randrange(size) for _ in range(number)]


READING = (
    ("runs", "list", "--json"),
    ("runs", "show", "first", "--json"),
    ("runs", "show", "second"),
    ("runs", "export", "second", "out.html"),
    ("nodes", "show", "second"),
    ("config", "store", "check"),
    ("runs", "delete", "second", "-y"),
)


def check_reading(cli, command):
    outcome = cli(*command)
    lines = [line for line in outcome.err.splitlines() if line.startswith("error:")]
    assert outcome.code in (0, 1, 2, 3), (command, outcome)
    assert "Traceback" not in outcome.err
    assert len(lines) <= 1
    if outcome.code == 1:
        assert lines, (command, outcome)
    return outcome


@pytest.mark.slow
def test_no_command_that_reads_fails_without_a_line_that_says_why(store, cli, sound):
    """cli() lets through whatever is not ours."""
    for turn, place in enumerate(places(len(sound["bytes"]), 8, 1)):
        flip(store, sound, place, length=1 if turn % 2 else 24)
        check_reading(cli, READING[turn % len(READING)])


def most_lost(data, place):
    """How many rows stand on a page: as many as its cells, or a part of one that is long."""
    page = place // PAGE * PAGE
    if page == 0 or data[page] == BRANCH:
        return 0
    return int.from_bytes(data[page + 3 : page + 5]) if data[page] in LEAVES else 1


@pytest.mark.slow
def test_every_row_that_is_whole_is_saved(store, home, sound, cli):
    """What is spoilt on one page mostly costs the rows that stand there alone; of a page that a
    whole table hangs on, the table. Nothing is made up, and no loss goes unsaid."""
    before, data, dear = rows_of(store), sound["bytes"], 0
    for turn, place in enumerate(places(len(data), 4, 2)[8:]):
        length = 1 if turn % 2 else 24
        flip(store, sound, min(place, place // PAGE * PAGE + PAGE - length), length)
        target = home / f"copy{turn}.db"
        found_check = check(cli, store, target)
        after = rows_of(target)
        lost = {kind: len(before[kind] - after[kind]) for kind in KINDS}
        dear += sum(lost.values()) > most_lost(data, place)
        made = {kind: len(after[kind] - before[kind]) for kind in KINDS}
        # A letter of an answer may be another one; nothing else is made up or comes back.
        assert sum(made.values()) <= 1, (place, made)
        if any(len(after[kind]) < len(before[kind]) for kind in KINDS):
            assert found_check["damaged"], (place, lost)
        target.unlink()
    assert dear <= 9


def damage(path, statement, *values):
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute(statement, values).rowcount > 0


DAMAGES = {
    "spec not JSON": ("UPDATE runs SET spec = x'7b22' WHERE name = 'first'", "run {id} is damaged"),
    "case not JSON": ("UPDATE cases SET body = x'7b'", "run {id}: case 0 is damaged"),
    "answer not packed": ("UPDATE calls SET response = x'78'", r"run {id}: the answer \d+ is dama"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_is_damaged_is_named_with_its_run(store, cli, kind):
    run = next(r["id"] for r in cli("runs", "list", "--json").rows if r["name"] == "first")
    statement, reason = DAMAGES[kind]
    if statement.startswith(("UPDATE cases", "UPDATE calls")):
        damage(store, "DELETE FROM records")  # else nothing but them is read to show a run
    damage(store, statement)
    for command in (("show", run, "--json"), ("resume", run), ("export", run, "x.csv")):
        outcome = cli("runs", *command)
        last = outcome.err.splitlines()[-1]
        assert re.match(f"error: {reason.format(id=run)}", last), (command, outcome.err)
        assert outcome.code in (1, 2)
        assert "`textevolve config store check`" in last
    checked = cli("config", "store", "check")
    assert checked.code == 3
    assert cli("runs", "list").code == 0
    listed = cli("runs", "list", "--json").rows
    assert len(listed) == 2
    assert "second" in {one["name"] for one in listed}
    assert cli("runs", "delete", run, "-y").code == 0
    if statement.startswith("UPDATE runs"):
        assert cli("config", "store", "check").code == 0


def test_what_a_run_has_lost_is_told_and_its_command_makes_it_whole_again(store, home, cli, sound):
    first, second = (
        next(r["id"] for r in cli("runs", "list", "--json").rows if r["name"] == name)
        for name in RUNS
    )
    full_rows = cli("runs", "show", first, "--json").rows
    damage(store, "UPDATE cases SET body = x'00' WHERE run_id = ? AND [index] < 3", first)
    damage(
        store,
        "UPDATE calls SET response = x'00' WHERE id IN"
        " (SELECT id FROM calls WHERE run_id = ? ORDER BY id LIMIT 7)",
        first,
    )
    damage(store, "UPDATE runs SET spec = x'00' WHERE id = ?", second)
    (found,) = cli("config", "store", "check", "--json").rows
    assert found["incomplete"] == sorted((first, second))
    assert (found["unreadable"]["cases"], found["unreadable"]["calls"]) == (3 + 5, 7)
    outcome = cli("config", "store", "check", "--salvage", "copy.db")
    assert outcome.code == 3
    assert "the intact rows are in copy.db" in outcome.err
    assert cli("runs", "list", "--json", "--store", "copy.db").rows[0]["status"] == "interrupted"
    refused = cli("runs", "resume", first, "--store", "copy.db")
    assert refused.code == 2
    assert "some of its cases are missing; start its command again" in refused.err
    options = ("-m", sound["model"], "--convergence", "none", "--readout", "verbalized")
    calls = sound["server"].calls
    final_outcome = cli("evaluate", "cases.jsonl", *options, "--json", "--store", "copy.db")
    assert final_outcome.code == 0, final_outcome.err
    assert sound["server"].calls == calls + 7
    assert [r["id"] for r in cli("runs", "list", "--json", "--store", "copy.db").rows] == [first]
    assert [row["case"] for row in final_outcome.rows] == [row["case"] for row in full_rows]


def test_a_new_store_is_never_written_over_another_file(store, cli, home):
    (home / "there.db").write_text("mine")
    outcome = cli("config", "store", "check", "--salvage", "there.db")
    assert outcome.code == 1
    assert re.fullmatch(r"error: store .*there.db: exists already; [^\n]+\n", outcome.err)
    assert (home / "there.db").read_text() == "mine"
    gone = cli("config", "store", "check", "--store", "nothing.db")
    assert (gone.code, "there is no such file" in gone.err) == (1, True)
    assert not (home / "nothing.db").exists()
