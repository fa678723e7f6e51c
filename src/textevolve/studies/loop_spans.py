"""Spans of loops, made of the events that they announce: `eval_opt.run`, and below it a span for
each step, `eval_opt.generate.{n}` or `eval_opt.evaluate.{n}`.

A step's span is the current one for all that its work calls, so spans of other instrumentations,
such as those of an HTTP client, stand below it. No task, prompt or output is in a span.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.events import Aside, CallFinished, Event, Listener, StepFinished, StepStarted
from textevolve.llm.structured import hear_unreadable
from textevolve.studies.study import AnyStudy, LoopSteps, Row

PREFIX = "eval_opt"
Attribute = str | bool | int | float


@dataclass
class _OpenSpan:
    """A span under way, and what has been used in it so far; `within`: the span of its loop."""

    span: Span
    within: _OpenSpan | None = None
    began: float = field(default_factory=perf_counter)
    used: Counter[str] = field(
        default_factory=lambda: Counter(
            calls=0, calls_replayed=0, tokens_in=0, tokens_out=0, parse_errors=0
        )
    )
    pieces: list[Any] = field(default_factory=list[Any])

    def count(self, **used: int) -> None:
        self.used.update(used)
        if self.within is not None:
            self.within.count(**used)

    def tell(self, **told: Attribute | None) -> None:
        """Sets attributes; those that are None say nothing."""
        for name, value in told.items():
            if value is not None:
                self.span.set_attribute(f"{PREFIX}.{name}", value)

    def fail(self, reason: str, kind: str = "failed") -> None:
        self.span.set_status(Status(StatusCode.ERROR, reason))
        self.span.set_attribute("error.type", kind)

    def end(self) -> None:
        self.tell(**self.used, duration=perf_counter() - self.began)
        self.span.end()


@dataclass
class _OpenLoop:
    """A loop under way: its span, and that of the step it is at."""

    whole: _OpenSpan
    context: Context
    step: _OpenSpan | None = None
    numbers: Counter[str] = field(default_factory=Counter[str])
    rounds: int = 0
    most: int = 0


_current: ContextVar[_OpenSpan | None] = ContextVar("loop_step", default=None)
"""The step that the calls of this task belong to."""


class LoopSpans:
    """A `Listener` of one run, which hands on what it hears to another."""

    def __init__(self, tracer: Tracer, study: AnyStudy, run_id: str, listener: Listener) -> None:
        assert study.steps is not None
        self._tracer, self._study, self._listener = tracer, study, listener
        self._steps: LoopSteps = study.steps
        self._run_id = run_id
        self._outer = contexts.get_current()
        self._around = _current.get(), hear_unreadable.get()  # of a loop that this one is within
        self._loops: dict[str, _OpenLoop] = {}
        self._row: Row | None = None
        if not self._steps.done:
            self._loop_of("")

    def __call__(self, event: Event) -> None:
        match event:
            case CallFinished():
                self._count(event)
            case StepStarted() | StepFinished():
                self._hear(event)
            case Aside():
                self._hear(event.event)
            case _:
                pass
        self._listener(event)

    def keep(self, record: Any) -> None:
        """Of a run that is one loop: what it has found so far."""
        if not self._steps.done:
            self._row = self._study.row(record)

    def end(self, error: BaseException | None = None) -> None:
        """The run is over, or was stopped by an error: nothing stays open."""
        for case in list(self._loops):
            self._end_loop(case, self._row, error)
        contexts.attach(self._outer)

    def _loop_of(self, case: str) -> _OpenLoop:
        if case not in self._loops:
            span = self._tracer.start_span(f"{PREFIX}.run", self._outer)
            whole = _OpenSpan(span)
            whole.tell(loop=self._study.kind, run_id=self._run_id, case=case or None)
            self._loops[case] = _OpenLoop(whole, set_span_in_context(span, self._outer))
        return self._loops[case]

    def _count(self, call: CallFinished) -> None:
        step = _current.get()
        if step is self._around[0] and "" in self._loops:  # between two steps
            step = self._loops[""].whole
        if step is not None:
            usage, replayed = call.usage, int(call.replayed)
            step.count(calls=1 - replayed, calls_replayed=replayed)
            step.count(tokens_in=usage.prompt_tokens, tokens_out=usage.completion_tokens)

    def _hear(self, event: StepStarted | StepFinished) -> None:
        steps = self._steps
        if isinstance(event, StepFinished) and steps.piece and event.step == steps.piece:
            if (open_step := self._loop_of("").step) is not None:
                open_step.pieces.append(event.value)
        elif event.case and not steps.done:
            return  # of a debate, or another judge, within a step
        elif isinstance(event, StepStarted):
            stage = str(event.details.get("stage"))
            if phase := steps.begins.get(stage, steps.begins.get(event.step)):
                self._begin_step(self._loop_of(event.case), phase, event)
        elif steps.done and event.step == steps.done:
            self._end_loop(event.case, self._study.row(event.value))
        elif event.step in steps.ends and event.case in self._loops:
            self._end_step(self._loops[event.case], event.value)
        elif steps.round and event.step == steps.round:
            loop = self._loop_of("")
            self._end_step(loop)
            loop.rounds += 1

    def _begin_step(self, loop: _OpenLoop, phase: str, event: StepStarted) -> None:
        self._end_step(loop)
        loop.numbers[phase] += 1
        counted = loop.rounds + 1 if self._steps.round else loop.numbers[phase]
        number = int(event.details.get("iteration", counted))
        loop.most = max(loop.most, number)
        span = self._tracer.start_span(f"{PREFIX}.{phase}.{number}", loop.context)
        loop.step = _OpenSpan(span, loop.whole)
        told = _plain(event.details)
        loop.step.tell(**{**told, "step": event.step, "iteration": number})
        contexts.attach(set_span_in_context(span, loop.context))
        _current.set(loop.step)
        hear_unreadable.set(lambda _reason, step=loop.step: step.count(parse_errors=1))

    def _end_step(
        self, loop: _OpenLoop, value: object = None, why: str = "", kind: str = ""
    ) -> None:
        """End the step under way, if there is one. `value`: what it made, where that was told;
        `why` and the `kind` of error: why it was not done."""
        step, loop.step = loop.step, None
        if step is None:
            return
        _tell_value(step, value)
        _tell_pieces(step)
        if kind:
            step.fail(why, kind)
        elif why:
            step.tell(reason=why)
        step.end()
        contexts.attach(loop.context)
        _current.set(self._around[0])
        hear_unreadable.set(self._around[1])

    def _end_loop(self, case: str, row: Row | None, error: BaseException | None = None) -> None:
        loop = self._loops.pop(case, None)
        if loop is None:
            return
        why, kind = _say_error(error) if error is not None else ("", "")
        if row is not None and error is None and row.status != "scored":
            why, kind = row.reason, "failed" if row.status == "failed" else ""
        self._end_step(loop, None, why, kind)
        if row is not None and error is None:
            loop.whole.tell(score=row.score, passed=row.passed, status=row.status)
            loop.whole.tell(reason=row.reason or None)
        loop.whole.tell(iterations=loop.most)
        if kind:
            loop.whole.fail(why, kind)
        loop.whole.end()


def _say_error(error: BaseException) -> tuple[str, str]:
    """Why a loop was not done, and the kind of error."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
        return "stopped", "cancelled"
    return str(error), type(error).__name__


def _plain(details: Mapping[str, Any]) -> dict[str, Attribute]:
    return {name: one for name, one in details.items() if isinstance(one, Attribute)}


def _tell_value(step: _OpenSpan, value: object) -> None:
    """The score and the verdict in what a step made, or why it has none."""
    if isinstance(value, str):  # what is wrong with it, if anything is
        step.tell(passed=not value, reason=value or None)
        return
    found: object = value
    for name in ("evaluation", "failure", "judgement"):
        found = getattr(value, name, None) or found
    if isinstance(found, EvaluationResult):
        step.tell(score=found.score, passed=found.passed)
    elif isinstance(found, Failure):
        step.tell(reason=found.reason)
        if found.kind == "failed":
            step.fail(found.reason)


def _tell_pieces(step: _OpenSpan) -> None:
    """The mean score of a step with many results, over those that have one."""
    if step.pieces:
        scores = [one.score for one in step.pieces if one.score is not None]
        step.tell(pieces=len(step.pieces), scored=len(scores))
        step.tell(score=fmean(scores) if scores else None)
