"""Two processes import files of memories that overlap, in opposite order (basic-memory 1208).

The right list is the union of both files, which Python's sets give.
"""

import asyncio

from textevolve import AsyncClient
from textevolve.memory.record import MemorySpec

ROWS = [MemorySpec(text=f"Gate {number} opens at {number % 24}.") for number in range(700)]
PARTS = (ROWS[:500], ROWS[:199:-1])


async def test_each_memory_is_stored_once(home, server):
    """The second process begins while the first one is at work, and neither knows of the other."""
    store = home / "store.db"
    async with (
        AsyncClient(store=store) as first,
        AsyncClient(store=store) as second,
        first.namespace("default") as space,
        second.namespace("default") as other,
    ):
        await space.collections.create("gates", embedder=f"{server.url}#any")
        sides = (space.memories("gates"), other.memories("gates"))
        results = await asyncio.gather(
            *(side.add_all(part) for side, part in zip(sides, PARTS, strict=True))
        )
        texts = [memory.text async for memory in sides[0].stream()]

    assert sorted(texts) == sorted(row.text for row in ROWS)
    assert sum(result.added for result in results) == len(ROWS)
    assert sum(result.known for result in results) == 300


async def test_other_changes_do_not_end_an_import(home, server):
    """A chat adds memories of its own meanwhile: the import goes on."""
    async with AsyncClient(store=home / "store.db").namespace("default") as space:
        await space.collections.create("gates", embedder=f"{server.url}#any")
        memories = space.memories("gates")
        imported, *_ = await asyncio.gather(
            memories.add_all(ROWS), *(memories.add(f"Ann said {n}.") for n in range(20))
        )
        assert imported.added == len(ROWS)
        assert len([memory async for memory in memories.stream()]) == len(ROWS) + 20
