"""Opening: new files, older and newer schemas, and files that are no stores."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from textevolve.errors import StoreError
from textevolve.store import sqlite
from textevolve.store.repository import open_store
from textevolve.store.sqlite import sqlite3


def execute(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Run the statements without any code of ours; the rows of the last."""
    with closing(sqlite3.connect(path)) as raw, raw:
        return [raw.execute(statement).fetchall() for statement in statements][-1]


def test_a_new_store_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "store.db"
    with open_store(path):
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert modes["store.db"] == 0o600
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_write_ahead_log_and_full_synchronisation(path: Path) -> None:
    with open_store(path), closing(sqlite.connect(path, writing=True)) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_a_newer_store_is_refused(path: Path) -> None:
    open_store(path).close()
    execute(path, "UPDATE alembic_version SET version_num = '9998'")
    with pytest.raises(StoreError, match=r"another TextEvolve \(schema 9998.*update"):
        open_store(path)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, " * 1000)
    with pytest.raises(StoreError, match="is not a database"):
        open_store(letter)
    assert letter.read_text().startswith("Dear")
    other = tmp_path / "other.db"
    execute(other, "CREATE TABLE letters (body TEXT)")
    with pytest.raises(StoreError, match="database of another program"):
        open_store(other)
    with pytest.raises(StoreError, match="is a folder"):
        open_store(tmp_path)
    with pytest.raises(StoreError, match="folder cannot be made"):
        open_store(letter / "store.db")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(StoreError, match="not a plain file"):
        open_store(fifo)


READ_ONLY = """
import os, sys
from textevolve.errors import StoreError
from textevolve.store import repository
from textevolve.store.repository import open_store
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    with open_store(sys.argv[1]) as store:
        store.create_run({}, "f")
except StoreError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_place_that_may_not_be_written_is_named_so(spawn) -> None:
    # Not below tmp_path, whose parents the unprivileged user may not enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        open_store(folder / "store.db").close()
        (folder / "store.db").chmod(0o444)
        folder.chmod(0o555)
        output, errors = spawn(folder / "store.db", script=READ_ONLY).communicate()
        folder.chmod(0o755)
    assert errors == ""
    assert "be written" in output


def test_older_stores_get_token_vectors(path: Path) -> None:
    with open_store(path) as store:
        run = store.create_run({}, "kept")
    older = "UPDATE alembic_version SET version_num = '0011'"
    execute(path, "DROP TABLE token_vectors", older)
    with open_store(path) as store:
        assert store.get_run(run.id).id == run.id
    assert execute(path, "SELECT count(*) FROM token_vectors") == [(0,)]
