"""What a person sees while any study works: its own lines, and how far it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from textevolve.cli.display import BatchProgress
from textevolve.cli.loop_status import LoopStatus
from textevolve.events import Listener
from textevolve.store.runs import RunRecord
from textevolve.studies.study import AnyStudy, no_note


@dataclass(frozen=True)
class Progress:
    """Hears the events of a study, and counts its records where they are results."""

    listener: Listener
    bar: BatchProgress | None = None

    def count(self, status: str) -> None:
        if self.bar is not None:
            self.bar.count(status)


def open_progress(stack: ExitStack, study: AnyStudy, run: RunRecord, *, quiet: bool) -> Progress:
    """A line for each step that the study notes; a bar where its records tell all that there is.

    There are as many records as cases, unless the study says otherwise (`RecordsExpected`)."""
    if study.streams or study.note is no_note:
        bar = stack.enter_context(BatchProgress(run.n_cases))
        return Progress(bar, bar)
    status: Any = stack.enter_context(LoopStatus(study.note, quiet=quiet))
    return Progress(status)
