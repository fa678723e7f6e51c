"""Spans of loops, made of the events that they announce: `eval_opt.run`, and below it a span for
each step, `eval_opt.generate.{n}` or `eval_opt.evaluate.{n}`.

A step's span is the current one for all that its work calls, so spans of other instrumentations,
such as those of an HTTP client, stand below it. No task, prompt or output is in a span.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
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
CURRENT = "textevolve-loop-step"
"""The key under which an OpenTelemetry context holds the open span that calls belong to."""
USED = ("calls", "calls_replayed", "tokens_in", "tokens_out", "parse_errors")


@dataclass
class _OpenSpan:
    """A span under way, with what was used in it so far. `above`: for a step the span of its loop.
    Of a loop: its current `step`, how many of each phase there were, and the highest number."""

    span: Span
    context: Context
    above: _OpenSpan | None = None
    began: float = field(default_factory=perf_counter)
    used: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(USED, 0)))
    step: _OpenSpan | None = None
    numbers: Counter[str] = field(default_factory=Counter[str])
    rounds: int = 0
    highest: int = 0

    def end(self, facts: dict[str, Any], error: str = "") -> None:
        """End the span. `error`: the kind of error, if it ends with one."""
        if error:
            self.span.set_status(Status(StatusCode.ERROR, facts.get("reason")))
            self.span.set_attribute("error.type", error)
        facts = {**facts, **self.used, "duration": perf_counter() - self.began}
        self.span.set_attributes(_name_attributes(facts))
        self.span.end()


class LoopSpans:
    """A `Listener` of one run, which passes events on to another."""

    def __init__(
        self, tracer: Tracer, study: AnyStudy, steps: LoopSteps, run_id: str, listener: Listener
    ) -> None:
        self._tracer, self._study, self._steps = tracer, study, steps
        self._run_id, self._listener = run_id, listener
        self._outer, self._heard = contexts.get_current(), hear_unreadable.get()
        self._loops: dict[str, _OpenSpan] = {}
        self._row: Row | None = None
        self._status = ""
        hear_unreadable.set(lambda _: self._count({"parse_errors": 1}))
        if not steps.done:
            contexts.attach(self._loop_of("").context)

    def __call__(self, event: Event) -> None:
        inner = event.event if isinstance(event, Aside) else event
        if isinstance(inner, CallFinished):
            usage, replayed = inner.usage, int(inner.replayed)
            values = 1 - replayed, replayed, usage.prompt_tokens, usage.completion_tokens
            self._count(dict(zip(USED, values, strict=False)))
        elif isinstance(inner, StepStarted) and self._is_own(inner):
            self._begin(inner)
        elif isinstance(inner, StepFinished) and self._is_own(inner):
            self._finish(inner)
        self._listener(event)

    def _is_own(self, event: StepStarted | StepFinished) -> bool:
        """Tell the loop's own steps from those of a judge within a step."""
        return bool(self._steps.done) or not event.case

    def keep(self, record: Any) -> None:
        """Note the last record of a run that is one loop."""
        if not self._steps.done:
            self._row, self._status = self._study.row(record), _status_of(record)

    def end(self, error: BaseException | None = None) -> None:
        """End every open span. `error`: what stopped the run."""
        for case in list(self._loops):
            self._end_loop(case, self._row, self._status, error)
        contexts.attach(self._outer)
        hear_unreadable.set(self._heard)

    def _open(
        self, name: str, parent: Context, facts: dict[str, Any], above: _OpenSpan | None = None
    ) -> _OpenSpan:
        attributes = _name_attributes(facts)
        span = self._tracer.start_span(f"{PREFIX}.{name}", parent, attributes=attributes)
        opened = _OpenSpan(span, parent, above)
        opened.context = contexts.set_value(CURRENT, opened, set_span_in_context(span, parent))
        return opened

    def _loop_of(self, case: str) -> _OpenSpan:
        if case not in self._loops:
            facts = {"loop": self._study.kind, "run_id": self._run_id, "case": case or None}
            whole = self._loops.get(case.partition("/")[0])  # a step of a chain has a loop within
            step = None if whole is None else whole.step
            parent = self._outer if step is None else step.context
            self._loops[case] = self._open("run", parent, facts, step)
        return self._loops[case]

    def _count(self, used: dict[str, int]) -> None:
        span = contexts.get_value(CURRENT)
        if span is contexts.get_value(CURRENT, self._outer):  # of a loop around this one
            span = self._loops.get("")
        while isinstance(span, _OpenSpan):
            span.used.update(used)
            span = span.above

    def _begin(self, event: StepStarted) -> None:
        begins = self._steps.begins
        phase = begins.get(str(event.details.get("stage")), begins.get(event.step))
        if phase is None:
            return
        loop = self._loop_of(event.case)
        self._end_step(loop, {})
        loop.numbers[phase] += 1
        counted = loop.rounds + 1 if self._steps.round else loop.numbers[phase]
        number = int(event.details.get("iteration", counted))
        loop.highest = max(loop.highest, number)
        facts = {**event.details, "step": event.step, "iteration": number}
        loop.step = self._open(f"{phase}.{number}", loop.context, facts, loop)
        contexts.attach(loop.step.context)

    def _finish(self, event: StepFinished) -> None:
        steps, loop = self._steps, self._loops.get(event.case)
        if loop is None:
            return
        if event.step == steps.done:
            row = self._study.row(event.value)
            self._end_loop(event.case, row, _status_of(event.value))
        elif event.step in steps.ends:
            self._end_step(loop, *_describe_value(event.value))
        elif event.step == steps.round:
            self._end_step(loop, {})
            loop.rounds += 1

    def _end_step(self, loop: _OpenSpan, facts: dict[str, Any], error: str = "") -> None:
        """End the current step of a loop, if there is one."""
        step, loop.step = loop.step, None
        if step is not None:
            step.end(facts, error)
            contexts.attach(loop.context)

    def _end_loop(
        self, case: str, row: Row | None, status: str, error: BaseException | None = None
    ) -> None:
        loop = self._loops.pop(case)
        facts, kind = dict[str, Any](), ""
        if isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
            facts, kind = {"reason": "stopped"}, "cancelled"
        elif error is not None:
            facts, kind = {"reason": str(error)}, type(error).__name__
        elif row is not None:
            facts = {
                "score": row.score,
                "passed": row.passed,
                "status": status or row.status,
                "reason": row.reason or None,
            }
            kind = "failed" if row.status == "failed" else ""
        self._end_step(loop, {"reason": facts.get("reason")} if kind else {}, kind)
        loop.end({**facts, "iterations": loop.highest}, kind)
        if loop.above is not None:
            contexts.attach(loop.above.context)


def _status_of(record: object) -> str:
    """Return why a loop ended, where its record says so."""
    return str(getattr(record, "status", ""))


def _name_attributes(facts: dict[str, Any]) -> dict[str, str | bool | int | float]:
    """Return the plain facts by the names of attributes."""
    plain = {name: value for name, value in facts.items() if isinstance(value, str | int | float)}
    return {f"{PREFIX}.{name}": value for name, value in plain.items()}


def _describe_value(value: object) -> tuple[dict[str, Any], str]:
    """Return the score and verdict of what a step made, or its reason, and the kind of error."""
    if isinstance(value, str):  # a fault, if there is one
        return {"passed": not value, "reason": value or None}, ""
    outcome = value
    for name in ("evaluation", "failure", "judgement"):
        outcome = getattr(value, name, None) or outcome
    if isinstance(outcome, EvaluationResult):
        return {"score": outcome.score, "passed": outcome.passed}, ""
    if isinstance(outcome, Failure):
        return {"reason": outcome.reason}, "failed" if outcome.kind == "failed" else ""
    return {}, ""
