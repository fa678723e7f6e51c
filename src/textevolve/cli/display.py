"""The display of a run while it is performed, drawn from the run's events.

A terminal shows a status line at the bottom; other outputs get plain lines from time to time,
without control codes. It either counts records, or prints the steps that the study describes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Self, TypeAlias

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from textevolve.cli.drawing import open_console
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
from textevolve.report.terminal_tables import safe
from textevolve.runs.study import AnyStudy, no_note
from textevolve.store.runs import RunRecord
from textevolve.studies.judged_report import LiveDebate

Describe: TypeAlias = Callable[[Event], str | Report | None]
"""A function that describes an event: a step that starts as a status, one that has ended as a line,
or either as a report; None if the event is not shown."""
REDRAWN_PER_SECOND = 8
LINE_EVERY, WAIT_EVERY = 10.0, 60.0
"""The seconds between two plain lines of a count, and between two lines about waiting."""


class Progress:
    """A listener and context manager that shows the progress of a run.

    Unless `note` describes steps, the caller counts every record by `count`. `total`: the number of
    cases; None if it is not known. `quiet`: before the end nothing is shown except steps that
    `note` describes by a report.
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
        self._note, self._every = note, WAIT_EVERY if note else every
        self._began = clock()
        self._printed = -math.inf if note else self._began
        self._usage, self._replayed, self._retries, self._judged = Usage(), 0, 0, 0
        self._step, self._wait, self._wait_ends = "", "", -math.inf
        self._live: Live | None = None
        self._spinner = Spinner("dots")

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal and not self.quiet:
            self._live = Live(
                get_renderable=self._draw,
                console=self.console,
                transient=True,
                refresh_per_second=REDRAWN_PER_SECOND,
                # Results printed above the line; else into the file or pipe that asked for them.
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
        match event:
            case CallFinished(replayed=True):
                self._replayed += max(1, event.usage.calls)
            case CallFinished():
                self._usage += event.usage
            case CallRetried() | CallHeld() | BatchPolled():
                self._retries += isinstance(event, CallRetried)
                self._wait = describe_wait(event)
                self._wait_ends = self.clock() + event.wait
            case RecordsExpected():
                self.total = event.number
            case StepStarted() | StepFinished() if self._note is not None:
                self._take_step(self._note(event), started=isinstance(event, StepStarted))
            case _:
                pass
        self._print_line()

    def count(self, status: str) -> None:
        """Count one more record by its status."""
        self.counts[status] = self.counts.get(status, 0) + 1
        # Replayed cases predict nothing about the others.
        self._judged += bool(self._usage.calls or not self._replayed)
        self._print_line()

    def _take_step(self, text: str | Report | None, *, started: bool) -> None:
        if isinstance(text, Report):
            print_report(text, self.console)
        elif started:
            self._step = text or self._step
        elif text and not self.quiet:
            self.console.print(safe(text))

    @property
    def seconds_left(self) -> float | None:
        """Return the time left at the current pace, in seconds; None if it is unknown."""
        if self.total is None or not self._judged:
            return None
        passed = self.clock() - self._began
        return (self.total - sum(self.counts.values())) * passed / self._judged

    @property
    def wait(self) -> str:
        """Return the reason why the run is waiting; empty if it is not."""
        return self._wait if self.clock() < self._wait_ends else ""

    def line(self, *, final: bool = False) -> str:
        """Return the progress in one line of plain text."""
        usage, done = self._usage, sum(self.counts.values())
        parts = [self._step]
        if self._note is None:
            parts = [f"{done:,} done" if self.total is None else f"{done:,} of {self.total:,} done"]
            parts += [
                f"{n:,} {status}" for status, n in self.counts.items() if n and status != "scored"
            ]
        parts += [wording.count(usage.calls, "call"), wording.tokens(usage)]
        parts.append(f"{wording.money(usage.cost)}{wording.saved_by_caching(usage)}")
        parts.append(wording.other_models(usage))
        parts.append(f"{self._replayed:,} replayed" if self._replayed else "")
        parts.append(f"{self._retries:,} retried" if self._retries else "")
        seconds_left = self.seconds_left
        if not final and seconds_left is not None:
            parts.append(f"{wording.duration(seconds_left)} left")
        else:
            parts.append(wording.duration(self.clock() - self._began))
        parts.append("" if final else self.wait)
        return ", ".join(filter(None, parts))

    def _print_line(self) -> None:
        now = self.clock()
        if self._live is not None or self.quiet or now - self._printed < self._every:
            return
        if text := self.line() if self._note is None else self.wait:
            self._printed = now
            self.console.print(safe(text), soft_wrap=True)

    def _draw(self) -> Spinner:
        self._spinner.update(text=safe(self.line(), "dim"))
        return self._spinner


def describe_wait(event: CallRetried | CallHeld | BatchPolled) -> str:
    """Describe why a run is waiting; empty once the answers of a batch job have arrived."""
    match event:
        case CallRetried():
            reason = wording.shorten(event.reason.removeprefix(f"{event.model}: "), 160)
            wait = wording.duration(event.wait)
            return f"{event.model}: {reason}; attempt {event.attempt + 1} in {wait}"
        case CallHeld():
            return f"waiting {wording.duration(event.wait)} for {event.reason}"
        case BatchPolled():
            done = f"{event.done:,} of {event.total:,} done"
            return f"waiting for batch job {event.batch}: {done}" if event.status else ""


def open_progress(study: AnyStudy, run: RunRecord, *, quiet: bool) -> Progress:
    """Return the display of a run. It shows the steps that the study describes, the debate if there
    is a single case, or a count of records. `quiet`: the lines of steps and the debate are not
    shown; a count is."""
    if study.note is not no_note:
        return Progress(note=study.note, quiet=quiet)
    if study.streams and run.n_cases == 1 and not quiet:
        return Progress(note=LiveDebate(), console=open_console())
    return Progress(run.n_cases)
