"""A store of memories that is nothing but lists: what the real ones are held against."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import time

from textevolve.errors import ConflictError, InputError
from textevolve.memory.record import (
    Add,
    Applied,
    Change,
    ChangeSource,
    Collection,
    Forget,
    MemoryMatch,
    MemoryQuery,
    MemoryRecord,
    Origin,
    Supersede,
    Vector,
)

ERASED = {
    "text": "",
    "reason": "",
    "origin": Origin(),
    "entities": (),
    "relations": (),
    "cites": (),
    "last_used": None,
    "times_used": 0,
}


@dataclass
class PlainMemories:
    """A `MemoryStore` of one namespace. Keywords are words that texts share, by their number."""

    namespace: str
    collections: dict[str, Collection] = field(default_factory=dict)
    memories: list[MemoryRecord] = field(default_factory=list)
    vectors: dict[str, Vector] = field(default_factory=dict)
    sources: dict[tuple[str, str], Applied] = field(default_factory=dict)
    used: list[tuple[str, float]] = field(default_factory=list)
    changed: dict[tuple[str, int], float] = field(default_factory=dict)

    def create(self, name: str, dimension: int, kind="episodic", embedder="test/embedder"):
        collection = Collection(
            f"co_{secrets.token_hex(16)}", self.namespace, name, kind, embedder, dimension
        )
        self.collections[name] = collection
        return collection

    async def collection(self, name: str) -> Collection:
        if name not in self.collections:
            raise InputError(f"no collection '{name}' in the namespace '{self.namespace}'")
        return self.collections[name]

    async def search(self, query: MemoryQuery) -> Sequence[MemoryMatch]:
        collection = await self.collection(query.collection)
        current = self._held(collection.name, query)
        near: list[tuple[float, MemoryRecord]] = []
        if query.embedding is not None:
            if len(query.embedding) != collection.dimension:
                raise InputError("the embedding has another dimension")
            there = [memory for memory in current if memory.text]
            near = [(float(self.vectors[memory.id] @ query.embedding), memory) for memory in there]
            near.sort(key=lambda each: -each[0])
        words = set(query.text.lower().split())
        shared = [(len(words & set(memory.text.lower().split())), memory) for memory in current]
        shared = sorted((each for each in shared if each[0]), key=lambda each: -each[0])
        dense = {memory.id: n for n, (_, memory) in enumerate(near[: query.limit], 1)}
        keyword = {memory.id: n for n, (_, memory) in enumerate(shared[: query.limit], 1)}
        similarity = {memory.id: likeness for likeness, memory in near}
        return [
            MemoryMatch(
                self._then(memory, query.version),
                dense.get(memory.id),
                keyword.get(memory.id),
                similarity.get(memory.id),
            )
            for memory in current
            if memory.id in dense or memory.id in keyword
        ]

    def _then(self, memory: MemoryRecord, version: int | None) -> MemoryRecord:
        """As a version had it: what became of it later is left out."""
        if version is None:
            return memory
        until = self.changed[memory.collection, version]
        times = [time for id, time in self.used if id == memory.id and time <= until]
        memory = replace(memory, times_used=len(times), last_used=max(times, default=None))
        if memory.closed is None or memory.closed <= version:
            return memory
        return replace(memory, closed=None, forgotten=False, superseded_by=None, superseded_at=None)

    def _held(self, name: str, query: MemoryQuery) -> list[MemoryRecord]:
        now = query.time
        if now is None:
            now = time() if query.version is None else self.changed.get((name, query.version), 0.0)
        memories = []
        for memory in self.memories:
            if memory.collection != name or (memory.valid_from or 0) > now:
                continue
            if memory.valid_to is not None and memory.valid_to <= now:
                continue
            if query.version is not None:
                if (
                    memory.added > query.version
                    or (memory.closed or query.version + 1) <= query.version
                ):
                    continue
                if not memory.text:
                    continue
            elif query.time is not None:
                if memory.forgotten or (
                    memory.superseded_at is not None and memory.superseded_at <= now
                ):
                    continue
            elif memory.closed is not None:
                continue
            if query.user is not None and memory.user not in ("", query.user):
                continue
            if memory.origin.trust >= query.least_trust:
                memories.append(memory)
        return memories

    async def associate(
        self, query: MemoryQuery, starts: Sequence[str], hops: int = 2
    ) -> Sequence[MemoryRecord]:
        current = self._held(query.collection, query)
        reached, near = set(starts), []
        for _ in range(hops):
            entities = {
                name for memory in current if memory.id in reached for name in names_of(memory)
            }
            new = [
                memory
                for memory in current
                if memory.id not in reached and entities & names_of(memory)
            ]
            near += new
            reached |= {memory.id for memory in new}
        return [self._then(memory, query.version) for memory in near[: query.limit]]

    async def get(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        by_id = {memory.id: memory for memory in self.memories}
        for id in ids:
            if id not in by_id:
                raise InputError(f"no memory '{id}' in the namespace '{self.namespace}'")
        return [by_id[id] for id in ids]

    async def history(self, id: str) -> Sequence[MemoryRecord]:
        (memory,) = await self.get([id])
        chain, waiting = {memory.id}, [memory]
        while waiting:
            each = waiting.pop()
            near = {*each.supersedes, *([each.superseded_by] if each.superseded_by else [])}
            waiting += await self.get(sorted(near - chain))
            chain |= near
        return [each for each in self.memories if each.id in chain]

    async def page(
        self, collection: str, *, after=None, limit=100, version=None, closed=False
    ) -> Sequence[MemoryRecord]:
        await self.collection(collection)
        memories = [memory for memory in self.memories if memory.collection == collection]
        if after is not None:
            memories = memories[[memory.id for memory in memories].index(after) + 1 :]
        if version is not None:
            memories = [memory for memory in memories if memory.added <= version]
            if not closed:
                memories = [
                    memory
                    for memory in memories
                    if memory.closed is None or memory.closed > version
                ]
                memories = [memory for memory in memories if memory.text]
            memories = [self._then(memory, version) for memory in memories]
        elif not closed:
            memories = [memory for memory in memories if memory.closed is None]
        return memories[:limit]

    async def apply(
        self, collection: str, changes: Sequence[Change], source: ChangeSource | None = None
    ) -> Applied:
        target = await self.collection(collection)
        if source is not None and (applied := self.sources.get((collection, source.key))):
            return replace(applied, repeated=True)
        closing = [
            id
            for change in changes
            for id in (
                change.memories
                if isinstance(change, Supersede)
                else [change.memory]
                if isinstance(change, Forget)
                else []
            )
        ]
        if len(set(closing)) < len(closing):
            raise InputError("a memory is superseded or forgotten twice at once")
        erased = [entry.memory for entry in changes if isinstance(entry, Forget) and entry.erase]
        for entry in await self.get(closing):
            if entry.collection != collection:
                raise InputError(f"no memory '{entry.id}' in this collection")
            if entry.closed is not None and entry.id not in erased:
                raise ConflictError("a memory is not held any more")
        if not changes:
            return self._note(target, (), target.version, target.changed, source)
        version, now, ids = target.version + 1, time(), []
        for change in changes:
            match change:
                case Add(memory):
                    ids.append(self._keep(target, memory, version, now, ()))
                case Supersede(memories, memory, positions):
                    since = memory.valid_from
                    if since is None:
                        since = min(now, now if memory.created is None else memory.created)
                    memory = replace(memory, valid_from=since)
                    ids.append(self._keep(target, memory, version, now, memories))
                    for id in (*memories, *(ids[position] for position in positions)):
                        self._close(id, version, superseded_by=ids[-1], superseded_at=since)
                case Forget(memory, erase):
                    self._close(memory, version, forgotten=True, **(ERASED if erase else {}))
                    if erase:
                        self.used = [each for each in self.used if each[0] != memory]
        return self._note(target, tuple(ids), version, now, source)

    def _note(self, target: Collection, ids, version: int, now: float, source) -> Applied:
        self.collections[target.name] = replace(target, version=version, changed=now)
        self.changed[target.name, version] = now
        applied = Applied(ids, target.version, version)
        if source is not None:
            self.sources[target.name, source.key] = applied
        return applied

    def _keep(self, target: Collection, new, version: int, now: float, supersedes) -> str:
        if not new.text.strip():
            raise InputError("a memory's text is blank")
        if len(new.embedding) != target.dimension:
            raise InputError("the embedding has another dimension")
        id = f"me_{secrets.token_hex(16)}"
        self.vectors[id] = new.embedding
        self.memories.append(
            MemoryRecord(
                id=id,
                collection=target.name,
                kind=new.kind or target.kind,
                text=new.text,
                importance=new.importance,
                created=now if new.created is None else new.created,
                origin=new.origin,
                valid_from=new.valid_from,
                valid_to=new.valid_to,
                supersedes=tuple(supersedes),
                added=version,
                entities=new.entities,
                relations=new.relations,
                cites=new.cites,
                reason=new.reason,
                user=new.user,
            )
        )
        return id

    def _close(self, id: str, version: int, **changed) -> None:
        place = [memory.id for memory in self.memories].index(id)
        before = self.memories[place].closed
        closed = version if before is None else before
        self.memories[place] = replace(self.memories[place], closed=closed, **changed)

    async def applied(self, collection: str, key: str) -> Applied | None:
        return self.sources.get((collection, key))

    async def use(self, ids: Sequence[str], time: float) -> None:
        self.used += [(memory.id, time) for memory in await self.get(sorted(set(ids)))]
        for place, memory in enumerate(self.memories):
            if memory.id in ids:
                last = max(time, memory.last_used or time)
                self.memories[place] = replace(
                    memory, last_used=last, times_used=memory.times_used + 1
                )


def names_of(memory: MemoryRecord) -> set[str]:
    """Whom and what it speaks of, in the form in which names are compared."""
    related = {name for edge in memory.relations for name in (edge.subject, edge.object)}
    return {name.casefold().strip() for name in {*memory.entities, *related}}
