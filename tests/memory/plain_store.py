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
        made = Collection(
            f"co_{secrets.token_hex(16)}", self.namespace, name, kind, embedder, dimension
        )
        self.collections[name] = made
        return made

    async def collection(self, name: str) -> Collection:
        if name not in self.collections:
            raise InputError(f"no collection '{name}' in the namespace '{self.namespace}'")
        return self.collections[name]

    async def search(self, query: MemoryQuery) -> Sequence[MemoryMatch]:
        collection = await self.collection(query.collection)
        held = self._held(collection.name, query)
        near: list[tuple[float, MemoryRecord]] = []
        if query.embedding is not None:
            if len(query.embedding) != collection.dimension:
                raise InputError("the embedding has another dimension")
            there = [one for one in held if one.text]
            near = [(float(self.vectors[one.id] @ query.embedding), one) for one in there]
            near.sort(key=lambda each: -each[0])
        words = set(query.text.lower().split())
        shared = [(len(words & set(one.text.lower().split())), one) for one in held]
        shared = sorted((each for each in shared if each[0]), key=lambda each: -each[0])
        dense = {one.id: n for n, (_, one) in enumerate(near[: query.limit], 1)}
        keyword = {one.id: n for n, (_, one) in enumerate(shared[: query.limit], 1)}
        similarity = {one.id: likeness for likeness, one in near}
        return [
            MemoryMatch(
                self._then(one, query.version),
                dense.get(one.id),
                keyword.get(one.id),
                similarity.get(one.id),
            )
            for one in held
            if one.id in dense or one.id in keyword
        ]

    def _then(self, one: MemoryRecord, version: int | None) -> MemoryRecord:
        """As a version had it: what became of it later is left out."""
        if version is None:
            return one
        until = self.changed[one.collection, version]
        times = [time for id, time in self.used if id == one.id and time <= until]
        one = replace(one, times_used=len(times), last_used=max(times, default=None))
        if one.closed is None or one.closed <= version:
            return one
        return replace(one, closed=None, forgotten=False, superseded_by=None, superseded_at=None)

    def _held(self, name: str, query: MemoryQuery) -> list[MemoryRecord]:
        now = query.time
        if now is None:
            now = time() if query.version is None else self.changed.get((name, query.version), 0.0)
        found = []
        for one in self.memories:
            if one.collection != name or (one.valid_from or 0) > now:
                continue
            if one.valid_to is not None and one.valid_to <= now:
                continue
            if query.version is not None:
                if one.added > query.version or (one.closed or query.version + 1) <= query.version:
                    continue
                if not one.text:
                    continue
            elif query.time is not None:
                if one.forgotten or (one.superseded_at is not None and one.superseded_at <= now):
                    continue
            elif one.closed is not None:
                continue
            if one.origin.trust >= query.least_trust:
                found.append(one)
        return found

    async def associate(
        self, query: MemoryQuery, starts: Sequence[str], hops: int = 2
    ) -> Sequence[MemoryRecord]:
        held = self._held(query.collection, query)
        reached, found = set(starts), []
        for _ in range(hops):
            entities = {name for one in held if one.id in reached for name in names_of(one)}
            new = [one for one in held if one.id not in reached and entities & names_of(one)]
            found += new
            reached |= {one.id for one in new}
        return [self._then(one, query.version) for one in found[: query.limit]]

    async def get(self, ids: Sequence[str]) -> Sequence[MemoryRecord]:
        by_id = {one.id: one for one in self.memories}
        for id in ids:
            if id not in by_id:
                raise InputError(f"no memory '{id}' in the namespace '{self.namespace}'")
        return [by_id[id] for id in ids]

    async def history(self, id: str) -> Sequence[MemoryRecord]:
        (one,) = await self.get([id])
        chain, waiting = {one.id}, [one]
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
        all = [one for one in self.memories if one.collection == collection]
        if after is not None:
            all = all[[one.id for one in all].index(after) + 1 :]
        if version is not None:
            all = [one for one in all if one.added <= version]
            if not closed:
                all = [one for one in all if one.closed is None or one.closed > version]
                all = [one for one in all if one.text]
            all = [self._then(one, version) for one in all]
        elif not closed:
            all = [one for one in all if one.closed is None]
        return all[:limit]

    async def apply(
        self, collection: str, changes: Sequence[Change], source: ChangeSource | None = None
    ) -> Applied:
        held = await self.collection(collection)
        if source is not None and (known := self.sources.get((collection, source.key))):
            return replace(known, repeated=True)
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
        erased = [one.memory for one in changes if isinstance(one, Forget) and one.erase]
        for one in await self.get(closing):
            if one.collection != collection:
                raise InputError(f"no memory '{one.id}' in this collection")
            if one.closed is not None and one.id not in erased:
                raise ConflictError("a memory is not held any more")
        if not changes:
            return self._note(held, (), held.version, held.changed, source)
        version, now, ids = held.version + 1, time(), []
        for change in changes:
            match change:
                case Add(memory):
                    ids.append(self._keep(held, memory, version, now, ()))
                case Supersede(memories, memory):
                    since = memory.valid_from
                    if since is None:
                        since = min(now, now if memory.created is None else memory.created)
                    memory = replace(memory, valid_from=since)
                    ids.append(self._keep(held, memory, version, now, memories))
                    for id in memories:
                        self._close(id, version, superseded_by=ids[-1], superseded_at=since)
                case Forget(memory, erase):
                    self._close(memory, version, forgotten=True, **(ERASED if erase else {}))
                    if erase:
                        self.used = [each for each in self.used if each[0] != memory]
        return self._note(held, tuple(ids), version, now, source)

    def _note(self, held: Collection, ids, version: int, now: float, source) -> Applied:
        self.collections[held.name] = replace(held, version=version, changed=now)
        self.changed[held.name, version] = now
        applied = Applied(ids, held.version, version)
        if source is not None:
            self.sources[held.name, source.key] = applied
        return applied

    def _keep(self, held: Collection, new, version: int, now: float, supersedes) -> str:
        if not new.text.strip():
            raise InputError("a memory's text is blank")
        if len(new.embedding) != held.dimension:
            raise InputError("the embedding has another dimension")
        id = f"me_{secrets.token_hex(16)}"
        self.vectors[id] = new.embedding
        self.memories.append(
            MemoryRecord(
                id=id,
                collection=held.name,
                kind=new.kind or held.kind,
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
            )
        )
        return id

    def _close(self, id: str, version: int, **changed) -> None:
        place = [one.id for one in self.memories].index(id)
        before = self.memories[place].closed
        closed = version if before is None else before
        self.memories[place] = replace(self.memories[place], closed=closed, **changed)

    async def applied(self, collection: str, key: str) -> Applied | None:
        return self.sources.get((collection, key))

    async def use(self, ids: Sequence[str], time: float) -> None:
        self.used += [(one.id, time) for one in await self.get(sorted(set(ids)))]
        for place, one in enumerate(self.memories):
            if one.id in ids:
                last = max(time, one.last_used or time)
                self.memories[place] = replace(one, last_used=last, times_used=one.times_used + 1)


def names_of(one: MemoryRecord) -> set[str]:
    """Whom and what it speaks of, in the form in which names are compared."""
    related = {name for edge in one.relations for name in (edge.subject, edge.object)}
    return {name.casefold().strip() for name in {*one.entities, *related}}
