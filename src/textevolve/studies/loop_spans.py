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
STEP = "textevolve-loop-step"
"""The key under which an OpenTelemetry context holds the step that calls belong to."""
USED = ("calls", "calls_replayed", "tokens_in", "tokens_out", "parse_errors")


@dataclass
class _OpenSpan:
    """A span under way, and what has been used in it so far; `loop`: the span of its loop."""

    span: Span
    loop: _OpenSpan | None = None
    began: float = field(default_factory=perf_counter)
    used: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(USED, 0)))

    def count(self, used: dict[str, int]) -> None:
        self.used.update(used)
        if self.loop is not None:
            self.loop.count(used)

    def end(self, reason: str, error: str, facts: dict[str, Any]) -> None:
        """End the span. `error`: the kind of error, if it ends with one."""
        if error:
            self.span.set_status(Status(StatusCode.ERROR, reason))
            self.span.set_attribute("error.type", error)
        facts |= {**self.used, "duration": perf_counter() - self.began}
        self.span.set_attributes(_name_attributes(facts))
        self.span.end()


@dataclass
class _OpenLoop(_OpenSpan):
    """The span of a loop under way, and that of the step it is at."""

    context: Context = field(default_factory=Context)
    step: _OpenSpan | None = None
    numbers: Counter[str] = field(default_factory=Counter[str])
    rounds: int = 0
    most: int = 0


class LoopSpans:
    """A `Listener` of one run, which hands on what it hears to another."""

    def __init__(self, tracer: Tracer, study: AnyStudy, run_id: str, listener: Listener) -> None:
        assert study.steps is not None
        self._tracer, self._study, self._listener = tracer, study, listener
        self._steps: LoopSteps = study.steps
        self._run_id = run_id
        self._outer, self._heard = contexts.get_current(), hear_unreadable.get()
        self._loops: dict[str, _OpenLoop] = {}
        self._row: Row | None = None
        hear_unreadable.set(lambda _: self._count({"parse_errors": 1}))
        if not self._steps.done:
            self._loop_of("")

    def __call__(self, event: Event) -> None:
        heard = event.event if isinstance(event, Aside) else event
        if isinstance(heard, CallFinished):
            usage, replayed = heard.usage, int(heard.replayed)
            values = 1 - replayed, replayed, usage.prompt_tokens, usage.completion_tokens
            self._count(dict(zip(USED, values, strict=False)))
        elif isinstance(heard, StepStarted):
            self._begin_step(heard)
        elif isinstance(heard, StepFinished):
            self._finish(heard)
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
        hear_unreadable.set(self._heard)

    def _loop_of(self, case: str) -> _OpenLoop:
        if case not in self._loops:
            facts = {"loop": self._study.kind, "run_id": self._run_id, "case": case or None}
            span = self._tracer.start_span(
                f"{PREFIX}.run", self._outer, attributes=_name_attributes(facts)
            )
            context = set_span_in_context(span, self._outer)
            self._loops[case] = _OpenLoop(span, context=context)
        return self._loops[case]

    def _count(self, used: dict[str, int]) -> None:
        step = contexts.get_value(STEP)
        if step is contexts.get_value(STEP, self._outer) and "" in self._loops:
            step = self._loops[""]  # between two steps
        if isinstance(step, _OpenSpan):
            step.count(used)

    def _begin_step(self, event: StepStarted) -> None:
        begins = self._steps.begins
        phase = begins.get(str(event.details.get("stage")), begins.get(event.step))
        if phase is None or (event.case and not self._steps.done):
            return  # not of the loop itself, but of a debate or another judge within a step
        loop = self._loop_of(event.case)
        self._end_step(loop)
        loop.numbers[phase] += 1
        counted = loop.rounds + 1 if self._steps.round else loop.numbers[phase]
        number = int(event.details.get("iteration", counted))
        loop.most = max(loop.most, number)
        facts = {**event.details, "step": event.step, "iteration": number}
        name = f"{PREFIX}.{phase}.{number}"
        span = self._tracer.start_span(name, loop.context, attributes=_name_attributes(facts))
        loop.step = _OpenSpan(span, loop)
        current = set_span_in_context(span, loop.context)
        contexts.attach(contexts.set_value(STEP, loop.step, current))

    def _finish(self, event: StepFinished) -> None:
        steps = self._steps
        if event.case and not steps.done:
            return
        if steps.done and event.step == steps.done:
            self._end_loop(event.case, self._study.row(event.value))
        elif event.step in steps.ends and event.case in self._loops:
            self._end_step(self._loops[event.case], *_describe_value(event.value))
        elif steps.round and event.step == steps.round:
            self._end_step(self._loop_of(""))
            self._loop_of("").rounds += 1

    def _end_step(
        self,
        loop: _OpenLoop,
        facts: dict[str, Any] | None = None,
        reason: str = "",
        error: str = "",
    ) -> None:
        """End the step under way, if there is one."""
        step, loop.step = loop.step, None
        if step is None:
            return
        step.end(reason, error, {"reason": None if error else reason or None, **(facts or {})})
        contexts.attach(loop.context)

    def _end_loop(self, case: str, row: Row | None, error: BaseException | None = None) -> None:
        loop = self._loops.pop(case, None)
        if loop is None:
            return
        facts, reason, kind = dict[str, Any](), "", ""
        if isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
            reason, kind = "stopped", "cancelled"
        elif error is not None:
            reason, kind = str(error), type(error).__name__
        elif row is not None:
            facts = {"score": row.score, "passed": row.passed, "status": row.status}
            facts["reason"] = row.reason or None
            reason = "" if row.status == "scored" else row.reason
            kind = "failed" if row.status == "failed" else ""
        self._end_step(loop, None, reason, kind)
        loop.end(reason, kind, facts | {"iterations": loop.most})


def _name_attributes(facts: dict[str, Any]) -> dict[str, str | bool | int | float]:
    """Facts by the names of attributes, but those that are None or too much for one."""
    plain = {name: value for name, value in facts.items() if isinstance(value, str | int | float)}
    return {f"{PREFIX}.{name}": value for name, value in plain.items()}


def _describe_value(value: object) -> tuple[dict[str, Any], str, str]:
    """The score and the verdict in what a step made, or why it has none, and the kind of error."""
    if isinstance(value, str):  # what is wrong with it, if anything is
        return {"passed": not value}, value, ""
    outcome: object = value
    for name in ("evaluation", "failure", "judgement"):
        outcome = getattr(value, name, None) or outcome
    if isinstance(outcome, EvaluationResult):
        return {"score": outcome.score, "passed": outcome.passed}, "", ""
    if isinstance(outcome, Failure):
        kind = "failed" if outcome.kind == "failed" else ""
        return {"reason": outcome.reason}, outcome.reason, kind
    return {}, "", ""
