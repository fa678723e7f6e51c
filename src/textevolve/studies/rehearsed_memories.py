"""Stands where a store of memories is while a study that makes memories is rehearsed: what is near
is made up, so that it costs what comparing costs, and nothing can be written."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from textevolve.llm.testing.schema import prose
from textevolve.memory.index import MemoryMatch, MemoryQuery, MemoryStore
from textevolve.memory.record import Applied, Collection, MemoryRecord
from textevolve.wiring import Mode

SHARE_NEAR = 0.6
"""Of points, in a rehearsal of typical lengths, that something is near to."""
WORDS = 16


class RehearsedMemories:
    """What making memories asks of a store. Nothing is near to any point (`shortest`), as many
    memories as are asked for are (`longest`), or that is drawn (`typical`). What was taken in
    before is known from the real store."""

    def __init__(self, real: MemoryStore, mode: Mode) -> None:
        self._real, self._mode = real, mode

    @property
    def namespace(self) -> str:
        return self._real.namespace

    async def collection(self, name: str) -> Collection:
        return await self._real.collection(name)

    async def applied(self, collection: str, key: str) -> Applied | None:
        return await self._real.applied(collection, key)

    async def get(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        return await self._real.get(ids)

    async def search(self, query: MemoryQuery) -> Sequence[MemoryMatch]:
        rng = Random(query.text)
        number = query.limit // 2
        if self._mode == "shortest" or (self._mode == "typical" and rng.random() > SHARE_NEAR):
            return ()
        if self._mode == "typical":
            number = rng.randint(1, max(1, number))
        words = 3 * WORDS if self._mode == "longest" else WORDS
        made = (_record(f"{n}", query.collection, prose(rng, words)) for n in range(number))
        return [MemoryMatch(one, similarity=0.9) for one in made]


def _record(id: str, collection: str, text: str) -> MemoryRecord:
    return MemoryRecord(
        id=id, collection=collection, kind="episodic", text=text, importance=0.5, created=0.0
    )
