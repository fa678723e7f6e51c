"""Read exports of Phoenix, MLflow and LangSmith as spans with flat fields.

The table `PARTS` lists the names that the tools use for the parts of a span. `MLFLOW` and
`METADATA` translate a tool's names of attributes to those that `span_states.py` reads.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.json_texts import CONTAINERS, as_array, parse_text
from textevolve.node_eval.span_messages import as_fields, unwrap_result
from textevolve.node_eval.span_states import Span

SpanFields: TypeAlias = dict[str, Any]
"""The fields of a span or of another record of an export."""

PARTS: Mapping[str, Sequence[str]] = {
    "trace_id": ("context.trace_id", "context.traceId", "trace_id", "traceId"),
    "span_id": ("context.span_id", "context.spanId", "span_id", "spanId", "id"),
    "parent_span_id": ("parent_id", "parent_span_id", "parent_run_id", "parentSpanId"),
    "name": ("name",),
    "start": ("start_time", "start_time_unix_nano", "start_time_ns", "startTimeUnixNano"),
    "end": ("end_time", "end_time_unix_nano", "end_time_ns", "endTimeUnixNano"),
    "code": ("status_code", "status.code", "status.status_code", "status"),
    "message": ("status_message", "status.message", "status.description", "error"),
}
"""The names that tools use for each part of a span; the first one with a value is read."""

EXPORT, SPAN, LOG = "export", "span", "log"
FORMS = {"resourceSpans": SPAN, "resource_spans": SPAN, "resourceLogs": LOG, "resource_logs": LOG}
"""The forms of records by the fields of OTLP's documents in which they are; others are `EXPORT`."""
LISTS = (
    *FORMS,
    "scopeSpans",
    "scope_spans",
    "scopeLogs",
    "scope_logs",
    "logRecords",
    "log_records",
    "data",
    "runs",
    "spans",
    "traces",
    "child_runs",
)
"""The names of fields in which documents and records contain further records."""

MLFLOW = {
    "mlflow.spanType": "openinference.span.kind",
    "mlflow.spanInputs": "input.value",
    "mlflow.spanOutputs": "output.value",
    "mlflow.chat.tools": "llm.tools",
    "mlflow.chat.tokenUsage": "gen_ai.usage",
    "mlflow.trace.session": "session.id",
    "mlflow.trace.user": "user.id",
}
"""The names in the conventions by MLflow's names of attributes."""
TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
"""LangSmith's names of the numbers of tokens."""
METADATA = {
    **dict.fromkeys(("thread_id", "conversation_id"), "gen_ai.conversation.id"),
    "session_id": "session.id",
    "user_id": "user.id",
}
"""OpenInference's names by the names of fields in LangSmith's metadata."""

COMMANDS: Mapping[str, tuple[frozenset[str], str]] = {
    "Phoenix": (
        frozenset({"context", "span_kind", "context.span_id", "project_id", "cumulative"}),
        "GET /v1/projects/NAME/spans, or Client().spans.get_spans(project_identifier=NAME)",
    ),
    "MLflow": (
        frozenset({"info", "trace_id", "traceId", "execution_duration", "trace_metadata"}),
        "mlflow.search_traces(), or mlflow.get_trace(ID).to_json()",
    ),
    "LangSmith": (
        frozenset({"run_type", "dotted_order", "session_id", "inputs", "outputs"}),
        "[run.model_dump(mode='json') for run in Client().list_runs(project_name=NAME)]",
    ),
    "Langfuse": (
        frozenset({"observations", "parentObservationId", "sessionId", "completionStartTime"}),
        "an OpenTelemetry exporter beside Langfuse's own, to a file of OTLP JSON",
    ),
}
"""For each tool, the fields by which an export without spans is recognised, and the command that
exports spans."""


def list_records(document: object, form: str, shared: SpanFields) -> Iterator[tuple[str, object]]:
    """List the records of a document that may be spans or logs, each with its form: those of lists,
    of OTLP, of answers of an API, of data frames by rows or by columns, and of traces with their
    own spans. `shared`: the facts that the trace around them states for all its spans."""
    inner: list[tuple[str, object]] = []
    record = _unfold(cast("SpanFields", document)) if isinstance(document, dict) else {}
    columns: list[Any] = list(record.values())
    if isinstance(document, list):
        inner = [("", item) for item in cast("list[object]", document)]
    elif columns and all(isinstance(one, dict) and [*one] == [*columns[0]] for one in columns):
        keys = [*columns[0]]
        inner = [("", {name: record[name][key] for name in record}) for key in keys]
    elif all(find_part(record, part) for part in ("trace_id", "span_id", "start")):
        yield form, {**record, "shared": shared}
        inner = [("", record.get("child_runs") or [])]
    else:
        info = as_fields(record.get("info")) or record
        facts = as_fields(info.get("trace_metadata") or info.get("request_metadata"))
        shared = {**shared, **facts}
        for name in ("trace",) if as_fields(record.get("trace")) else LISTS:
            part = parse_text(record.get(name), CONTAINERS)
            inner += [(name, part)] if part and isinstance(part, list | dict) else []
        if not inner and record.keys().isdisjoint(FORMS if form == EXPORT else LISTS):
            yield form, record or document
    for name, part in inner:
        yield from list_records(part, FORMS.get(name, form), shared)


def _unfold(record: SpanFields) -> SpanFields:
    """Copy the parts of a span in its `context` or `status` to fields of the span."""
    inner = {
        f"{name}.{key}": value
        for name in ("context", "status")
        for key, value in as_fields(record.get(name)).items()
    }
    return {**record, **inner} if inner else record


def find_part(record: SpanFields, part: str) -> Any:
    """Return a part of a span or a log by the names of `PARTS`; None without it."""
    names = (name for name in PARTS[part] if record.get(name) not in (None, ""))
    return next((record[name] for name in names), None)


def as_span(record: SpanFields) -> Span:
    """Read a span.

    Raises:
        InputError: it is no span; names the tool whose export it resembles, and the right command.
    """
    if "shared" not in record:
        raise InputError(describe_unknown(record))
    start, end = (_read_time(find_part(record, part)) for part in ("start", "end"))
    code = str(find_part(record, "code") or "").upper()
    failed = "ERROR" in code or code == "2" or ("run_type" in record and record.get("error"))
    attributes = translate({**record["shared"], **_read_attributes(record)})
    events = parse_text(record.get("events"), CONTAINERS)
    listed = map(as_fields, as_array(events))
    return Span(
        _read_id(find_part(record, "trace_id")),
        _read_id(find_part(record, "span_id")),
        _read_id(find_part(record, "parent_span_id")),
        str(record.get("name") or ""),
        start,
        max(end, start),
        dict(_flatten("", attributes)),
        tuple(
            (str(event.get("name") or ""), dict(_flatten("", as_fields(event.get("attributes")))))
            for event in listed
        ),
        str(find_part(record, "message") or "") if failed else None,
    )


def is_export(record: Mapping[str, Any]) -> bool:
    """Return whether the first line of a file belongs to an export, and not to TextEvolve's own
    format."""
    known = frozenset(LISTS).union(*(names for names, _ in COMMANDS.values()))
    return bool(known & record.keys()) and not {"node", "instruction"} & record.keys()


def describe_unknown(record: Mapping[str, Any]) -> str:
    """Say which tool's export a record resembles, and that tool's command for a readable one."""
    names = frozenset(record)
    tool, (known, command) = max(COMMANDS.items(), key=lambda item: len(item[1][0] & names))
    if not known & names:
        tools = ", ".join(list(COMMANDS)[:-1])
        return f"not an OTLP trace: it has no resourceSpans, and it is not an export of {tools}"
    return f"resembles an export of {tool}, but has no spans; readable: {command}"


def _read_id(value: Any) -> str:
    """Return an id in hexadecimal digits; MLflow writes them as base64."""
    text = str(value or "")
    if text.endswith("=") or (len(text) in (11, 12, 22, 24) and not text.isalnum()):
        with suppress(ValueError):
            return base64.b64decode(text, validate=True).hex()
    return text


def _read_time(value: Any) -> int:
    """Return nanoseconds since 1970; 0 for None. A number's unit is inferred from its size; a text
    is a date."""
    if isinstance(value, str) and not value.strip().isdecimal():
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(f"'{value:.40}' is not a time as exports write it") from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1e6) * 1000
    number = value if isinstance(value, float) else int(value or 0)
    for _ in ("milliseconds", "microseconds", "nanoseconds"):
        number *= 1000 if number < 1e17 else 1
    return round(number)


def _read_attributes(record: SpanFields) -> SpanFields:
    attributes = {**as_fields(record.get("attributes"))}
    for name, value in record.items():
        if name.startswith("attributes.") and value not in (None, ""):
            short = name.removeprefix("attributes.")
            attributes[short] = value if short in VALUES else _read_number(value)
    if kind := record.get("span_kind"):
        attributes["openinference.span.kind"] = kind
    return attributes | (_read_run(record) if "run_type" in record else {})


def _read_number(value: Any) -> Any:
    """Parse a value of a table, in which numbers may be texts. In columns with gaps whole numbers
    have a decimal point."""
    number = parse_text(value, (*CONTAINERS, *"-0123456789"))
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _read_run(record: SpanFields) -> SpanFields:
    """Return the attributes of a LangSmith run under the names of the conventions."""
    extra = as_fields(record.get("extra"))
    metadata = as_fields(extra.get("metadata"))
    return {
        "openinference.span.kind": str(record["run_type"]),
        "input.value": record.get("inputs"),
        "output.value": unwrap_result(record.get("outputs")),
        "llm.tools": as_fields(extra.get("invocation_params")).get("tools"),
        "gen_ai.usage": {name: record.get(name) for name in TOKENS},
        **{name: metadata[key] for key, name in METADATA.items() if key in metadata},
    }


def _flatten(prefix: str, value: SpanFields) -> Iterator[tuple[str, Any]]:
    """Yield nested attributes under their flat names in spans; other objects become JSON."""
    for key, inner in value.items():
        name, place = f"{prefix}{key}", f"{prefix}{key}."
        if place.startswith(NESTED) and name not in VALUES and isinstance(inner, dict | list):
            pairs = as_fields(cast(object, inner)).items() or enumerate(cast("list[Any]", inner))
            yield from _flatten(place, {str(part): each for part, each in pairs})
        elif inner is not None:
            plain = isinstance(inner, str | int | float | list)
            yield name, inner if plain else json.dumps(inner, ensure_ascii=False, default=str)


VALUES = ("input.value", "output.value")
"""The attributes with a span's whole input and output, which are not flattened."""
NESTED = (
    "llm.",
    "retrieval.",
    "reranker.",
    "embedding.",
    "openinference.",
    "gen_ai.usage.",
    "input.",
    "output.",
    "session.",
    "user.",
    "tool.",
    "agent.",
)
"""The groups of attributes that are flattened."""


def translate(attributes: SpanFields) -> SpanFields:
    """Replace MLflow's names of attributes, whose values are all JSON, by those of the conventions;
    spans of other tools stay unchanged."""
    if "mlflow.spanType" not in attributes:
        return attributes
    named = {
        MLFLOW.get(name, name): parse_text(value)
        for name, value in attributes.items()
        if name in MLFLOW or not name.startswith("mlflow.")
    }
    return dict(_flatten("", named))
