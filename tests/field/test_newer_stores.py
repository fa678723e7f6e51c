"""A store of a newer version is checked or salvaged by this one after a downgrade."""

import sqlite3
from contextlib import closing

import pytest

from textevolve.errors import StoreError
from textevolve.store.repository import open_store
from textevolve.store.upkeep import check


def test_newer_stores_are_refused(home):
    path = home / "newer.db"
    with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0042'")
        connection.commit()

    for target in (None, home / "saved.db"):
        with pytest.raises(StoreError, match="0042"):
            check(path, target)
    assert not (home / "saved.db").exists()


def test_hidden_revisions_are_found(home):
    """The damage hides the revision, and a column that nobody here knows would be lost."""
    path = home / "newer.db"
    with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE runs ADD COLUMN cost_centre text")
        connection.execute("DELETE FROM alembic_version")
        connection.commit()

    with pytest.raises(StoreError, match=r"runs\.cost_centre"):
        check(path, home / "saved.db")
    assert not (home / "saved.db").exists()
