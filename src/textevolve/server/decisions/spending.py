"""What one request takes: which calls were made for it, and why calls failed.

Calls are announced in the task of the request, or in tasks that it began, so a context variable
tells whose they are, whatever judge is between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from textevolve.evaluation import Usage
from textevolve.events import CallFinished, Event


@dataclass
class RequestSpending:
    """`usage`: of calls that were made now; those that the journal answered cost nothing and are
    counted in `replayed`. `causes`: what kept questions from being answered."""

    usage: Usage = Usage()
    replayed: int = 0
    causes: list[Exception] = field(default_factory=list[Exception])


_current: ContextVar[RequestSpending | None] = ContextVar("spending", default=None)


@contextmanager
def spending(note: Callable[[int], None] = lambda _tokens: None) -> Generator[RequestSpending]:
    """Adds up what is spent within the block; `note` hears of all its tokens at the end."""
    found = RequestSpending()
    before = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(before)
        note(found.usage.tokens)


def note_event(event: Event) -> None:
    """The listener of a server's workbench."""
    found = _current.get()
    if found is None or not isinstance(event, CallFinished):
        return
    if event.replayed:
        found.replayed += 1
    else:
        found.usage += event.usage
    if event.cause is not None:
        found.causes.append(event.cause)


def note_cause(error: Exception) -> None:
    """Why a question has no answer, where it is an error that no call announced."""
    if (found := _current.get()) is not None:
        found.causes.append(error)
