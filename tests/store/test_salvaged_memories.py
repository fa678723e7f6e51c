"""Memories in a store that is checked, and in one that is damaged."""

from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from textevolve.memory.record import (
    Add,
    ChangeSource,
    Forget,
    MemoryQuery,
    NewMemory,
    Relation,
    Supersede,
)
from textevolve.store import tables
from textevolve.store.sqlite import sqlite3
from textevolve.store.upkeep import check as check_store

TABLES = (
    *("memories", "embeddings", "mentions", "relations", "uses", "memory_sources"),
    *("namespace_tokens", "browser_sessions", "batches"),
)


def toward(number):
    angle = number / 40
    return np.array([np.cos(angle), np.sin(angle), 0, 0], dtype=np.float32)


def new(number):
    return NewMemory(
        text=f"number{number} " + "so it is " * (number % 5 * 40),
        embedding=toward(number),
        entities=(f"e{number}",),
        relations=(Relation("a", "b", f"e{number}"),),
    )


@pytest.fixture
async def filled(memory_location, place):
    if memory_location.startswith("postgresql"):
        pytest.skip("only files are salvaged")
    for name in ("one", "two"):
        place.create(name, "chats")
        store = place.open(name)
        ids = (await store.apply("chats", [Add(new(n)) for n in range(40)], ChangeSource("k"))).ids
        await store.apply("chats", [Supersede(ids[:2], new(40)), Forget(ids[2])])
        await store.apply("chats", [Forget(ids[3], erase=True)])
        await store.use(ids[5:7], 1e9)
    sessions = tables.sessions.insert().values(
        id="s", namespace_id="n", agent_id="a", user="", created=1.5, updated=2.0, title="t"
    )
    place.resources.database.write(lambda connection: connection.execute(sessions))
    other_fields = {
        tables.namespace_tokens: ("n", "2026-01-01", 12),
        tables.browser_sessions: (b"h", "k", 1.0, 2.0),
        tables.batches: ("mark", "r", "m", 1.0, 2.0, "done", "f", "i", "", b""),
    }
    for table, values in other_fields.items():
        place.resources.database.write(
            lambda c, table=table, values=values: c.execute(table.insert().values(values))
        )
    place.resources.close()
    with closing(sqlite3.connect(place.location)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return place


def rows_of(path):
    with closing(sqlite3.connect(path)) as raw:
        return {kind: set(raw.execute(f"SELECT * FROM {kind}")) for kind in TABLES}


async def found_in(place, location):
    place.resources.close()
    place.resources = type(place.resources)(str(location))
    query = MemoryQuery(collection="chats", text="number7 number0", embedding=toward(9), limit=5)
    fields = {}
    for name, version in product(("one", "two"), (None, 1)):
        matches = await place.open(name).search(replace(query, version=version))
        fields[name, version] = {(m.memory.id, m.dense_rank, m.keyword_rank) for m in matches}
    return fields


async def test_a_store_with_memories_is_whole_and_saved_whole(filled, tmp_path):
    path, copy = Path(filled.location), tmp_path / "copy.db"
    findings = check_store(path, copy)
    assert not findings.damaged, findings
    assert findings.intact["memories"] == 82
    assert (findings.intact["collections"], findings.intact["sessions"]) == (2, 1)
    assert rows_of(copy) == rows_of(path)
    assert await found_in(filled, copy) == await found_in(filled, path)
