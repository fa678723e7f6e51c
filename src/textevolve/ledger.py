"""The ledger of a command: the parts of its input that it does not use.

A run collects the notes while it reads its cases, keeps them with its specification, and shows them
at its end. Where no run collects them, each is logged as a warning at once.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

log = logging.getLogger("textevolve")
"""The log of the package."""

BEGINNING = "left out: "
"""The beginning of the sentences of `leave_out`."""
_notes: ContextVar[dict[str, None] | None] = ContextVar("left_out", default=None)


def leave_out(noun: str, reason: str, number: int = 1) -> None:
    """Record that something given is not used. `noun`: what it is, such as "column"; `reason`: a
    clause that names it and says why; `number`: how many; nothing is recorded of 0."""
    if number:
        note_line(f"{BEGINNING}{number:,} {noun}{'' if number == 1 else 's'}: {reason}")


def note_line(sentence: str) -> None:
    """Record a sentence about what was given to a command. The same one is recorded once."""
    notes = _notes.get()
    if notes is None:
        log.warning(sentence)
    else:
        notes[sentence] = None


@contextmanager
def collect_notes() -> Generator[dict[str, None]]:
    """Collect the notes of the block, in their order, instead of logging them."""
    notes: dict[str, None] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)
