"""People erase memories one by one for years, or thousands at once; a new store of theirs went bad
after about 1,100 erasures.

Before SQLite 3.44, each `optimize` of a full-text index adds a level to a record that it can no
longer read at 2,000 entries; the pure statements show the same without this package.
"""

import asyncio

import numpy as np
import pytest

from textevolve.agents.resources import CollectionSpec
from textevolve.memory.record import Add, Forget, NewMemory
from textevolve.store import kinds
from textevolve.store.memory_search_sqlite import WORDS
from textevolve.store.repository import Store
from textevolve.store.sqlite import sqlite3
from textevolve.store.upkeep import ERASED, check, erase_derived

DIMENSION = 8
VECTOR = np.ones(DIMENSION, dtype=np.float32) / DIMENSION**0.5


@pytest.fixture
def memories(store_file):
    store = Store(store_file)
    for name in ("ann", "bob"):
        store.write(kinds.ensure_namespace, name)
        spec = CollectionSpec(name="notes", embedder="t/e", dimension=DIMENSION)
        store.write(kinds.create, kinds.COLLECTIONS, name, spec)
    yield store.memories("ann")
    store.close()


@pytest.fixture
def store_file(tmp_path):
    return tmp_path / "store.db"


async def add_notes(memories, *texts):
    changes = [Add(NewMemory(text=text, embedding=VECTOR)) for text in texts]
    return (await memories.apply("notes", changes)).ids


@pytest.mark.slow
def test_erasures_one_by_one(memories, store_file):
    async def erase_often():
        for number in range(1_500):
            _, erased = await add_notes(memories, f"kept {number}", f"secret {number}")
            await memories.apply("notes", [Forget(erased, erase=True)])

    asyncio.run(erase_often())
    assert check(store_file).repaired == ""
    with sqlite3.connect(store_file) as raw:
        assert not raw.execute(f"SELECT 1 FROM {WORDS}_content WHERE c0 LIKE '%secret%'").fetchall()


@pytest.mark.slow
def test_erasures_at_once(memories, store_file):
    async def erase_all():
        ids = await add_notes(memories, *(f"secret {number}" for number in range(2_100)))
        await memories.apply("notes", [Forget(id, erase=True) for id in ids])
        await add_notes(memories, "still writable")

    asyncio.run(erase_all())
    assert check(store_file).intact["memories"] == 2_101
    assert check(store_file).repaired == ""


def damage_index(store_file):
    with sqlite3.connect(store_file) as raw:
        raw.execute(f"DELETE FROM {WORDS}_data WHERE id = 10")


def lose_entries(store_file):
    with sqlite3.connect(store_file) as raw:
        raw.execute(f"DELETE FROM {WORDS} WHERE rowid = 1")


@pytest.mark.parametrize("spoil", [damage_index, lose_entries])
def test_index_built_anew(memories, store_file, spoil):
    asyncio.run(add_notes(memories, "Ann lives in Oslo", "Bob lives in Rome"))
    spoil(store_file)
    findings = check(store_file)
    assert findings.repaired
    assert not findings.damaged

    assert check(store_file).repaired == ""
    asyncio.run(add_notes(memories, "Eve lives in Bonn"))


def test_index_fault_named(memories, store_file):
    asyncio.run(add_notes(memories, "Ann lives in Oslo"))
    damage_index(store_file)
    with pytest.raises(Exception, match="the memories are not; textevolve config store check"):
        asyncio.run(add_notes(memories, "Bob lives in Rome"))


def test_names_of_erased_facts():
    """A run's record holds the fact in the dialogue's words, in the memory's, and its names."""
    record = {"text": "Bob sails.", "point": {"text": "Bob sails", "entities": ["Bob"]}}
    erased = {
        "text": ERASED,
        "reason": "It names Ann's clinic.",
        "point": {"text": "my knee, says Ann", "entities": ["Ann", "clinic"], "turn": 3},
        "near": [{"id": "me_1", "text": "Bob sails."}],
    }
    assert erase_derived({"decisions": [record, erased]})["decisions"] == [
        record,
        {
            "text": ERASED,
            "reason": ERASED,
            "point": {"text": ERASED, "entities": [], "turn": 3},
            "near": [{"id": "me_1", "text": "Bob sails."}],
        },
    ]
