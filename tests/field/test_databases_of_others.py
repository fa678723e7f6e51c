"""Somebody names the database of another program, or of a newer version, as the store.

It is refused, and its bytes stay: SQLite's write-ahead mode would be a mark in the file's header
(bytes 18 and 19 of the file format), and other programs may not be able to open it any more.
"""

import sqlite3
from contextlib import closing

import pytest

from textevolve.errors import StoreError
from textevolve.store.repository import open_store

NEWER = "UPDATE alembic_version SET version_num = '0042'"


@pytest.mark.parametrize("newer", [False, True])
def test_refused_files_stay_as_they_are(home, cli, newer):
    path = home / "app.db"
    if newer:
        open_store(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.execute(NEWER if newer else "CREATE TABLE letters (body TEXT)")
        raw.commit()
    content = path.read_bytes()
    assert content[18:20] == b"\1\1"

    with pytest.raises(StoreError):
        open_store(path)
    for command in (("runs", "list"), ("config", "store", "vacuum"), ("jobs", "list")):
        assert cli(*command, "--store", path).code == 1
    assert path.read_bytes() == content
    assert [file.name for file in home.glob("app.db*")] == ["app.db"]
