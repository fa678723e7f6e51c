"""Find memories of a collection that a person should look at: duplicates, other values of one
statement, texts that are not understood alone, memories of little trust, and unused ones.

The checks are rules and similarities of embeddings, without a model; they change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from textevolve.memory.record import MemoryMatch, MemoryRecord
from textevolve.memory.sameness import (
    adds_details,
    details_of,
    nearly_same,
    speaks_to_somebody,
    words_of,
)
from textevolve.texts.dates import resolve_phrases

LOW_TRUST = 0.5
ALIKE = 0.9
"""The cosine from which two memories without other names and numbers are probably duplicates."""
UNUSED_DAYS = 30
"""The days after which a memory that no chat recalled counts as unused."""
NEIGHBOURS = 5

_DEPENDENT = re.compile(
    r"^(?:he|she|it|they|this|that|these|those|there|er|sie|es|dies\w*|das)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A memory to look at. `other`: the memory that it repeats or may contradict, or the closed one
    that it rests on. `forget`: whether nothing is lost if it is forgotten."""

    memory: MemoryRecord
    reason: Literal[
        "duplicate",
        "similar",
        "other value",
        "not self-contained",
        "low trust",
        "never recalled",
        "rests on a closed one",
    ]
    other: MemoryRecord | None = None
    forget: bool = False


def audit_memory(
    memory: MemoryRecord, near: Sequence[MemoryMatch], *, recalls: bool, now: float
) -> Iterator[AuditFinding]:
    """Yield what is odd about a memory. `near`: the most similar current memories of its
    collection. `recalls`: whether any memory of the collection was ever recalled; otherwise none
    counts as unused. `now`: in seconds since 1970."""
    for match in near:
        other = match.memory
        # Each pair is reported once, at the memory that is less trusted or later.
        if other.user != memory.user or _rank(memory) < _rank(other):
            continue
        if nearly_same(memory.text, other.text):
            yield AuditFinding(memory, "duplicate", other, forget=True)
        elif _differs_in_details(memory.text, other.text):
            yield AuditFinding(memory, "other value", other)
        elif (match.similarity or 0.0) >= ALIKE and _has_same_details(memory.text, other.text):
            yield AuditFinding(memory, "similar", other)

    moment = datetime.fromtimestamp(memory.created, UTC)
    is_undated = resolve_phrases(memory.text, moment) != memory.text
    if is_undated or _DEPENDENT.search(memory.text) or speaks_to_somebody(memory.text):
        yield AuditFinding(memory, "not self-contained")
    if memory.origin.trust < LOW_TRUST:
        yield AuditFinding(memory, "low trust")
    if recalls and not memory.times_used and memory.created < now - UNUSED_DAYS * 86_400:
        yield AuditFinding(memory, "never recalled")


def _rank(memory: MemoryRecord) -> tuple[float, float, str]:
    return -memory.origin.trust, memory.created, memory.id


def _has_same_details(text: str, other: str) -> bool:
    return adds_details(text, other) == "no" and adds_details(other, text) == "no"


def _differs_in_details(text: str, other: str) -> bool:
    """Return whether two texts are one statement with other names or numbers, as in Mia lives in
    Oslo and Mia lives in Bergen; one name at least is the same."""
    details = details_of(text)
    others = details_of(other)
    statements = [
        [word for word in words_of(each) if word not in details | others] for each in (text, other)
    ]
    return bool(details & others) and details != others and statements[0] == statements[1]
