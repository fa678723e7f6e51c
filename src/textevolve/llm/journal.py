"""The journal as models use it; `textevolve.store.journal` stores one on disk.

The outcome of each call is appended durably before it is used. Runs are resumed, replayed and
priced by reading the journal; there are no other checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from textevolve.llm.model import Request, Response


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A finished call. Exactly one of `response` and `error` is set.

    Attributes:
        key: The hash of the model's name and the whole request.
        model: The spec of the model.
        error: The message of the final error.
        started: Unix time.
        seconds: The duration of the call.
        attempts: The number of attempts, including failed ones.
    """

    key: str
    model: str
    request: Request
    response: Response | None
    error: str | None
    started: float
    seconds: float
    attempts: int


class Journal(Protocol):
    """The store of all model calls of a run, which answers repeated calls."""

    async def find(self, key: str) -> Response | None:
        """Return the stored answer for a key, marked as replayed; None if there is none, also if
        the call was stored with an error."""
        ...

    async def append(self, entry: JournalEntry) -> None:
        """Store an entry, and return once it is durable. Raises StoreError if it cannot
        be stored."""
        ...
