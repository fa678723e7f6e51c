"""How memories are drawn: lists, search results with the parts of their scores, histories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from textevolve.memory.cue import Memory
from textevolve.memory.memory_spec import memory_data, write_time
from textevolve.memory.recall import Recalled
from textevolve.memory.record import MemoryRecord
from textevolve.report import wording
from textevolve.report.blocks import Report, Texts

SHOWN = 1000
"""Characters of a memory in a list."""


def recalled_data(memory: Memory) -> dict[str, Any]:
    """A memory that was found, as JSON-ready data."""
    return asdict(memory)


def draw_recalled(found: Recalled) -> Report:
    """Each with its score, and what that is made of."""
    texts = [
        (
            f"{wording.number(one.score)}  {_say_parts(one)}\n{one.id}  {one.source}",
            wording.clip(one.text, SHOWN),
        )
        for one in found.memories
    ]
    left = {
        "below the minimum score": found.below,
        "beyond the limit": found.over_limit,
        "beyond the budget": found.over_budget,
    }
    told = ", ".join(f"{number} {why}" for why, number in left.items() if number)
    said = f"{len(texts)} of {found.considered} found" + (f"; {told}" if told else "")
    return Report("", said, [Texts("", texts)] if texts else [])


def _say_parts(memory: Memory) -> str:
    parts = dict(memory.parts)
    if memory.similarity is not None:
        parts["similarity"] = memory.similarity
    return ", ".join(f"{name} {wording.number(value)}" for name, value in parts.items())


def draw_memories(collection: str, memories: Sequence[MemoryRecord], all_of_them: int) -> Report:
    texts = [(_head(one), wording.clip(one.text, SHOWN)) for one in memories]
    left = all_of_them - len(memories)
    more = f"; {left:,} earlier ones are shown with --limit or --json" if left else ""
    said = f"{len(memories):,} memories of {collection}{more}"
    return Report("", said, [Texts("", texts)] if texts else [])


def draw_memory(memory: MemoryRecord) -> Report:
    """All that is known of one."""
    facts = {
        name.replace("_", " "): _say(value)
        for name, value in memory_data(memory).items()
        if name != "text" and value not in (None, "", (), [], False)
    }
    return Report("", "", [Texts("", [(memory.id, memory.text)])], facts)


def draw_history(memories: Sequence[MemoryRecord]) -> Report:
    """Each with why it was kept, or why it took another's place."""
    texts = [
        (f"{_head(one)}{f'{chr(10)}{one.reason}' if one.reason else ''}", one.text or "(erased)")
        for one in memories
    ]
    return Report("", "", [Texts("", texts)])


def _head(memory: MemoryRecord) -> str:
    """Id, date and importance, and whether it is held."""
    said = f"{memory.id}  {write_time(memory.created)[:10]}  importance {memory.importance:.2f}"
    if memory.forgotten:
        return f"{said}  forgotten"
    return f"{said}  superseded" if memory.closed is not None else said


def _say(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "; ".join(_say(one) for one in cast(Sequence[Any], value))
    return str(value)
