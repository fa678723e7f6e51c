"""Judge the steps of any framework that emits OpenTelemetry spans, in the background as they end.

provider.add_span_processor(SpanJudge(monitor))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from textevolve.json_texts import is_sequence
from textevolve.mappings import drop_empty, map_values
from textevolve.node_eval import span_states
from textevolve.node_eval.background import evaluating, log
from textevolve.node_eval.documents import translate
from textevolve.node_eval.evaluators import describe_exception
from textevolve.node_eval.history import HistoryItem, Instruction, read_instruction
from textevolve.node_eval.monitor import Monitor
from textevolve.node_eval.traces import as_node, is_node


class SpanJudge(SpanProcessor):
    """A span processor that reports each span that is a step of an agent to a monitor, once it has
    ended. The run of the node is the trace. Spans of evaluators are ignored. `instructions`: types
    of nodes by their names.

    Raises InputError for an unknown instruction type.
    """

    def __init__(
        self, monitor: Monitor, instructions: Mapping[str, Instruction | str] | None = None
    ) -> None:
        types = map_values(read_instruction, instructions or {})
        self._instructions = drop_empty(types)
        self._monitor = monitor
        self._open: dict[int, ReadableSpan] = {}
        self._inner: dict[str, list[HistoryItem]] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if not evaluating.get():
            self._open[span.get_span_context().span_id] = span

    def on_end(self, span: ReadableSpan) -> None:
        try:
            self._record(span)
        except Exception as fault:  # noqa: BLE001  the agent must not suffer from its monitor
            log.warning("span '%s' is not judged: %s", span.name, describe_exception(fault))

    def _record(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or self._open.pop(context.span_id, None) is None:
            return
        around: list[span_states.Span] = []
        parent = span.parent
        while parent and (outer := self._open.get(parent.span_id)):
            around.insert(0, read_span(outer))
            parent = outer.parent
        ended_span = read_span(span)
        if not is_node(ended_span, self._instructions):
            return
        shared = {
            name: id for near_span in around for name, id in span_states.ids_of(near_span).items()
        }
        around = [near_span for near_span in around if is_node(near_span, self._instructions)]
        inner = self._inner.pop(ended_span.span_id, [])
        item = as_node(ended_span, around, inner, shared, self._instructions)
        item.run_id = ended_span.trace_id
        if around:
            self._inner.setdefault(around[-1].span_id, []).append(item)
        self._monitor.record(item)


def read_span(span: ReadableSpan) -> span_states.Span:
    """Convert a span of OpenTelemetry's library to the form of spans in files."""
    context: Any = span.get_span_context()
    start = span.start_time or 0
    events = ((event.name, _read(event.attributes)) for event in span.events)
    problem = None
    if span.status.status_code is StatusCode.ERROR:
        problem = span.status.description or ""

    return span_states.Span(
        format_trace_id(context.trace_id),
        format_span_id(context.span_id),
        format_span_id(span.parent.span_id) if span.parent else "",
        span.name,
        start,
        span.end_time or start,
        translate(_read(span.attributes)),
        tuple(events),
        problem,
    )


def _read(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    values = dict(attributes or {})
    for name, value in values.items():
        # The library stores lists as tuples, which files do not have.
        if is_sequence(value):
            values[name] = list(value)

    return values
