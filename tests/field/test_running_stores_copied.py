"""Somebody backs up the store of a server that runs day and night, or copies to a place in use."""

import pytest

from textevolve.errors import StoreError
from textevolve.store.repository import open_store
from textevolve.store.upkeep import copy_store


def test_living_store_is_copied(tmp_path):
    source = tmp_path / "store.db"
    copy = tmp_path / "copy.db"
    with open_store(source) as store:
        run = store.create_run({"kind": "evaluate"}, "print")
        with store.lease(run.id):
            store.ensure_namespace("acme")
            copy_store(source, copy)

    with open_store(copy) as copied:
        assert copied.namespace_names() == ["acme"]
        assert copied.get_run(run.id).status == "interrupted"


def test_failed_copy_leaves_nothing(tmp_path, monkeypatch):
    source = tmp_path / "store.db"
    with open_store(source) as store:
        store.ensure_namespace("acme")

    def fail(_connection):
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("textevolve.store.upkeep.finish_copy", fail)
        with pytest.raises(StoreError, match="full"):
            copy_store(source, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_refused_target_stays(tmp_path):
    source = tmp_path / "store.db"
    target = tmp_path / "other.db"
    for path in (source, target):
        with open_store(path) as store:
            store.ensure_namespace(path.stem)

    with pytest.raises(StoreError, match="is not empty"):
        copy_store(source, target)
    with open_store(target) as store:
        assert store.namespace_names() == ["other"]
