"""The journal as the models see it; `textevolve.store.journal` keeps one on disk.

An outcome is appended, and durable, before anyone acts on it. Reading the journal back is how a run
is resumed, replayed and costed: there is no second checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from textevolve.llm.model import Request, Response


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One finished call. Exactly one of `response` and `error` is set. `started` is Unix time."""

    key: str
    model: str
    request: Request
    response: Response | None
    error: str | None
    started: float
    seconds: float
    attempts: int


class Journal(Protocol):
    async def find(self, key: str) -> Response | None:
        """Return the stored answer for a key, marked as replayed; None if there is none."""
        ...

    async def append(self, entry: JournalEntry) -> None:
        """Store an entry, and return once it is durable. Raises StoreError if it cannot
        be stored."""
        ...
