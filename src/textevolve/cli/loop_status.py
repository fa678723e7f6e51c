"""What a person sees while a loop works: a line for each step that ended, one status line below.

Drawn on standard error, so that results can be piped. Off a terminal there are only the lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.status import Status

from textevolve.cli.display import retry_line
from textevolve.cli.drawing import open_console, safe
from textevolve.cli.pace import Slowness, Spent
from textevolve.events import (
    BatchPolled,
    CallFinished,
    CallHeld,
    CallRetried,
    CallSlow,
    Event,
    StepFinished,
    StepStarted,
)
from textevolve.report import wording

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
