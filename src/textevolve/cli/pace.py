"""The usage of a run's calls so far, how fast it goes, and what it waits for. Nothing is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from textevolve.evaluation import Usage
from textevolve.events import BatchPolled, CallFinished, CallHeld, CallSlow
from textevolve.report import wording


@dataclass
class Spent:
    """The usage of calls so far; calls that the journal answered are counted apart."""

    usage: Usage = field(default_factory=Usage)
    known_cost: float = 0.0
    replayed: int = 0
    retries: int = 0

    def add(self, call: CallFinished) -> None:
        if call.replayed:
            self.replayed += max(1, call.usage.calls)
            return
        self.usage += call.usage
        self.known_cost += call.usage.cost or 0.0

    @property
    def cost(self) -> str:
        """`$0.12`, or `at least $0.12` where a part has no known price."""
        saved = wording.saved_by_caching(self.usage)
        if self.usage.cost is None and self.known_cost:
            return f"at least {wording.money(self.known_cost)}{saved}"
        return f"{wording.money(self.usage.cost)}{saved}"


BUSY = 1.5
"""Threads that want to run for each core, above which a machine has more to do than its model."""
SLOW_SHOWN = 15.0
"""Seconds for which a slow call is shown after it was announced."""


def slow_text(event: CallSlow) -> str:
    """Say why nothing seems to happen."""
    busy = event.load is not None and event.load > BUSY
    what = "the machine is busy" if busy else "the local model takes its time"
    if not event.answered:
        return f"{what}: the first answer is {wording.duration(event.waited)} under way"
    what += f": {wording.count(event.answered, 'answer')} so far"
    return what if event.each is None else f"{what}, {wording.duration(event.each)} each"


class Slowness:
    """The reason why calls take long: a slow local model, a rate limit, or open batch jobs."""

    def __init__(self) -> None:
        self._event: CallSlow | CallHeld | None = None
        self._jobs: dict[str, BatchPolled] = {}
        self._heard = self._polled = -math.inf

    def note(self, event: CallSlow | CallHeld | BatchPolled, now: float) -> None:
        if not isinstance(event, BatchPolled):
            self._event, self._heard = event, now
        elif event.status:
            self._jobs[event.batch], self._polled = event, now
        else:
            self._jobs.pop(event.batch, None)

    def text(self, now: float) -> str:
        event, passed = self._event, now - self._heard
        if isinstance(event, CallHeld) and passed <= event.wait:
            return f"waiting {wording.duration(event.wait - passed)} for {event.reason}"
        if isinstance(event, CallSlow) and passed <= SLOW_SHOWN:
            return slow_text(event)
        if not self._jobs:
            return ""
        done = sum(job.done for job in self._jobs.values())
        total = sum(job.total for job in self._jobs.values())
        ago = wording.duration(now - self._polled)
        name = f"batch job {next(iter(self._jobs))}"
        which = name if len(self._jobs) == 1 else f"{len(self._jobs)} batch jobs"
        return f"waiting for {which}: {done:,} of {total:,} done, polled {ago} ago"


class Pace:
    """A rate that follows the present: an event of `memory` seconds ago weighs 1/e.

    From the start on it is unbiased, since the time that has passed is weighed likewise.
    """

    def __init__(self, now: float, memory: float = 60.0) -> None:
        self.memory = memory
        self._last = now
        self._amount = self._time = 0.0

    def note(self, now: float) -> None:
        self.rate(now)
        self._amount += 1

    def rate(self, now: float) -> float:
        """Events a second; 0 as long as there was none."""
        passed = max(0.0, now - self._last)
        decay = math.exp(-passed / self.memory)
        self._amount *= decay
        self._time = self._time * decay + self.memory * (1 - decay)
        self._last = max(now, self._last)
        return self._amount / self._time if self._time > 0 else 0.0
