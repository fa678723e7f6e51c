"""Events for listeners: a progress display, a trace, a live page.

The rooms announce events and never know who hears them. A listener must be quick and must not
raise; it runs on the event loop, between two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from textevolve.errors import ModelError
from textevolve.evaluation import Usage, empty_default


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A model call has its outcome. `replayed`: it came from the journal and cost nothing.
    `error`: why it failed; `cause`: the error itself."""

    model: str
    usage: Usage
    seconds: float
    replayed: bool
    error: str | None = None
    cause: ModelError | None = None


@dataclass(frozen=True, slots=True)
class CallRetried:
    """A call failed in a way worth another try, which follows after `wait` seconds."""

    model: str
    reason: str
    attempt: int
    wait: float


@dataclass(frozen=True, slots=True)
class CallHeld:
    """Calls wait, for `wait` seconds from now on, until `reason` lets them go on: a rate limit such
    as "openai's limit of tokens a minute"."""

    model: str
    wait: float
    reason: str


@dataclass(frozen=True, slots=True)
class BatchPolled:
    """A batch job was looked at: `done` of `total` requests are answered. `status` is as the
    provider says it; empty once its answers are here. The next look is due after `wait` seconds."""

    model: str
    batch: str
    status: str
    done: int
    total: int
    wait: float


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A piece of a case begins: `step` names it ("turn", "summary"), `details` say which."""

    case: str
    step: str
    details: Mapping[str, Any] = empty_default(dict)


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A piece of a case is done: a turn, a round, a whole debate; `value` is what it made."""

    case: str
    step: str
    value: Any


@dataclass(frozen=True, slots=True)
class RecordsExpected:
    """How many records a study will give in all, as far as is known now; 0 is never said."""

    number: int


@dataclass(frozen=True, slots=True)
class Aside:
    """A step of one of many pieces of work that go on at once: a trace hears it, and displays pass
    it over, since a line for each would be too much."""

    event: StepStarted | StepFinished


Event = (
    CallFinished
    | CallRetried
    | CallHeld
    | BatchPolled
    | StepStarted
    | StepFinished
    | RecordsExpected
    | Aside
)
Listener = Callable[[Event], None]


def silence(_event: Event) -> None:
    """The listener that hears nothing."""
