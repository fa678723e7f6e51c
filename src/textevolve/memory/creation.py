"""Memories from a dialogue: points are extracted, held against what is known, and kept at once.

All changes of a dialogue are made in one step, under the key of the dialogue, so that it is taken
in whole or not at all, and never twice. The key is a hash of its turns: of a dialogue that has gone
on since, only the new turns are read. Of what was taken in before, its memories tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time

from textevolve.llm.model import Model
from textevolve.memory.extraction import (
    CreationSettings,
    DialoguePoint,
    extract_points,
    extraction_prompt,
)
from textevolve.memory.index import Embed, MemoryStore
from textevolve.memory.reconciliation import (
    Ground,
    MemoryDraft,
    NearMemory,
    PointDecision,
    Reconciled,
    combine_prompt,
    compare_prompt,
    reconcile,
)
from textevolve.memory.record import (
    Add,
    Applied,
    Change,
    ChangeSource,
    DialogueTurn,
    NewMemory,
    Origin,
    Supersede,
)
from textevolve.spans import span


@dataclass(frozen=True, slots=True)
class CreatedMemories:
    """What became of a dialogue. `decisions` in the order of its points. `applied`: the change of
    the collection, None where nothing was written; of a repeated one the decisions are what its
    memories tell. `first`: so many turns were taken in before."""

    decisions: tuple[PointDecision, ...]
    applied: Applied | None = None
    first: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The memories that it gave, each once."""
        return tuple(dict.fromkeys(one.text for one in self.decisions if one.text))


def prompts_version() -> dict[str, str]:
    """The version of each prompt."""
    prompts = (extraction_prompt(), compare_prompt(), combine_prompt())
    return {f"memory.{prompt.name}": prompt.version for prompt in prompts}


async def create_memories(
    store: MemoryStore,
    embed: Embed,
    model: Model,
    collection: str,
    dialogue: Sequence[DialogueTurn],
    settings: CreationSettings,
    source: ChangeSource,
    *,
    first: int = 0,
) -> CreatedMemories:
    """Make memories of a dialogue, and keep them in a collection.

    `source`: its `label` becomes the source of the memories; its `key`, where it has one, takes the
    place of the hash of the dialogue. `first`: so many turns are only read to understand the rest.

    Raises:
        InputError: there is no such collection. ConflictError: others changed the same memories
            meanwhile. ModelError: the model or the embedder gave no usable answer, and nothing was
            kept. BudgetError: a limit was reached first, and nothing was kept.
    """
    ground = Ground(store, embed, model, await store.collection(collection), settings)
    start = await find_start(ground, dialogue, source)
    if start.known is not None:
        return await tell_kept(ground, start.known)
    with span("remember", "memories", collection=collection) as here:
        points = await extract_points(model, dialogue, settings, max(first, start.first))
        created = await keep_points(ground, points, start, source)
        here.note(memories=len(created.texts), output=created.texts)
        return created


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins: so many turns, `first`, were taken in before. `known`: what became of
    the whole dialogue where it was."""

    key: str
    first: int = 0
    known: Applied | None = None


async def find_start(
    ground: Ground, dialogue: Sequence[DialogueTurn], source: ChangeSource
) -> Start:
    """The longest beginning of a dialogue that was taken in before, under the same settings."""
    name, applied = ground.collection.name, ground.store.applied
    if source.key:
        return Start(source.key, 0, await applied(name, source.key))
    keys = hash_beginnings(dialogue, ground.settings)
    known = await applied(name, keys[-1])
    taken = range(len(keys) - 1, 0, -1)
    for first in taken:
        if await applied(name, keys[first - 1]):
            return Start(keys[-1], first, known)
    return Start(keys[-1], 0, known)


def hash_beginnings(dialogue: Sequence[DialogueTurn], settings: CreationSettings) -> list[str]:
    """A key for the first turn, for the first two, and so on; at least one. Of the settings those
    count that say what is looked for."""
    digest = hashlib.sha256(json.dumps([settings.about, settings.focus]).encode())
    keys: list[str] = []
    for turn in dialogue:
        said = [turn.role, turn.content, turn.timestamp]
        digest.update(b"\n" + json.dumps(said).encode())
        keys.append(f"dialogue {digest.hexdigest()}")
    return keys or [f"dialogue {digest.hexdigest()}"]


async def keep_points(
    ground: Ground,
    points: Sequence[DialoguePoint],
    start: Start,
    source: ChangeSource,
    *,
    write: bool = True,
) -> CreatedMemories:
    """Decide what becomes of points, and make all changes at once; see `create_memories`."""
    name = ground.collection.name
    collection = await ground.store.collection(name)
    done = await reconcile(ground, points, collection.version)
    if not write:
        return CreatedMemories(_decisions(done), None, start.first)
    changes = [_change(draft, source) for draft in done.drafts]
    applied = await ground.store.apply(name, changes, ChangeSource(start.key, source.label))
    if applied.repeated:  # another process was faster with the same dialogue
        return await tell_kept(ground, applied)
    return CreatedMemories(_decisions(done, applied.ids), applied, start.first)


async def tell_kept(ground: Ground, known: Applied) -> CreatedMemories:
    """Read the decisions on a dialogue that was taken in before from the memories it gave."""
    decisions: list[PointDecision] = []
    for one in await ground.store.get(known.ids):
        origin = one.origin
        point = DialoguePoint(one.text, origin.turn, origin.author, one.importance, origin.trust)
        point = replace(point, cites=one.cites)
        near = tuple(NearMemory(e.text, e.id) for e in await ground.store.get(one.supersedes))
        before = tuple(each.text for each in near)
        action = "update" if before else "add"
        made = PointDecision(point, action, one.reason, "rule", near, before, one.text, one.id)
        decisions.append(made)
    return CreatedMemories(tuple(decisions), replace(known, repeated=True))


def _decisions(done: Reconciled, ids: Sequence[str] = ()) -> tuple[PointDecision, ...]:
    """Decisions with the id of the memory that each has ended in."""
    by_draft = {id(draft): kept for draft, kept in zip(done.drafts, ids, strict=bool(ids))}
    return tuple(
        made if draft is None else replace(made, id=by_draft.get(id(draft.last), ""))
        for made, draft in done.decisions
    )


def _change(draft: MemoryDraft, source: ChangeSource) -> Change:
    made, now = draft.decision, time()
    point = made.point
    said = point.said if point.said is not None and point.said <= now else None
    memory = NewMemory(
        text=made.text,
        embedding=draft.embedding,
        importance=point.importance,
        kind="insight" if point.cites else None,
        origin=Origin(source.label, point.turn, point.author, draft.trust),
        created=said,
        valid_from=next((t for t in (point.since, said) if t is not None and t <= now), now),
        valid_to=draft.until,
        entities=point.entities,
        cites=point.cites,
        reason=f"{point.question} ({made.reason})" if point.question else made.reason,
    )
    return Supersede(draft.closes, memory) if draft.closes else Add(memory)
