"""A store copied into another one: all that was in it, and it works there as it did."""

from __future__ import annotations

import numpy as np
import pytest

from textevolve.errors import StoreError
from textevolve.evaluation import Case
from textevolve.memory.record import Add, MemoryQuery, NewMemory
from textevolve.settings import StoreAddress
from textevolve.store import upkeep as copies
from textevolve.store.records import StoredRecord
from textevolve.store.repository import open_store


def remembered(text, seed=1):
    drawn = np.random.default_rng(seed).standard_normal(4)
    return Add(NewMemory(text=text, embedding=(drawn / np.linalg.norm(drawn)).astype(np.float32)))


async def fill(location, make_entry):
    """A run that was broken off, of which another run has found an answer."""
    with open_store(location) as store:
        run = store.create_run({"kind": "x", "text": "ä\ud83d\0"}, "one", "näme")
        store.add_cases(run.id, [Case(f"{n}", ("a\ud83d\0", "b")) for n in range(7)])
        with store.lease(run.id):
            for number in range(30):
                await store.journal(run.id).append(
                    make_entry(number, error="503" if number == 3 else None)
                )
        store.keep_records(
            run.id, [StoredRecord("k", 0, "c", 0.1 + 0.2, "scored", "", b'{"a": 1}')]
        )
        other = store.create_run({}, "two")
        await store.journal(other.id).find(make_entry(1).key)
    return run


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy.db"


@pytest.fixture
def back(request, location, tmp_path):
    """Of the kind that `location` is of."""
    if not isinstance(location, StoreAddress):
        yield tmp_path / "back.db"
        return
    server = request.getfixturevalue("postgres")
    name = server.create()
    yield StoreAddress(server.address(name))
    server.drop(name)


async def test_a_copy_goes_on_where_the_first_was(location, target, back, make_entry, place_at):
    run = await fill(location, make_entry)
    place = place_at(location)
    place.create("home", "chats")
    await place.open("home").apply("chats", [remembered("the tide turns")])
    copied = copies.copy_store(location, target)
    assert copied["calls"] == 30
    assert copies.copy_store(target, back) == copied
    with open_store(location) as first_store, open_store(back) as second_store:
        assert second_store.list_runs() == first_store.list_runs()
        assert list(second_store.iterate_cases(run.id)) == list(first_store.iterate_cases(run.id))
        assert list(second_store.calls(run.id)) == list(first_store.calls(run.id))
        assert second_store.run_totals(run.id) == first_store.run_totals(run.id)
        (record,) = second_store.iterate_records(run.id)
        assert record.score == 0.1 + 0.2
        with second_store.lease(run.id):
            journal = second_store.journal(run.id)
            assert await journal.find(make_entry(2).key)
            await journal.append(make_entry(100))  # its number is a new one
        assert len(list(second_store.calls(run.id))) == 31
    query = MemoryQuery(collection="chats", text="tide", embedding=remembered("x").memory.embedding)
    hits = [await place_at(one).open("home").search(query) for one in (location, back)]
    assert [one.memory.text for one in hits[1]] == ["the tide turns"]
    assert [one.memory.id for one in hits[0]] == [one.memory.id for one in hits[1]]


async def test_a_copy_that_was_broken_off_leaves_nothing(location, target, make_entry, monkeypatch):
    await fill(location, make_entry)

    def fail(_connection):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(copies, "finish_copy", fail)
        with pytest.raises(KeyboardInterrupt):
            copies.copy_store(location, target)
    assert copies.copy_store(location, target)["calls"] == 30
    with pytest.raises(StoreError, match="is not empty"):
        copies.copy_store(location, target)


async def test_a_store_in_use_is_copied(location, tmp_path, make_entry):
    with open_store(location) as store:
        run = store.create_run({}, "one")
        with store.lease(run.id):
            copies.copy_store(location, tmp_path / "copy.db")
    with open_store(tmp_path / "copy.db") as copied:
        assert copied.get_run(run.id).status == "interrupted"
