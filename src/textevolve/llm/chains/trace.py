"""The trace of a chain's steps: a tree with the time, the calls and the error of each."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from textevolve.evaluation import Usage
from textevolve.events import Listener, StepFinished, StepStarted

CHAIN_STEP = "chain step"
"""The `step` of the events that a chain announces; their details have its `path` and `kind`."""


@dataclass(frozen=True)
class StepTrace:
    """The trace of a step. `seconds`: its duration; `began`: seconds after the chain began.
    `usage`: of all calls within it. `note`: the model that was asked, the case that was chosen.
    `error`: why it ended without a value."""

    name: str
    kind: str
    began: float = 0.0
    seconds: float = 0.0
    usage: Usage = Usage()
    note: str = ""
    error: str = ""
    steps: tuple[StepTrace, ...] = ()


class TraceRecorder:
    """Records a step while it runs; `trace` is its trace so far."""

    def __init__(self, name: str, kind: str, parent: TraceRecorder | None = None) -> None:
        self.name, self.kind, self.parent = name, kind, parent
        self.path = name if parent is None else f"{parent.path}/{name}"
        self.start = time.perf_counter()
        self.origin = self.start if parent is None else parent.origin
        self.seconds: float | None = None
        self.usage, self.note, self.error = Usage(), "", ""
        self.inner: list[TraceRecorder] = []
        if parent is not None:
            parent.inner.append(self)

    def add(self, usage: Usage) -> None:
        self.usage += usage
        if self.parent is not None:
            self.parent.add(usage)

    @property
    def trace(self) -> StepTrace:
        passed = time.perf_counter() - self.start if self.seconds is None else self.seconds
        return StepTrace(
            self.name,
            self.kind,
            self.start - self.origin,
            passed,
            self.usage,
            self.note,
            self.error,
            tuple(one.trace for one in self.inner),
        )


@contextmanager
def recording(recorder: TraceRecorder, case: str, listener: Listener) -> Generator[None]:
    """Announces a step's beginning and end, and keeps why it failed, or was cancelled."""
    details = {"path": recorder.path, "kind": recorder.kind}
    listener(StepStarted(case, CHAIN_STEP, details))
    try:
        yield
    except BaseException as error:
        recorder.error = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise
    finally:
        recorder.seconds = time.perf_counter() - recorder.start
        listener(StepFinished(case, CHAIN_STEP, (recorder.path, recorder.trace)))
