"""The fields of a memory that a person writes: on the command line, in a program, or as a row of a
file.

`MemorySpec` defines and checks the fields. `desk/memories.py` reads files, and `store`
stores memories.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from textevolve.errors import InputError
from textevolve.evaluation import check_text
from textevolve.memory.record import (
    MemoryKind,
    MemoryRecord,
    NewMemory,
    Origin,
    Relation,
    Vector,
)
from textevolve.spec import Frozen, Several, option
from textevolve.texts.dates import parse_time

LONGEST_TEXT = 20_000
"""The maximum number of characters of one memory; longer texts are read as documents."""
SLACK = 60.0
"""The seconds by which a memory's time of creation may lie in the future, since clocks of machines
differ."""


def take_time(value: Any) -> Any:
    """Convert a date, a date with a time, or a number into seconds since 1970.

    Raises:
        ValueError: a text is none of these.
    """
    if not isinstance(value, str):
        return value
    seconds = parse_time(value)
    if seconds is None:
        raise ValueError(f"'{value[:40]}' is not a date such as 2025-01-31 or 2025-01-31T18:30")
    return seconds


def write_time(seconds: float) -> str:
    """Format a time in UTC, as the options and files of memories accept it."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(seconds)
    return moment.isoformat().replace("+00:00", "Z")


Time: TypeAlias = Annotated[
    float,
    BeforeValidator(take_time),
    WithJsonSchema({"type": ["number", "string"], "description": "Seconds since 1970, or a date."}),
]
"""A time in seconds since 1970, which may be given as a date."""


class MemorySpec(Frozen):
    """A memory written by hand. Times are dates in UTC, such as 2025-01-31T18:30, or seconds since
    1970."""

    text: str = option(
        description="The text of the memory; @FILE reads it from a file, - from standard input.",
        argument=True,
        text="argument",
    )
    importance: float = option(0.5, "The importance of the memory, from 0 to 1.", ge=0, le=1)
    kind: MemoryKind | None = option(
        None, "The kind of the memory; default: the kind of its collection."
    )
    created: Time | None = option(
        None, "The time at which the memory was learned; default: now.", metavar="DATE"
    )
    valid_from: Time | None = option(
        None,
        "The time since which the memory is valid; default: from the beginning.",
        metavar="DATE",
    )
    valid_to: Time | None = option(
        None, "The time until which the memory is valid; default: without end.", metavar="DATE"
    )
    source: str = option("", "The source of the memory: a file, a chat, a page.")
    turn: int | None = option(
        None, "The turn of the source that says it, counted from 1; default: not known.", ge=1
    )
    author: str = option("", "The person who said it.")
    trust: float = option(1.0, "The trust in the source, from 0 to 1.", ge=0, le=1)
    entities: Several = option(
        (), "A person or thing that the memory mentions. Repeatable.", flag="--entity"
    )
    relations: tuple[tuple[str, str, str], ...] = option(
        (), "A relation that the memory states: subject, predicate and object."
    )
    cites: Several = option(
        (), "The id of a memory from which this one follows. Repeatable.", flag="--cite"
    )
    reason: str = option("", "The reason for which the memory is kept.")

    @model_validator(mode="after")
    def _checked(self) -> MemorySpec:
        try:
            check_memory(self.text, self.created)
        except InputError as error:
            raise ValueError(str(error)) from None
        if None not in (self.valid_from, self.valid_to) and self.valid_to <= self.valid_from:  # pyright: ignore[reportOperatorIssue]
            raise ValueError("valid_to must be later than valid_from")
        return self

    def embedded(self, vector: Vector) -> NewMemory:
        """Return the memory to store, with its embedding."""
        composed = {"source", "turn", "author", "trust", "relations"}
        return NewMemory(
            **self.model_dump(exclude=composed),
            embedding=vector,
            origin=Origin(self.source, self.turn, self.author, self.trust),
            relations=tuple(Relation(*relation) for relation in self.relations),
        )


def check_memory(text: str, created: float | None) -> None:
    """Check the text of a new memory and its time of creation.

    Raises:
        InputError: the text is blank, too long or not a string, or the time lies in the future.
    """
    check_text("the text", text)
    if len(text) > LONGEST_TEXT:
        raise InputError(
            f"the text has {len(text):,} characters, and a memory may have {LONGEST_TEXT:,}; add"
            " a longer text as a document: textevolve memories read"
        )
    if created is not None and created > time.time() + SLACK:
        raise InputError(f"created is {write_time(created)}, which is in the future")


def digest_of(spec: MemorySpec) -> bytes:
    """Hash the fields that identify a memory: its text, source, turn, author and times. A memory
    without a time of creation equals one that was created at any time."""
    origin = Origin(spec.source, spec.turn, spec.author)
    return _digest(spec.text, origin, (spec.valid_from, spec.valid_to, spec.created))


def digests_of(memory: MemoryRecord) -> tuple[bytes, bytes]:
    """Return the digests of all specifications from which a stored memory may have been created."""
    valid = (memory.valid_from, memory.valid_to)
    return (
        _digest(memory.text, memory.origin, (*valid, memory.created)),
        _digest(memory.text, memory.origin, (*valid, None)),
    )


def _digest(text: str, origin: Origin, times: tuple[float | None, ...]) -> bytes:
    # Times as written, since a time that was exported and imported differs in its last digit.
    written = [None if time is None else write_time(time) for time in times]
    identity = (text, origin.source, origin.turn, origin.author, *written)
    return hashlib.sha256(repr(identity).encode()).digest()


def memory_data(memory: MemoryRecord) -> dict[str, Any]:
    """Return a memory with its history as JSON-ready data, which `MemorySpec` can read."""
    data = asdict(memory)
    origin = data.pop("origin")
    data["relations"] = [list(relation.values()) for relation in data["relations"]]
    data |= origin
    for name in ("created", "last_used", "valid_from", "valid_to", "superseded_at"):
        data[name] = None if data[name] is None else write_time(data[name])
    return data
