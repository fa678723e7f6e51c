"""Create memories from a dialogue: extract points, reconcile them with existing memories, and store
them.

All changes of a dialogue are one transaction under the dialogue's key, so it is applied completely
or not at all, and never twice. The key is a hash of its turns: if a dialogue continues, only the
new turns are read. The decisions on earlier turns are read back from their memories.
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
    Outcome,
    PointDecision,
    combine_prompt,
    compare_prompt,
    drafts_of,
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
    """The result of a dialogue. `decisions`: in the order of its points; for a repeated dialogue,
    read back from its memories, without the dropped points. `applied`: the change of the
    collection, None if nothing was written. `first`: the number of turns that had been processed
    before."""

    decisions: tuple[PointDecision, ...]
    applied: Applied | None = None
    first: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts of the memories created from the dialogue, each once."""
        return tuple(dict.fromkeys(decision.text for decision in self.decisions if decision.text))


def prompts_version() -> dict[str, str]:
    """Return a hash of each prompt that creates memories, by the prompt's name; a run with another
    prompt is another run."""
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
    context_turns: int = 0,
) -> CreatedMemories:
    """Create memories from a dialogue, and store them in a collection.

    `source`: its `label` becomes the source of the memories; its `key`, if any, is used instead of
    the hash of the dialogue. `context_turns`: the number of first turns that are read as context
    only.

    Raises:
        InputError: the collection does not exist. ConflictError: another process changed the same
            memories meanwhile. ModelError: the model or the embedder gave no usable answer, and
            nothing was stored. BudgetError: a limit was reached, and nothing was stored.
    """
    ground = Ground(store, embed, model, await store.collection(collection), settings)
    start = await find_start(ground, dialogue, source)
    if start.applied is not None:
        return await read_decisions(ground, start.applied)
    with span("remember", "memories", collection=collection) as here:
        points = await extract_points(
            model, dialogue, settings, max(context_turns, start.done_turns)
        )
        created = await keep_points(ground, points, start, source)
        here.note(memories=len(created.texts), output=created.texts)
        return created


@dataclass(frozen=True, slots=True)
class Start:
    """The point at which reading a dialogue starts. `key`: the key of the dialogue's changes.
    `done_turns`: the number of turns that were processed before. `applied`: the stored result if
    the whole dialogue was processed before; None if turns are left."""

    key: str
    done_turns: int = 0
    applied: Applied | None = None


async def find_start(
    ground: Ground, dialogue: Sequence[DialogueTurn], source: ChangeSource
) -> Start:
    """Find the longest beginning of a dialogue that was processed with the same settings `about`
    and `focus`. If the source has a key, only this key is looked up."""
    name, applied = ground.collection.name, ground.store.applied
    if source.key:
        return Start(source.key, 0, await applied(name, source.key))
    keys = hash_beginnings(dialogue, ground.settings)
    length = len(keys) - 1
    while length and not await applied(name, keys[length - 1]):
        length -= 1
    return Start(keys[-1], length, await applied(name, keys[-1]))


def hash_beginnings(dialogue: Sequence[DialogueTurn], settings: CreationSettings) -> list[str]:
    """Return a key for the first turn, for the first two, and so on; at least one. Only the
    settings `about` and `focus` change the keys."""
    digest = hashlib.sha256(json.dumps([settings.about, settings.focus]).encode())
    keys: list[str] = []
    for turn in dialogue:
        content = [turn.role, turn.content, turn.timestamp]
        digest.update(b"\n" + json.dumps(content).encode())
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
    """Reconcile points with the collection, and apply all changes in one transaction; without
    `write`, only return the decisions. If another process has applied the same dialogue meanwhile,
    return the decisions read back from its memories."""
    name = ground.collection.name
    collection = await ground.store.collection(name)
    done = await reconcile(ground, points, collection.version)
    if not write:
        return CreatedMemories(_decisions(done), None, start.done_turns)
    changes = [_change(draft, source) for draft in drafts_of(done)]
    applied = await ground.store.apply(name, changes, ChangeSource(start.key, source.label))
    if applied.repeated:  # another process was faster with the same dialogue
        return await read_decisions(ground, applied)
    return CreatedMemories(_decisions(done, applied.ids), applied, start.done_turns)


async def read_decisions(ground: Ground, applied: Applied) -> CreatedMemories:
    """Rebuild the decisions on a dialogue that was processed before from the memories that it
    created, so dropped points are missing."""
    decisions: list[PointDecision] = []
    for memory in await ground.store.get(applied.ids):
        origin = memory.origin
        point = DialoguePoint(
            memory.text,
            origin.turn,
            origin.author,
            memory.importance,
            origin.trust,
            cites=memory.cites,
        )
        near = tuple(NearMemory(e.text, e.id) for e in await ground.store.get(memory.supersedes))
        before = tuple(each.text for each in near)
        action = "update" if before else "add"
        decision = PointDecision(
            point, action, memory.reason, "rule", near, before, memory.text, memory.id
        )
        decisions.append(decision)
    return CreatedMemories(tuple(decisions), replace(applied, repeated=True))


def _decisions(done: Sequence[Outcome], ids: Sequence[str] = ()) -> tuple[PointDecision, ...]:
    """Return the decisions, each with the id of the memory that has its text; the id stays empty
    for a dropped point, or without `ids`."""
    by_draft = {
        id(draft): memory_id for draft, memory_id in zip(drafts_of(done), ids, strict=bool(ids))
    }
    return tuple(
        decision if draft is None else replace(decision, id=by_draft.get(id(draft.last), ""))
        for decision, draft in done
    )


def _change(draft: MemoryDraft, source: ChangeSource) -> Change:
    decision, now = draft.decision, time()
    point = decision.point
    said_at = point.said if point.said is not None and point.said <= now else None
    memory = NewMemory(
        text=decision.text,
        embedding=draft.embedding,
        importance=point.importance,
        kind="insight" if point.cites else None,
        origin=Origin(source.label, point.turn, point.author, draft.trust),
        created=said_at,
        valid_from=next((t for t in (point.since, said_at) if t is not None and t <= now), now),
        valid_to=draft.until,
        entities=point.entities,
        cites=point.cites,
        reason=f"{point.question} ({decision.reason})" if point.question else decision.reason,
    )
    return Supersede(draft.closes, memory) if draft.closes else Add(memory)
