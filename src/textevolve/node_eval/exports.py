"""Read exports of Phoenix, MLflow and LangSmith as spans with flat fields.

The table `PARTS` lists the names that the tools use for the parts of a span. `KINDS`, `MLFLOW` and
`METADATA` translate a tool's names of attributes to those of OpenInference, which `span_states.py`
reads.
"""

from __future__ import annotations

import ast
import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from textevolve.errors import InputError
from textevolve.json_texts import CONTAINERS, parse_text
from textevolve.node_eval.span_messages import unwrap_result

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

LISTS = ("data", "runs", "spans", "traces", "child_runs")
"""The names of fields in which documents and records contain further records."""

RUNS = {"llm": "LLM", "tool": "TOOL", "retriever": "RETRIEVER", "embedding": "EMBEDDING"}
"""OpenInference's kinds of spans by LangSmith's types of runs; runs of other types become
chains."""
KINDS = {
    **{kind: kind for kind in ("LLM", "TOOL", "AGENT", "RETRIEVER", "EMBEDDING", "RERANKER")},
    "CHAT_MODEL": "LLM",
    "GUARDRAIL": "GUARDRAIL",
    "EVALUATOR": "EVALUATOR",
}
"""OpenInference's kinds of spans by MLflow's types of spans; spans of other types become chains."""
MLFLOW = {
    "mlflow.spanInputs": "input.value",
    "mlflow.spanOutputs": "output.value",
    "mlflow.chat.tools": "llm.tools",
    "mlflow.trace.session": "session.id",
    "mlflow.trace.user": "user.id",
}
"""OpenInference's names by MLflow's names of attributes."""
TOKENS = {"input_tokens": "prompt", "output_tokens": "completion", "total_tokens": "total"}
"""The names in OpenInference's token counts by LangSmith's names."""
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


def list_records(document: object) -> Iterator[SpanFields]:
    """List the records of an export that may be spans: those of lists, of answers of an API, of
    data frames by rows or by columns, and of traces with their own spans."""
    rows: Any
    inner: list[Any]
    if isinstance(document, list):
        for item in cast("list[object]", document):
            yield from list_records(item)
    if not isinstance(document, dict):
        return
    record = _unfold(cast("SpanFields", document))
    columns: list[Any] = list(record.values())
    if columns and all(isinstance(one, dict) and [*one] == [*columns[0]] for one in columns):
        rows = [{name: record[name][number] for name in record} for number in columns[0]]
        yield from list_records(rows)
        return
    if _is_span(record):
        yield record
        yield from list_records(record.get("child_runs"))
        return
    trace = parse_text(record.get("trace"), CONTAINERS)
    inner = [trace] if isinstance(trace, dict) else [_read_cell(record.get(n)) for n in LISTS]
    inner = [value for value in inner if isinstance(value, list | dict) and value]
    shared = _read_shared(record)
    for each in list_records(inner) if inner else ():
        yield {**each, "shared": {**shared, **each.get("shared", {})}}
    if not inner:
        yield record


def _unfold(record: SpanFields) -> SpanFields:
    """Copy the parts of a span in its `context` or `status` to fields of the span."""
    inner = {
        f"{name}.{key}": value
        for name in ("context", "status")
        for key, value in _as_fields(record.get(name)).items()
    }
    return {**record, **inner} if inner else record


def _is_span(record: SpanFields) -> bool:
    return all(_find(record, part) for part in ("trace_id", "span_id", "start"))


def _find(record: SpanFields, part: str) -> Any:
    names = (name for name in PARTS[part] if record.get(name) not in (None, ""))
    return next((record[name] for name in names), None)


def _read_shared(record: SpanFields) -> SpanFields:
    """Return the facts that a trace states for all its spans."""
    info = _as_fields(record.get("info")) or record
    return _as_fields(info.get("trace_metadata") or info.get("request_metadata"))


def _read_cell(value: Any) -> Any:
    """Parse a cell of a table, in which pandas writes containers as Python literals."""
    parsed = parse_text(value, CONTAINERS)
    if isinstance(parsed, str) and parsed.startswith(CONTAINERS):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(parsed)
    return parsed


def _as_fields(value: Any) -> SpanFields:
    """Return the fields of an object; of anything else none."""
    cell = _read_cell(value)
    return cast("SpanFields", cell) if isinstance(cell, dict) else {}


def as_span(record: SpanFields) -> SpanFields:
    """Return the fields of a span.

    Raises:
        InputError: it is no span; names the tool whose export it resembles, and the right command.
    """
    if not _is_span(record):
        raise InputError(describe_unknown(record))
    start, end = (_read_time(_find(record, part)) for part in ("start", "end"))
    code = str(_find(record, "code") or "").upper()
    failed = "ERROR" in code or code == "2" or ("run_type" in record and record.get("error"))
    message = _find(record, "message")
    return {
        **{part: _read_id(_find(record, part)) for part in ("trace_id", "span_id")},
        "parent_span_id": _read_id(_find(record, "parent_span_id")),
        "name": str(record.get("name") or ""),
        "start": start or 0,
        "end": max(end or 0, start or 0),
        "attributes": translate(_read_attributes(record)),
        "events": tuple(_read_events(_read_cell(record.get("events")))),
        "status": str(message or "") if failed else None,
    }


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


def _read_time(value: Any) -> int | None:
    """Return nanoseconds since 1970. A number's unit is inferred from its size; a text is a
    date."""
    if isinstance(value, str) and not value.strip().isdecimal():
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(f"'{value:.40}' is not a time as exports write it") from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1e6) * 1000
    if value is None:
        return None
    number = float(value)
    for limit, factor in ((1e11, 10**9), (1e14, 10**6), (1e17, 10**3)):
        if number < limit:
            return round(number * factor)
    return int(value)


def _read_attributes(record: SpanFields) -> SpanFields:
    attributes: Any = _read_cell(record.get("attributes"))
    if isinstance(attributes, list):  # OTLP's own pairs
        pairs = cast("list[SpanFields]", attributes)
        attributes = {pair["key"]: _read_wrapped(pair.get("value")) for pair in pairs}
    made = dict(cast("SpanFields", attributes)) if isinstance(attributes, dict) else {}
    for name, value in record.items():
        if name.startswith("attributes.") and value not in (None, ""):
            short = name.removeprefix("attributes.")
            made[short] = value if short in VALUES else _read_number(_read_cell(value))
    if kind := record.get("span_kind"):
        made["openinference.span.kind"] = kind
    if "run_type" in record:
        made |= _read_run(record)
    if any(name.startswith("mlflow.") for name in made):
        made = {name: parse_text(value, '[{"') for name, value in made.items()}
    return dict(_flatten("", {**record.get("shared", {}), **made}))


def _read_number(value: Any) -> Any:
    """Convert a cell of CSV, in which numbers are texts, to a number. In columns with gaps whole
    numbers have a decimal point."""
    with suppress(ValueError):
        number = float(value) if isinstance(value, str | float) else math.nan
        return int(number) if number.is_integer() else number if number == number else value
    return value


def _read_wrapped(value: Any) -> Any:
    """Return the value inside OTLP's wrapping, such as `{"stringValue": ...}`, with names in camel
    or snake case."""
    wrapped = _as_fields(value)
    for name, inner in wrapped.items():
        if inner is None:
            continue
        if "rray" in name:
            return [_read_wrapped(each) for each in inner.get("values", ())]
        return int(inner) if name.startswith("int") else inner
    return None if wrapped else value


def _read_run(record: SpanFields) -> SpanFields:
    """Return the attributes of a LangSmith run under OpenInference's names."""
    extra = _as_fields(record.get("extra"))
    metadata, called = (_as_fields(extra.get(name)) for name in ("metadata", "invocation_params"))
    return {
        "openinference.span.kind": RUNS.get(str(record["run_type"]), "CHAIN"),
        "input.value": _read_cell(record.get("inputs")),
        "output.value": unwrap_result(_read_cell(record.get("outputs"))),
        "llm.tools": called.get("tools"),
        **{f"llm.token_count.{name}": record.get(f"{name}_tokens") for name in TOKENS.values()},
        **{name: metadata[key] for key, name in METADATA.items() if key in metadata},
    }


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield nested attributes under their flat names in spans; other values become JSON."""
    for key, inner in cast("SpanFields", value).items():
        name = f"{prefix}{key}"
        if inner is None:
            continue
        is_nested = name.startswith(NESTED) and name not in VALUES
        if is_nested and isinstance(inner, dict):
            yield from _flatten(f"{name}.", inner)
        elif is_nested and isinstance(inner, list):
            items = {str(n): each for n, each in enumerate(cast("list[Any]", inner))}
            yield from _flatten(f"{name}.", items)
        else:
            plain = isinstance(inner, str | int | float | list)
            yield name, inner if plain else json.dumps(inner, ensure_ascii=False, default=str)


VALUES = ("input.value", "output.value")
"""The attributes with a span's whole input and output, which are not flattened."""
NESTED = (
    *("llm", "retrieval", "reranker", "embedding", "openinference", "gen_ai.usage"),
    *("input", "output", "session", "user", "tool", "agent"),
)
"""The groups of attributes that are flattened."""


def translate(attributes: SpanFields) -> SpanFields:
    """Replace MLflow's attributes by OpenInference's; other attributes, and spans of other tools,
    stay unchanged."""
    if "mlflow.spanType" not in attributes:
        return attributes
    read = {name: parse_text(attributes.get(name)) for name in attributes if name.startswith("mlf")}
    kind = KINDS.get(str(read["mlflow.spanType"]).upper(), "CHAIN")
    made: SpanFields = {"openinference.span.kind": kind}
    made |= {new: read[old] for old, new in MLFLOW.items() if old in read}
    for name, count in _as_fields(read.get("mlflow.chat.tokenUsage")).items():
        if name in TOKENS:
            made[f"llm.token_count.{TOKENS[name]}"] = count
    return {**made, **{name: value for name, value in attributes.items() if name not in read}}


def _read_events(events: Any) -> Iterator[tuple[str, SpanFields]]:
    for event in cast("list[Any]", events) if isinstance(events, list) else ():
        if isinstance(event, dict):
            fields = cast("SpanFields", event)
            inner = _read_attributes({"attributes": fields.get("attributes")})
            yield str(fields.get("name") or ""), inner
