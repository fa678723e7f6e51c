"""What a run's calls have used so far, and how fast it goes. Nothing here draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from textevolve.evaluation import Usage
from textevolve.events import BatchPolled, CallFinished, CallHeld, CallSlow
from textevolve.report import wording


@dataclass
class Spent:
    """What calls have used so far; calls that the journal answered are counted apart."""

    usage: Usage = field(default_factory=Usage)
    known_cost: float = 0.0
    replayed: int = 0
    failed: int = 0
    retries: int = 0

    def add(self, call: CallFinished) -> None:
        if call.replayed:
            self.replayed += max(1, call.usage.calls)
            return
        self.failed += call.error is not None
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
SLOW_SHOWN, SLOW_LINE_EVERY = 15.0, 60.0
"""Seconds for which a slow call is shown after it was announced, and between two lines about it."""


def slow_text(event: CallSlow, done: int = 0, total: int = 0) -> str:
    """Why nothing seems to happen; `done` and `total`: answers of the step, where that is known."""
    busy = event.load is not None and event.load > BUSY
    what = "the machine is busy" if busy else "the local model takes its time"
    if total:
        what += f": {done} of {total} answers"
    elif event.answered:
        what += f": {wording.count(event.answered, 'answer')} so far"
    else:
        return f"{what}: the first answer is {wording.duration(event.waited)} under way"
    return what if event.each is None else f"{what}, {wording.duration(event.each)} each"


class Slowness:
    """What there is to say about slow calls, for a while after each was announced, about calls that
    wait for a rate limit, until they go on, and about batch jobs, until they end."""

    def __init__(self) -> None:
        self._event: CallSlow | CallHeld | None = None
        self._jobs: dict[str, BatchPolled] = {}
        self._heard = self._polled = self._printed = -math.inf

    def note(self, event: CallSlow | CallHeld | BatchPolled, now: float) -> bool:
        """Whether a line is due where nothing is drawn anew."""
        if isinstance(event, BatchPolled):
            self._jobs.pop(event.batch, None)
            if event.status:
                self._jobs[event.batch], self._polled = event, now
        else:
            self._event, self._heard = event, now
        due = now - self._printed >= SLOW_LINE_EVERY
        self._printed = now if due else self._printed
        return due

    def text(self, now: float, done: int = 0, total: int = 0) -> str:
        event, passed = self._event, now - self._heard
        if isinstance(event, CallHeld) and passed <= event.wait:
            left = wording.duration(max(0.0, event.wait - passed))
            return f"waiting {left} for {event.reason}"
        if isinstance(event, CallSlow) and passed <= SLOW_SHOWN:
            return slow_text(event, done, total)
        if not self._jobs:
            return ""
        done = sum(job.done for job in self._jobs.values())
        total = sum(job.total for job in self._jobs.values())
        ago = wording.duration(now - self._polled)
        name = f"batch job {next(iter(self._jobs))}"
        which = name if len(self._jobs) == 1 else f"{len(self._jobs)} batch jobs"
        return f"waiting for {which}: {done:,} of {total:,} done, polled {ago} ago"


class Pace:
    """A rate that follows the present: events a second, older ones weighing less and less.

    An event of `memory` seconds ago weighs 1/e. From the start on it is unbiased, since the time
    that has passed is weighed likewise.
    """

    def __init__(self, now: float, memory: float = 60.0) -> None:
        self.memory = memory
        self._last = now
        self._amount = self._time = 0.0

    def note(self, now: float, amount: float = 1.0) -> None:
        self._pass(now)
        self._amount += amount

    def rate(self, now: float) -> float:
        """Events a second; 0 as long as there was none."""
        self._pass(now)
        return self._amount / self._time if self._time > 0 else 0.0

    def _pass(self, now: float) -> None:
        passed = max(0.0, now - self._last)
        kept = math.exp(-passed / self.memory)
        self._amount *= kept
        self._time = self._time * kept + self.memory * (1 - kept)
        self._last = max(now, self._last)
