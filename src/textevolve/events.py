"""Events for listeners, such as a progress display, a trace or a live page.

The code that sends events does not know its listeners. A listener must be quick and must not raise;
it runs on the event loop, between two model calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from textevolve.errors import ModelError
from textevolve.evaluation import Usage, empty_default


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The event that a model call has ended. `replayed`: the answer came from the journal and cost
    nothing. `error`: the message of the error if the call failed; `cause`: the error itself."""

    model: str
    usage: Usage
    seconds: float
    replayed: bool
    error: str | None = None
    cause: ModelError | None = None


@dataclass(frozen=True, slots=True)
class CallRetried:
    """The event that a model call has failed and is repeated after `wait` seconds."""

    model: str
    reason: str
    attempt: int
    wait: float


@dataclass(frozen=True, slots=True)
class CallHeld:
    """The event that model calls are delayed by `wait` seconds. `reason`: the limit that delays
    them, such as "openai's limit of tokens a minute"."""

    model: str
    wait: float
    reason: str


@dataclass(frozen=True, slots=True)
class BatchPolled:
    """The event that a batch job's status was requested: `done` of `total` requests are answered.
    `status`: the provider's own word, empty once the answers have arrived. The next request for the
    status follows after `wait` seconds."""

    model: str
    batch: str
    status: str
    done: int
    total: int
    wait: float


@dataclass(frozen=True, slots=True)
class StepStarted:
    """The event that a step of a case begins. `step`: the kind of step ("turn", "summary");
    `details`: facts about it."""

    case: str
    step: str
    details: Mapping[str, Any] = empty_default(dict)


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The event that a step of a case has ended: a turn, a round, or the whole debate. `value`: its
    result."""

    case: str
    step: str
    value: Any


@dataclass(frozen=True, slots=True)
class RecordsExpected:
    """The event that the number of records of a study is known, or estimated anew; never 0."""

    number: int


Event = (
    CallFinished
    | CallRetried
    | CallHeld
    | BatchPolled
    | StepStarted
    | StepFinished
    | RecordsExpected
)
Listener = Callable[[Event], None]
"""A function that is called with each event."""


def silence(_event: Event) -> None:
    """Ignore an event: the default listener."""


@dataclass(frozen=True, slots=True)
class UsageListener:
    """A listener of finished calls that passes all events on. `hear`: is called with each finished
    call. `rest`: the listener of all events."""

    hear: Callable[[CallFinished], None]
    rest: Listener

    def __call__(self, event: Event) -> None:
        if isinstance(event, CallFinished):
            self.hear(event)
        self.rest(event)


def listener_of_steps(listener: Listener) -> Listener:
    """Return the part of a listener that hears of steps, so that no step is described if nobody
    listens."""
    return listener.rest if isinstance(listener, UsageListener) else listener
