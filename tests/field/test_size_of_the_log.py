"""Someone reads a store while a run writes a lot, and a server keeps it open for weeks: the
write-ahead log does not stay as long as it was. A deleted run leaves its space to the store, and
the command that deleted it says how to free it."""

import random
import sqlite3
from contextlib import closing

from textevolve import Case
from textevolve.store.repository import open_store
from textevolve.store.sqlite import LOG_BYTES


def test_the_log_is_cut_once_nobody_reads_what_was(tmp_path):
    path = tmp_path / "store.db"
    log = tmp_path / "store.db-wal"
    spec = {"version": 2, "kind": "evaluate", "spec": {}}
    text = random.Random(0).randbytes(LOG_BYTES).hex()
    with open_store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        run = store.create_run(spec, "long", "long")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        store.add_cases(run.id, [Case(text, ("a",), str(n)) for n in range(3)])
        assert log.stat().st_size > 2 * LOG_BYTES
        reader.execute("COMMIT")
        for name in ("a", "b", "c"):
            store.create_run(spec, name, name)
        assert log.stat().st_size <= LOG_BYTES


def test_the_space_of_a_deleted_run_is_freed_as_the_command_says(cli, home):
    path = home / "store.db"
    with open_store(path) as store:
        run = store.create_run({"version": 2, "kind": "evaluate", "spec": {}}, "long", "long")
        text = random.Random(0).randbytes(1_000_000).hex()
        store.add_cases(run.id, [Case(text, ("a",), "1")])
    full = path.stat().st_size

    assert "textevolve config store vacuum" in cli("runs", "delete", run.id, "--yes").out
    assert path.stat().st_size >= full
    cli("config", "store", "vacuum")
    assert path.stat().st_size < full / 2
