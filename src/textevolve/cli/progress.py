"""What a person sees while any study works: its own lines, how far it is, or one debate live."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from textevolve.cli.display import BatchProgress, LiveDebate
from textevolve.cli.drawing import safe
from textevolve.cli.loop_status import LoopStatus
from textevolve.events import Event, Listener, StepFinished, StepStarted
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
