"""What a person sees while any study works: its own lines, how far it is, or one debate live."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.status import Status

from textevolve.cli.display import BatchProgress, LiveDebate, retry_line
from textevolve.cli.drawing import open_console, safe
from textevolve.cli.pace import Slowness, Spent
from textevolve.events import (
    BatchPolled,
    CallFinished,
    CallHeld,
    CallRetried,
    CallSlow,
    Event,
    Listener,
    StepFinished,
    StepStarted,
)
from textevolve.report import wording
from textevolve.store.runs import RunRecord
from textevolve.studies.study import AnyStudy, no_note


@dataclass(frozen=True)
class ProgressLine:
    """Hears the events of a study, and counts its records where they are results."""

    listener: Listener
    bar: BatchProgress | None = None

    def count(self, status: str) -> None:
        if self.bar is not None:
            self.bar.count(status)


class OneCase:
    """Hears the events of a run over one case: a debate that begins is drawn live, and anything
    else is a bar of one case."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._live: LiveDebate | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "debate" and self._live is None:
            live = LiveDebate(event.details["case"], event.details["profile"])
            self._live = self._stack.enter_context(live)
        elif self._live is not None:
            self._live(event)
            if isinstance(event, StepFinished) and event.step == "debate":
                self._live = None


def open_progress(
    stack: ExitStack, study: AnyStudy, run: RunRecord, *, quiet: bool
) -> ProgressLine:
    """A line for each step that the study notes; a bar where its records tell all that there is.

    There are as many records as cases, unless the study says otherwise (`RecordsExpected`). Of a
    single case that is debated the debate itself is shown."""
    if study.note is no_note and study.streams and run.n_cases == 1 and not quiet:
        return ProgressLine(OneCase(stack))
    if study.note is no_note:
        bar = stack.enter_context(BatchProgress(run.n_cases))

        def hear(event: Event) -> None:
            bar(event)
            if line := study.note(event):
                bar.console.print(safe(line))

        return ProgressLine(hear, bar)
    status: Any = stack.enter_context(LoopStatus(study.note, quiet=quiet))
    return ProgressLine(status)


Describe = Callable[[StepStarted | StepFinished], str | None]
"""What to say of a step: of one that starts in the status line, of one that ended as a line."""


class LoopStatus:
    """A `Listener` and a context manager. `quiet`: nothing is drawn but retries."""

    def __init__(self, describe: Describe, *, quiet: bool = False) -> None:
        self.console = open_console(stderr=True)
        self.spent = Spent()
        self._describe = describe
        self._quiet = quiet
        self._text = ""
        self._slow = Slowness()
        self._began = time.monotonic()
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal and not self._quiet:
            self._status = self.console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case CallFinished():
                self.spent.add(event)
            case CallRetried():
                self.console.print(retry_line(event))
            case CallSlow() | CallHeld() | BatchPolled():
                now = time.monotonic()
                if self._slow.note(event, now) and self._status is None and not self._quiet:
                    self.console.print(safe(self._slow.text(now), "dim"))
            case StepStarted():
                self._text = self._describe(event) or self._text
            case StepFinished():
                line = self._describe(event)
                if line and not self._quiet:
                    self.console.print(safe(line))
            case _:
                pass
        self._draw()

    def _draw(self) -> None:
        if self._status is not None:
            calls = self.spent.usage.calls + self.spent.replayed
            took = wording.duration(time.monotonic() - self._began)
            state = f"{wording.count(calls, 'call')}, {self.spent.cost}, {took}"
            if slow := self._slow.text(time.monotonic()):
                state += f"; {slow}"
            self._status.update(safe(f"{self._text}  {state}", "dim"))
