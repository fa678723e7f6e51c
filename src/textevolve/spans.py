"""Spans of traces: code opens them here, at no cost if the run is not traced.

A new span is a child of the current span of its context, so concurrent tasks nest their spans
independently. `textevolve.tracing` implements spans with OpenTelemetry, which is imported only when
a run is traced.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Literal, TypeAlias, TypeVar

R = TypeVar("R")
LOOP = "eval_opt"
"""The prefix of the names of spans that belong to loops, and of their attributes."""

SpanKind: TypeAlias = Literal[
    "run", "case", "part", "loop", "step", "agent", "model", "judge", "node", "recall", "remember"
]
"""The kind of a traced operation."""


class Span:
    """A traced operation, or the root of all traced operations. This class is the span of runs that
    are not traced, and records nothing; the one in `textevolve.tracing` does."""

    def open(
        self, kind: SpanKind, name: str, facts: Mapping[str, object], /
    ) -> AbstractContextManager[Span]:
        """Open a child span, which is the current span within the block."""
        return nullcontext(self)

    def follow(
        self, name: str, facts: Mapping[str, object], records: AsyncGenerator[R]
    ) -> AsyncGenerator[R]:
        """Yield the records of a run. The run works within a new child span, while the code that
        reads the records does not."""
        return records

    def note(self, **facts: object) -> None:
        """Set attributes. None is left out, and texts are set only if the trace records texts."""

    def count(self, **numbers: int) -> None:
        """Add numbers to the counters of this span and of its ancestors in the run."""

    def judge(self, name: str, outcome: object) -> None:
        """Add an event with the outcome of a judgement: an `EvaluationResult` or a `Failure`."""


NO_SPAN = Span()
"""The span of operations that are not traced."""
current_span: ContextVar[Span] = ContextVar("span", default=NO_SPAN)
"""The innermost open span of this context."""


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
    """Open the span of a step of a loop. Its number is the `iteration` in `facts`, or is
    counted."""
    return current_span.get().open("step", f"{LOOP}.{phase}", {"step": step, **facts})
