"""The door to tracing: work opens spans here, at no cost where nothing is traced.

A span is opened below the current one of its context, so that tasks which run side by side nest
their spans each for itself. `textevolve.tracing` makes them with OpenTelemetry, which is not
loaded before a run is traced.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Literal, Protocol, TypeAlias, TypeVar

R = TypeVar("R")
LOOP = "eval_opt"
"""Begins the names of loops' spans and of their attributes."""

SpanKind: TypeAlias = Literal[
    "run", "case", "part", "loop", "step", "agent", "model", "judge", "node", "recall", "remember"
]


class Span(Protocol):
    """A piece of work that is traced, or the root of all of them."""

    def open(
        self, kind: SpanKind, name: str, facts: Mapping[str, object], /
    ) -> AbstractContextManager[Span]:
        """Open a span below this one, which is the current one of its block."""
        ...

    def follow(
        self, name: str, facts: Mapping[str, object], records: AsyncGenerator[R]
    ) -> AsyncGenerator[R]:
        """Yield what a run yields, which works below a span that its reader does not work below."""
        ...

    def note(self, **facts: object) -> None:
        """Set attributes; what is None is left out, and texts are set where they are recorded."""
        ...

    def count(self, **numbers: int) -> None:
        """Add to the sums of this span and of those around it in its run."""
        ...

    def judge(self, name: str, outcome: object) -> None:
        """Add the event of a judgement: an `EvaluationResult` or a `Failure`."""
        ...


class _NoSpan:
    """Stands where nothing is traced."""

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None: ...

    def open(
        self, kind: SpanKind, name: str, facts: Mapping[str, object], /
    ) -> AbstractContextManager[Span]:
        return self

    def follow(
        self, name: str, facts: Mapping[str, object], records: AsyncGenerator[R]
    ) -> AsyncGenerator[R]:
        return records

    def note(self, **facts: object) -> None: ...

    def count(self, **numbers: int) -> None: ...

    def judge(self, name: str, outcome: object) -> None: ...


NO_SPAN = _NoSpan()
current_span: ContextVar[Span] = ContextVar("span", default=NO_SPAN)


def span(
    kind: SpanKind, name: str, root: Span = NO_SPAN, **facts: object
) -> AbstractContextManager[Span]:
    """Open a span below the current one, or below `root` if none is open. `facts`: its
    attributes, as of `Span.note`."""
    here = current_span.get()
    return (root if here is NO_SPAN else here).open(kind, name, facts)


def loop_span(loop: str, **facts: object) -> AbstractContextManager[Span]:
    """Open the span of a loop."""
    return current_span.get().open("loop", f"{LOOP}.run", {"loop": loop, **facts})


def step_span(
    phase: Literal["generate", "evaluate"], step: str, **facts: object
) -> AbstractContextManager[Span]:
    """Open the span of a loop's step, which is numbered by its `iteration` or else counted."""
    return current_span.get().open("step", f"{LOOP}.{phase}", {"step": step, **facts})
