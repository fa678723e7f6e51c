"""The display of a run while it works, made from its events.

On a terminal a moving part stands at the bottom; elsewhere plain lines are printed, without control
codes. Either records are counted, or the steps of a study that describes them are told.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.text import Text

from textevolve.cli.drawing import open_console, safe
from textevolve.evaluation import Usage
from textevolve.events import (
    BatchPolled,
    CallFinished,
    CallHeld,
    CallRetried,
    Event,
    RecordsExpected,
    StepFinished,
    StepStarted,
)
from textevolve.report import wording
from textevolve.report.blocks import Report
from textevolve.report.terminal import print_report
from textevolve.store.runs import RunRecord
from textevolve.studies.live_debate import LiveDebate
from textevolve.studies.study import AnyStudy, no_note

Describe: TypeAlias = Callable[[Event], str | Report | None]
"""Describes a step: one that starts as a status, one that ended as a line, or any as a report."""
REDRAWN_PER_SECOND = 8
LINE_EVERY, SLOW_EVERY = 10.0, 60.0
"""Seconds between two plain lines of a count, and about slow calls between steps."""


class Progress:
    """A listener and a context manager that shows how far a run is.

    Without `note` call `count` for every record; `total` is None if the number of cases is not
    known. `quiet`: of steps only retries are printed.
    """

    def __init__(
        self,
        total: int | None = None,
        note: Describe | None = None,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        every: float = LINE_EVERY,
    ) -> None:
        self.console = console or open_console(stderr=True)
        self.total, self.quiet, self.clock = total, quiet, clock
        self.counts = {"scored": 0, "failed": 0, "skipped": 0}
        self._note, self._every = note, SLOW_EVERY if note else every
        self._began = clock()
        self._printed = -math.inf if note else self._began
        self._spent, self._slow, self._asked = Spent(), Slowness(), 0
        self._step, self._retry, self._retried = "", "", -math.inf
        self._live: Live | None = None
        self._spinner = Spinner("dots")

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal and not self.quiet:
            self._live = Live(
                get_renderable=self._moving,
                console=self.console,
                transient=True,
                refresh_per_second=REDRAWN_PER_SECOND,
                # Results printed above the bar; else into the file or pipe that asked for them.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._note is None:
            self.console.print(Text(self.line(final=True)), soft_wrap=True)

    def __call__(self, event: Event) -> None:
        now = self.clock()
        match event:
            case CallFinished():
                self._spent.add(event)
            case CallRetried():
                self._take_retry(event, now)
            case CallHeld() | BatchPolled():
                self._slow.note(event, now)
            case RecordsExpected():
                self.total = event.number
            case StepStarted() | StepFinished() if self._note is not None:
                self._take_step(self._note(event), started=isinstance(event, StepStarted))
            case _:
                pass
        self._print_line(now)

    def count(self, status: str) -> None:
        """Count one more record by how it ended."""
        now = self.clock()
        self.counts[status] = self.counts.get(status, 0) + 1
        # Replayed cases say nothing about the rest.
        self._asked += bool(self._spent.usage.calls or not self._spent.replayed)
        self._print_line(now)

    def _take_retry(self, event: CallRetried, now: float) -> None:
        self._spent.retries += 1
        reason = wording.shorten(event.reason.removeprefix(f"{event.model}: "), 160)
        wait = wording.duration(event.wait)
        self._retry = f"{event.model}: {reason}; attempt {event.attempt + 1} in {wait}"
        self._retried = now
        if self._note is not None:
            self.console.print(safe(self._retry, "dim"))

    def _take_step(self, told: str | Report | None, *, started: bool) -> None:
        if isinstance(told, Report):
            print_report(told, self.console)
        elif started:
            self._step = told or self._step
        elif told and not self.quiet:
            self.console.print(safe(told))

    @property
    def seconds_left(self) -> float | None:
        """The time left by the pace so far; None while there is none."""
        if self.total is None or not self._asked:
            return None
        passed = self.clock() - self._began
        return (self.total - sum(self.counts.values())) * passed / self._asked

    def line(self, *, final: bool = False) -> str:
        """Everything in one line of plain text."""
        now, spent = self.clock(), self._spent
        passed, done = now - self._began, sum(self.counts.values())
        parts = [f"{done:,} done" if self.total is None else f"{done:,} of {self.total:,} done"]
        parts += [f"{n:,} {what}" for what, n in self.counts.items() if n and what != "scored"]
        if final or passed <= 0:
            parts += [wording.count(spent.usage.calls, "call"), wording.tokens(spent.usage)]
        else:
            parts.append(f"{spent.usage.calls / passed:.1f} calls/s")
            parts.append(f"{spent.usage.tokens / passed:,.0f} tokens/s")
        parts += [spent.cost, wording.other_models(spent.usage)]
        parts.append(f"{spent.replayed:,} replayed" if spent.replayed else "")
        if spent.retries:
            parts.append("1 retry" if spent.retries == 1 else f"{spent.retries:,} retries")
        left = self.seconds_left
        if final:
            parts.append(wording.duration(passed))
        else:
            parts.append("" if left is None else f"{wording.duration(left)} left")
            parts.append(self._slow.text(now))
            if self._live is None and self._retry:
                parts.append(f"last retry: {self._retry}")
        return ", ".join(filter(None, parts))

    def _print_line(self, now: float) -> None:
        text = self.line() if self._note is None else self._slow.text(now)
        if text and self._live is None and not self.quiet and now - self._printed >= self._every:
            self._printed = now
            self.console.print(Text(text), soft_wrap=True)

    def _moving(self) -> RenderableType:
        now = self.clock()
        if self._note is not None:
            calls = wording.count(self._spent.usage.calls + self._spent.replayed, "call")
            parts = [f"{calls}, {self._spent.cost}, {wording.duration(now - self._began)}"]
            parts += filter(None, [self._slow.text(now)])
            self._spinner.update(text=safe(f"{self._step}  {'; '.join(parts)}", "dim"))
            return self._spinner
        bar = ProgressBar(
            total=self.total,
            completed=sum(self.counts.values()),
            width=min(self.console.width, 60),
            pulse=self.total is None,
            animation_time=now,
        )
        retry = f"last retry: {self._retry}" if now - self._retried < self._every else ""
        return Group(bar, Text(self.line()), safe(retry, "dim"))


def open_progress(stack: ExitStack, study: AnyStudy, run: RunRecord, *, quiet: bool) -> Progress:
    """Open the display of a run: the steps that its study describes, the debate over a single case,
    or a count of the records."""
    if study.note is not no_note:
        display = Progress(note=study.note, quiet=quiet)
    elif study.streams and run.n_cases == 1 and not quiet:
        display = Progress(note=LiveDebate(), console=open_console())
    else:
        display = Progress(run.n_cases)
    return stack.enter_context(display)


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


class Slowness:
    """The reason why calls take long: a rate limit, or open batch jobs."""

    def __init__(self) -> None:
        self._event: CallHeld | None = None
        self._jobs: dict[str, BatchPolled] = {}
        self._heard = self._polled = -math.inf

    def note(self, event: CallHeld | BatchPolled, now: float) -> None:
        if not isinstance(event, BatchPolled):
            self._event, self._heard = event, now
        elif event.status:
            self._jobs[event.batch], self._polled = event, now
        else:
            self._jobs.pop(event.batch, None)

    def text(self, now: float) -> str:
        event, passed = self._event, now - self._heard
        if event is not None and passed <= event.wait:
            return f"waiting {wording.duration(event.wait - passed)} for {event.reason}"
        if not self._jobs:
            return ""
        done = sum(job.done for job in self._jobs.values())
        total = sum(job.total for job in self._jobs.values())
        ago = wording.duration(now - self._polled)
        name = f"batch job {next(iter(self._jobs))}"
        which = name if len(self._jobs) == 1 else f"{len(self._jobs)} batch jobs"
        return f"waiting for {which}: {done:,} of {total:,} done, polled {ago} ago"
