"""The spans of runs for OpenTelemetry. Their attributes follow the conventions for generative AI;
OpenInference's span kinds and values are added, and `eval_opt.*` attributes for loops.

Texts are recorded only if the environment variable of these conventions allows it; settings, keys
and headers never are.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from textevolve.errors import BudgetError
from textevolve.evaluation import ANSWERED_BY, EvaluationResult, Failure, empty_default
from textevolve.json_texts import write_text
from textevolve.llm.model import Message, Request, Response
from textevolve.llm.targets import JOURNALED
from textevolve.mappings import drop_none, pick
from textevolve.spans import LOOP, Span, SpanKind, current_span

R = TypeVar("R")
PREFIX = "textevolve"
# The environment variable that allows texts in spans.
CONTENT_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
JOURNAL_HIT = f"{PREFIX}.journal.hit"
CHAIN = ("CHAIN", "")
KINDS: Mapping[SpanKind, tuple[str, str]] = {
    "run": ("CHAIN", "invoke_workflow"),
    "agent": ("AGENT", "invoke_agent"),
    "model": ("LLM", "chat"),
    "judge": ("EVALUATOR", ""),
    "recall": ("RETRIEVER", "search_memory"),
    "remember": ("CHAIN", "create_memory"),
}
"""For each kind of span: its kind in OpenInference, and its operation name in the conventions; all
others are `CHAIN`."""
STANDARD = {
    "agent": ("gen_ai.agent.name",),
    "conversation": ("gen_ai.conversation.id", "session.id"),
    "user": ("user.id",),
}
"""The facts that have attribute names in the conventions."""
PROVIDERS = {"mistral": "mistral_ai", "xai": "x_ai", "gemini": "gcp.gemini"}
"""The providers whose names in the conventions differ from ours."""
SHARED = ("run_id", "conversation")
"""The facts that a span passes on to the spans below it."""
# The counters of usage that loops record.
COUNTED = ("calls", "calls_replayed", "tokens_in", "tokens_out", "parse_errors")


def records_texts() -> bool:
    """Tell whether texts may be recorded in spans, by OpenTelemetry's environment variable for
    message content."""
    switch = os.environ.get(CONTENT_SWITCH, "").lower()
    return switch in ("true", "1", "span_only", "span_and_event")


@dataclass
class RecordedSpan(Span):
    """A running span that sums up the usage below it, or the root, which has no span of its own.

    Attributes:
        texts: Whether texts may be recorded.
        kind: The kind of step that the span covers.
        above: The parent; None for the root.
        context: The OpenTelemetry context in which spans below this one start.
        shared: The facts that are passed on to spans below.
        began: The start, in seconds of the performance counter.
        used: The usage within the span, by the names of `COUNTED`.
        names: The number of child spans by name, which makes their names unique.
        numbers: The number of steps of a loop by name.
    """

    tracer: Tracer
    texts: bool
    kind: SpanKind = "run"
    span: trace.Span = trace.INVALID_SPAN
    above: RecordedSpan | None = None
    context: contexts.Context | None = None
    shared: Mapping[str, object] = empty_default(dict)
    began: float = field(default_factory=perf_counter)
    used: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTED, 0)))
    names: Counter[str] = empty_default(Counter)
    numbers: Counter[str] = empty_default(Counter)

    @contextmanager
    def open(
        self, kind: SpanKind, name: str, facts: Mapping[str, object]
    ) -> Generator[RecordedSpan]:
        here = self.begin(kind, name, facts)
        try:
            with here.enter():
                yield here
        except BaseException as error:
            here.end(error)
            raise

        here.end()

    def begin(self, kind: SpanKind, name: str, facts: Mapping[str, object]) -> RecordedSpan:
        """Start a span below this one, without making it the current span. The name of a step ends
        in its number in the loop. If a sibling has the same name, ` #2` (and so on) is appended,
        except directly below the root."""
        shown_kind, operation = KINDS.get(kind, CHAIN)

        if kind == "model":
            name, about = name_model(name)
            request = facts.get("request")
            facts = {**about, **facts}
            if "agent" in about:
                shown_kind, operation = KINDS["agent"]
            elif isinstance(request, Request) and request.embeds:
                shown_kind = "EMBEDDING"
                operation = "embeddings"

        title = f"{operation} {name}" if kind in ("agent", "model") else name
        if kind == "step":
            number = self.numbers[name] = int(str(facts.get("iteration") or self.numbers[name] + 1))
            title = f"{name}.{number}"
            facts = {**facts, "iteration": number}

        if self.above is not None:
            self.names[title] += 1
            title += f" #{self.names[title]}" if self.names[title] > 1 else ""
        span_kind = trace.SpanKind.CLIENT if kind == "model" else trace.SpanKind.INTERNAL
        attributes = {"openinference.span.kind": shown_kind}
        span = self.tracer.start_span(title, self.context, span_kind, attributes)
        context = set_span_in_context(span, self.context)
        shared = drop_none(pick(facts, SHARED))
        here = RecordedSpan(self.tracer, self.texts, kind, span, self, context)
        here.shared = {**self.shared, **shared}
        here.note(**{**here.shared, **facts, "gen_ai.operation.name": operation or None})

        return here

    async def follow(
        self, name: str, facts: Mapping[str, object], records: AsyncGenerator[R]
    ) -> AsyncGenerator[R]:
        around = current_span.get()
        above = around if isinstance(around, RecordedSpan) else self
        here = above.begin("run", name, {"input.value": name, **facts})
        number = 0

        try:
            async with aclosing(records):
                while True:
                    with here.enter():
                        record = await anext(records)
                    number += 1
                    yield record
        except StopAsyncIteration:
            here.note(**{"output.value": f"{number} record{'s' * (number != 1)}"})
            here.end()
        except BaseException as error:
            here.end(error)
            raise

    @contextmanager
    def enter(self) -> Generator[None]:
        """Make this span the current span within the block."""
        current = current_span.set(self)
        attached = contexts.attach(self.context or contexts.Context())
        try:
            yield
        finally:
            contexts.detach(attached)
            current_span.reset(current)

    def note(self, **facts: object) -> None:
        prefix = LOOP if self.kind in ("loop", "step") else PREFIX
        attributes: dict[str, Any] = {}
        for name, value in facts.items():
            if isinstance(value, EvaluationResult):
                attributes |= {f"{prefix}.score": value.score, f"{prefix}.passed": value.passed}
                shown_result = {
                    "score": value.score,
                    "passed": value.passed,
                    "feedback": value.feedback,
                }
                attributes |= (
                    self._describe_text("output", shown_result) if self.kind == "judge" else {}
                )
            elif isinstance(value, Failure):
                self.fail(value.reason, value.kind)
            elif isinstance(value, Request):
                attributes |= self._describe_request(value)
            elif isinstance(value, Response):
                attributes |= self._describe_response(value)
            elif name in ("input", "output"):
                attributes |= self._describe_text(name, value)
            elif isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
                names = STANDARD.get(name, (name if "." in name else f"{prefix}.{name}",))
                attributes |= dict.fromkeys(names, value)

        self.span.set_attributes(drop_none(attributes))

    def count(self, **numbers: int) -> None:
        self.used.update(numbers)
        if self.kind != "run" and self.above is not None:
            self.above.count(**numbers)

    def judge(self, name: str, outcome: object) -> None:
        if self.above is not None and self.above.kind == "node":
            return  # the node has the event
        attributes: dict[str, Any] = {"gen_ai.evaluation.name": name}
        if isinstance(outcome, EvaluationResult):
            attributes["gen_ai.evaluation.score.value"] = float(outcome.score)
            attributes["gen_ai.evaluation.score.label"] = "pass" if outcome.passed else "fail"
            attributes |= {
                f"{PREFIX}.score": float(outcome.score),
                f"{PREFIX}.passed": outcome.passed,
            }
            if self.texts and outcome.feedback:
                attributes["gen_ai.evaluation.explanation"] = outcome.feedback
        elif isinstance(outcome, Failure):
            attributes["error.type"] = outcome.kind
            attributes["gen_ai.evaluation.explanation"] = outcome.reason

        self.span.add_event("gen_ai.evaluation.result", attributes)

    def end(self, error: BaseException | None = None) -> None:
        if isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
            self.fail("stopped", "cancelled")
        elif error is not None:
            self.fail(str(error), "" if isinstance(error, BudgetError) else type(error).__name__)

        if self.kind in ("loop", "step"):
            self.note(**self.used, duration=perf_counter() - self.began)
        if self.kind == "loop":
            self.note(iterations=max(self.numbers.values(), default=0))
        self.span.end()

    def fail(self, reason: str, kind: str) -> None:
        """Record the reason for a missing result. `kind`: the kind of the error. The span is not
        marked as an error if a limit was reached or if nothing was called (`skipped`)."""
        self.note(reason=reason)
        if kind not in ("", "skipped"):
            self.span.set_status(Status(StatusCode.ERROR, reason))
            self.span.set_attribute("error.type", kind)

    def _describe_text(self, name: str, value: object) -> dict[str, str]:
        if not self.texts or value is None:
            return {}
        mime = "text/plain" if isinstance(value, str) else "application/json"
        return {f"{name}.value": write_text(value), f"{name}.mime_type": mime}

    def _describe_request(self, request: Request) -> dict[str, Any]:
        names = ("temperature", "max_tokens", "seed")
        request_fields = {f"gen_ai.request.{name}": getattr(request, name) for name in names}
        messages = [{"role": message.role, "content": message.text} for message in request.messages]
        request_fields |= self._describe_text("input", {"messages": messages})
        return request_fields | self._describe_messages("input", request.messages)

    def _describe_response(self, response: Response) -> dict[str, Any]:
        usage = response.usage
        tokens = "llm.token_count"
        response_fields: dict[str, Any] = {
            "gen_ai.response.finish_reasons": [response.finish_reason]
        }
        for names in usage.models:
            response_fields["gen_ai.response.model"] = names.partition(ANSWERED_BY)[2]
        if response.replayed:
            response_fields[JOURNAL_HIT] = True
            self.count(calls_replayed=1)
        else:
            response_fields |= {
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
                f"{tokens}.prompt": usage.prompt_tokens,
                f"{tokens}.completion": usage.completion_tokens,
                f"{tokens}.total": usage.tokens,
                f"{tokens}.prompt_details.cache_read": usage.cached_tokens,
                "llm.cost.total": usage.cost,
            }
            self.count(calls=1, tokens_in=usage.prompt_tokens, tokens_out=usage.completion_tokens)

        answer = Message("assistant", (response.text,), (), response.tool_calls)
        response_fields |= self._describe_text("output", response.text)

        return response_fields | self._describe_messages(
            "output", (answer,), response.finish_reason
        )

    def _describe_messages(
        self, side: str, messages: tuple[Message, ...], finish_reason: str = ""
    ) -> dict[str, Any]:
        if not self.texts:
            return {}
        ending = {"finish_reason": finish_reason} if finish_reason else {}
        listed: list[dict[str, Any]] = []

        for message in messages:
            parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}]
            if message.tool_call_id is not None:
                result = {"id": message.tool_call_id, "response": message.text}
                parts = [{"type": "tool_call_response", **result}]
            for call in message.tool_calls:
                about = {"id": call.id, "name": call.name, "arguments": call.arguments}
                parts.append({"type": "tool_call", **about})
            listed.append({"role": message.role, "parts": parts, **ending})

        return {f"gen_ai.{side}.messages": write_text(listed)}


def name_model(spec: str) -> tuple[str, dict[str, str]]:
    """Return the name of a model or application for span names, and its attributes. Arguments of
    programs and queries of addresses are left out, since they may contain keys."""
    if spec.startswith(JOURNALED):
        name = spec.removeprefix(JOURNALED).partition("?")[0].partition(" ")[0]
        return name, {"agent": name}
    provider, _, model = spec.rpartition("#") if "://" in spec else spec.partition("/")
    provider = urlsplit(provider).hostname or provider if "://" in spec else provider

    return model, {
        "gen_ai.provider.name": PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model,
        "llm.model_name": model,
        "llm.provider": provider,
    }
