"""Files of memories, as rows: our own exports, and tables of texts.

Memories are made of documents and chat logs by studies of their own; here it is said by which.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.memory.cue import Memory
from textevolve.memory.memory_spec import MemorySpec, memory_data, write_time
from textevolve.memory.recall import Recalled
from textevolve.memory.record import Entity, MemoryRecord
from textevolve.report import wording
from textevolve.report.blocks import Column, Report, Table, Texts
from textevolve.rows import STANDARD_INPUT, Placed, Row, read_rows
from textevolve.rows.columns import CHATS

TEXTS = ("text", "source", "author", "created", "valid_from", "valid_to", "reason", "id")
"""Columns of tables that are never read as JSON."""
KEPT = (
    *("id", "collection", "last_used", "times_used", "supersedes", "superseded_by"),
    *("superseded_at", "added", "closed", "forgotten"),
)
"""Fields of an exported memory that belong to its first home. Memories that were closed there are
passed over."""


def read_memory_rows(path: str) -> Iterator[MemorySpec]:
    """The memories of a file of rows, such as {"text": "...", "importance": 0.7}; `-` is JSON lines
    from standard input.

    Raises:
        InputError: it cannot be read, or a row is no memory; says where.
    """
    for where, row in _rows(path):
        if not row.get("closed"):
            yield read_memory(where, row)


def read_memory(where: str, row: Row) -> MemorySpec:
    """One row as a memory.

    Raises:
        InputError: it is none; says where.
    """
    if any(name in row for name in CHATS):
        raise InputError(
            f"{where}: is a chat; memories are made of it with: textevolve memories create"
        )
    given = {name: value for name, value in row.items() if name not in KEPT and value is not None}
    try:
        return MemorySpec(**given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _rows(path: str) -> Iterator[Placed]:
    ending = Path(path).suffix.lower()
    if path != STANDARD_INPUT and ending in (".txt", ".md", ".html", ".pdf", ".docx", ".rst"):
        raise InputError(f"{path}: a document is read with: textevolve memories read")
    for where, row in read_rows(path, "memory", lambda column: column in TEXTS):
        yield where, {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    """A cell of a table as it was: lists were written as JSON."""
    lists = name in ("entities", "relations", "cites")
    if lists and isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return value


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


def draw_graph(collection: str, entities: Sequence[Entity]) -> Report:
    """A row for each entity, with those that are mentioned together with it."""
    columns = [Column("entity"), Column("memories", "count"), Column("mentioned together with")]
    rows = [
        (
            entity.name,
            len(entity.memories),
            ", ".join(f"{name} ({n})" for name, n in islice(entity.neighbours.items(), 5)),
        )
        for entity in entities
    ]
    sentence = f"{len(rows):,} entities in the memories of {collection}"
    return Report("", sentence, [Table("", columns, rows)] if rows else [])


def draw_mentions(entity: Entity, memories: Sequence[MemoryRecord]) -> Report:
    """The memories that mention an entity: when, what, from where, and who else."""
    texts = [
        (
            f"{memory.id}  {write_time(memory.valid_from or memory.created)[:10]}"
            f"  {memory.origin.source}\n{', '.join(memory.entities)}",
            wording.clip(memory.text, SHOWN),
        )
        for memory in memories
    ]
    return Report("", f"{len(texts):,} of the memories mention {entity.name}", [Texts("", texts)])


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
