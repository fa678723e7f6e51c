"""Someone reads a store while a run writes a lot, and a server keeps it open for weeks: the
write-ahead log does not stay as long as it was."""

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
