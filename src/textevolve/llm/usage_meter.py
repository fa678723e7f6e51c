"""Measure the usage of a part of a run, such as a judge or a step of a loop, and what it would cost
without stored answers.

A `UsageMeter` sums up the usage of the calls through it. `note_calls` collects every answer within
a block with the key of its request, which distinguishes repeated requests from different ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from textevolve.evaluation import Usage
from textevolve.llm.model import Model, Request, Response

NOTHING = Usage()


class UsageMeter:
    """A model that passes requests on and sums up the answers' `usage` and `seconds`, including
    unusable answers and those from the journal, which count as their original calls."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = model.name
        self.usage = NOTHING
        self.seconds = 0.0

    async def __call__(self, request: Request, /) -> Response:
        response = await self.model(request)
        self.usage = response.usage if self.usage is NOTHING else self.usage + response.usage
        self.seconds += response.seconds
        return response


@dataclass(frozen=True, slots=True)
class NotedCall:
    """The usage and the duration of one answer, even if it came from the journal. `key`: the
    journal's key of the request."""

    key: str
    usage: Usage
    seconds: float


_noted: ContextVar[list[NotedCall] | None] = ContextVar("noted", default=None)


@contextmanager
def note_calls() -> Generator[list[NotedCall]]:
    """Collect the calls that are answered within the block, by a model or from a journal."""
    noted: list[NotedCall] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def note_call(key: str, response: Response) -> Response:
    """Add a call to the enclosing `note_calls` block, if there is one; return its response."""
    noted = _noted.get()
    if noted is not None:
        noted.append(NotedCall(key, response.usage, response.seconds))
    return response


class DistinctCalls:
    """A counter of the usage of distinct requests. Each request counts once, as if it were sent
    with a fresh store, even if the journal or another call answered it."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def count(self, calls: Iterable[NotedCall]) -> tuple[Usage, float]:
        """Return the usage and the seconds of the requests among `calls` that were not counted
        before."""
        usage, seconds = Usage(), 0.0
        for call in calls:
            if call.key not in self._known:
                self._known.add(call.key)
                usage, seconds = usage + call.usage, seconds + call.seconds
        return usage, seconds
