"""Read spans and logs from the documents of files: OTLP's JSON, as an exporter or a collector of
OpenTelemetry writes it, exports of Phoenix, MLflow and LangSmith, and trajectories in ATIF.

A file is one document, or has one on each line; OTLP's names are in the style of JSON or of the
protocol's files. Some instrumentations write messages to logs, not to spans: a file may have both,
in any order. The table `PARTS` lists the names that the tools use for the parts of a span. `MLFLOW`
and `METADATA` translate a tool's names of attributes to those that `span_states.py` reads.
`traces.py` converts the spans to nodes.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from string import hexdigits
from typing import Any, TypeAlias, cast

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from textevolve.errors import InputError, shorten_error
from textevolve.json_texts import (
    CONTAINERS,
    as_array,
    as_object,
    is_array,
    is_object,
    parse_text,
    write_text,
)
from textevolve.mappings import omit, pick
from textevolve.node_eval.judging import Reading
from textevolve.node_eval.span_states import Span, SpanEvent, as_fields, unwrap_result
from textevolve.protocol.contents import as_count
from textevolve.rows.trajectories import METRICS, id_of, is_trajectory, read_steps
from textevolve.texts.dates import read_moment

Lines = Iterable[tuple[str, str]]
"""The lines of a file, each with its place for error messages."""
Documents = Iterable[tuple[str, object]]
"""The JSON documents of a file, each with its place for error messages."""

MESSAGE_LOGS = "gen_ai."
"""The prefix of the names of logs that hold messages of models; other logs belong to the
application."""

SpanFields: TypeAlias = dict[str, Any]
"""The fields of a span or of another record of an export."""

PARTS: Mapping[str, Sequence[str]] = {
    "trace_id": ("context.trace_id", "context.traceId", "trace_id", "traceId"),
    "span_id": ("context.span_id", "context.spanId", "span_id", "spanId", "id"),
    "parent_span_id": ("parent_id", "parent_span_id", "parent_run_id", "parentSpanId"),
    "start": ("start_time", "start_time_unix_nano", "start_time_ns", "startTimeUnixNano"),
    "end": ("end_time", "end_time_unix_nano", "end_time_ns", "endTimeUnixNano"),
    "code": ("status_code", "status.code", "status.status_code", "status"),
    "message": ("status_message", "status.message", "status.description", "error"),
}
"""The names that tools use for each part of a span; the first one with a value is read."""
IDS = ("trace_id", "span_id", "parent_span_id")
"""The parts of spans and logs that are ids. They are no base64, which protobuf would expect."""
UNPARSED = {"links", *(name for part in IDS for name in PARTS[part])}

HEXADECIMAL = {*hexdigits, "-"}
"""The characters of an id in hexadecimal digits."""

EXPORT = "export"
SPAN = "span"
LOG = "log"
TRAJECTORY = "trajectory"
FORMS = {"resourceSpans": SPAN, "resource_spans": SPAN, "resourceLogs": LOG, "resource_logs": LOG}
"""The forms of records by the fields of OTLP's documents in which they are; others are `EXPORT`, or
a `TRAJECTORY` in ATIF."""
LISTS = (
    *(*FORMS, "scopeSpans", "scope_spans", "scopeLogs", "scope_logs", "logRecords", "log_records"),
    *("data", "runs", "spans", "traces", "child_runs"),
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
LANGFUSE = {
    "langfuse.observation.type": "openinference.span.kind",
    "langfuse.observation.input": "input.value",
    "langfuse.observation.output": "output.value",
}
"""OpenInference's names by those of Langfuse's own attributes."""
TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
"""LangSmith's names of the numbers of tokens."""
METADATA = {
    **dict.fromkeys(("thread_id", "conversation_id"), "gen_ai.conversation.id"),
    "session_id": "session.id",
    "user_id": "user.id",
    "langgraph_node": "langgraph.node",
}
"""OpenInference's names by the names of fields in LangSmith's metadata."""

COMMANDS: Mapping[str, tuple[Sequence[str], str]] = {
    "Phoenix": (
        ("context", "span_kind", "context.span_id", "project_id", "cumulative"),
        "GET /v1/projects/NAME/spans, or Client().spans.get_spans(project_identifier=NAME)",
    ),
    "MLflow": (
        ("info", "trace_id", "traceId", "execution_duration", "trace_metadata"),
        "mlflow.search_traces(), or mlflow.get_trace(ID).to_json()",
    ),
    "LangSmith": (
        ("run_type", "dotted_order", "session_id", "inputs", "outputs"),
        "[run.model_dump(mode='json') for run in Client().list_runs(project_name=NAME)]",
    ),
    "Langfuse": (
        ("observations", "parentObservationId", "sessionId", "completionStartTime"),
        "an OpenTelemetry exporter beside Langfuse's own, to a file of OTLP JSON",
    ),
}
"""For each tool, the fields by which an export without spans is recognised, and the command that
exports spans."""

COMMON = {"inputs", "outputs", "info", "context", "session_id", "sessionId"}
"""Names of fields that many programs use."""


Log: TypeAlias = tuple[tuple[str, str], int, SpanEvent]
"""A log record: the ids of its trace and its span, empty outside of a span, its time, 0 if it is
unknown, and its name and attributes."""
PlacedRecord: TypeAlias = tuple[str, Span | Log]
"""A span or a log after its place for error messages."""


def _read_value(value: Any) -> Any:
    """Return the value inside OTLP's wrapping; None if there is none."""
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return list(map(_read_value, value.array_value.values))
        case "kvlist_value":
            return _read_pairs(value.kvlist_value.values)
        case kind:
            return getattr(value, kind)


def _read_pairs(pairs: Any) -> dict[str, Any]:
    return {pair.key: _read_value(pair.value) for pair in pairs}


def _parse_message(raw: object, message: Any) -> list[str]:
    """Parse the fields of a span or a log into its message, and return its ids."""
    if not is_object(raw):
        raise ParseError(f"must be a JSON object, but is of type {type(raw).__name__}")
    parsed = omit(raw, UNPARSED)
    ParseDict(parsed, message, ignore_unknown_fields=True)
    return [_read_id(_find_part(raw, part)) for part in IDS]


def _read_span(raw: object) -> Span:
    span: Any = SpanMessage()
    trace_id, span_id, parent = _parse_message(raw, span)
    if not trace_id or not span_id:
        raise ParseError("it has no traceId or no spanId")
    start = span.start_time_unix_nano
    end = span.end_time_unix_nano
    events = tuple((event.name, _read_pairs(event.attributes)) for event in span.events)
    failed = span.status.code == Status.STATUS_CODE_ERROR
    status = span.status.message if failed else None
    attributes = translate(_read_pairs(span.attributes))

    return Span(trace_id, span_id, parent, span.name, start, end, attributes, events, status)


def _read_log(raw: object) -> Log:
    log: Any = LogRecord()
    trace_id, span_id, _ = _parse_message(raw, log)
    body = parse_text(_read_value(log.body), "{")
    fields = _read_pairs(log.attributes)
    if body is not None:
        fields |= body if isinstance(body, dict) else {"content": body}
    name = log.event_name or str(fields.get("event.name", ""))
    time: int = log.time_unix_nano or log.observed_time_unix_nano

    return (trace_id, span_id), time, (name, fields)


def _read_exported(raw: object) -> Span:
    """Read a span of an export; some have OTLP's own spans.

    Raises:
        InputError: it is no span; names the tool whose export it resembles, and the right command.
    """
    record = as_fields(raw)
    if isinstance(record.get("attributes"), list):
        return _read_span(record)
    if "shared" not in record:
        raise InputError(_describe_unknown(record))

    start, end = (_read_time(_find_part(record, part)) for part in ("start", "end"))
    attributes = translate({**record["shared"], **_read_attributes(record)})
    events: list[tuple[str, dict[str, Any]]] = []
    for event in map(as_fields, as_array(parse_text(record.get("events"), CONTAINERS))):
        name = str(event.get("name") or "")
        events.append((name, _flatten(as_fields(event.get("attributes")))))

    # Exports write the code as OTLP's number or name; runs of LangSmith have an error alone.
    code = str(_find_part(record, "code") or "").upper()
    problem = None
    if "ERROR" in code or code == "2" or ("run_type" in record and record.get("error")):
        problem = write_text(_find_part(record, "message") or "")

    return Span(
        _read_id(_find_part(record, "trace_id")),
        _read_id(_find_part(record, "span_id")),
        _read_id(_find_part(record, "parent_span_id")),
        str(record.get("name") or ""),
        start,
        end,
        _flatten(attributes),
        tuple(events),
        problem,
    )


def is_export(record: Mapping[str, Any]) -> bool:
    """Return whether the first line of a file belongs to an export, and not to TextEvolve's own
    format."""
    known_names = frozenset(LISTS).union(*(names for names, _ in COMMANDS.values()))
    return bool(known_names & record.keys()) and not {"node", "instruction"} & record.keys()


def _describe_unknown(record: Mapping[str, Any]) -> str:
    """Say which tool's export a record resembles, and that tool's command for a readable one."""

    def resemble(tool: str) -> int:
        return len(record.keys() & COMMANDS[tool][0])

    tool = max(COMMANDS, key=resemble)
    # One name that many programs use says nothing about a program.
    if resemble(tool) < 2 and not (record.keys() & COMMANDS[tool][0]) - COMMON:
        tools = ", ".join(list(COMMANDS)[:-1])
        return f"not an OTLP trace: it has no resourceSpans, and it is not an export of {tools}"

    return f"resembles an export of {tool}, but has no spans; readable: {COMMANDS[tool][1]}"


def _read_id(value: Any) -> str:
    """Return an id in small hexadecimal digits. MLflow and protobuf's own JSON write base64, and
    some tools write capitals, also for one of two spans alone."""
    text = str(value or "")
    if text.endswith("=") or (len(text) in (11, 12, 22, 24) and not text.isalnum()):
        with suppress(ValueError):
            return base64.b64decode(text, validate=True).hex()
    return text.lower() if set(text) <= HEXADECIMAL else text


def _read_time(value: Any) -> int:
    """Return nanoseconds since 1970; 0 for None. A number's unit is inferred from its size; a text
    is a date."""
    if isinstance(value, str) and not value.strip().isdecimal():
        try:
            value = read_moment(value)
        except ValueError as error:
            raise InputError(str(error)) from None

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
    return as_count(parse_text(value, (*CONTAINERS, *"-0123456789")))


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


def _flatten(fields: SpanFields, prefix: str = "") -> SpanFields:
    """Return nested attributes under their flat names in spans; other objects become JSON."""
    flat: SpanFields = {}
    for key, inner in fields.items():
        name = f"{prefix}{key}"
        place = f"{prefix}{key}."
        if place.startswith(NESTED) and name not in VALUES and isinstance(inner, dict | list):
            parts = cast(object, inner)
            pairs = as_object(parts).items() or enumerate(as_array(parts))
            flat |= _flatten({str(part): each for part, each in pairs}, place)
        elif inner is not None:
            flat[name] = inner if isinstance(inner, int | float | list) else write_text(inner)

    return flat


VALUES = ("input.value", "output.value")
"""The attributes with a span's whole input and output, which are not flattened."""
NESTED = (
    *("llm.", "retrieval.", "reranker.", "embedding.", "openinference.", "gen_ai.usage."),
    *("input.", "output.", "session.", "user.", "tool.", "agent."),
)
"""The groups of attributes that are flattened."""


def translate(attributes: SpanFields) -> SpanFields:
    """Replace MLflow's names of attributes, whose values are all JSON, by those of the conventions,
    and add those of the conventions to Langfuse's; spans of other tools stay unchanged."""
    if "mlflow.spanType" not in attributes:
        known = {LANGFUSE[name]: attributes[name] for name in LANGFUSE if name in attributes}
        return known | attributes
    fields_by_name = {
        MLFLOW.get(name, name): parse_text(value)
        for name, value in attributes.items()
        if name in MLFLOW or not name.startswith("mlflow.")
    }

    return _flatten(fields_by_name)


def _list_records(document: object, form: str, shared: SpanFields) -> Iterator[tuple[str, object]]:
    """List the records of a document that may be spans or logs, each with its form: those of lists,
    of OTLP, of answers of an API, of data frames by rows or by columns, and of traces with their
    own spans. `shared`: the facts that the trace around them states for all its spans."""
    inner: list[tuple[str, object]] = []
    record = _unfold(as_object(document))
    columns: list[Any] = list(record.values())

    if is_array(document):
        inner = [("", item) for item in as_array(document)]
    elif is_trajectory(record):
        yield TRAJECTORY, document
    elif columns and all(
        isinstance(column, dict) and [*column] == [*columns[0]] for column in columns
    ):
        inner = [("", {name: record[name][key] for name in record}) for key in columns[0]]
    elif all(_find_part(record, part) for part in ("trace_id", "span_id", "start")):
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
        yield from _list_records(part, FORMS.get(name, form), shared)


def _unfold(record: SpanFields) -> SpanFields:
    """Copy the parts of a span in its `context` or `status` to fields of the span."""
    inner = {
        f"{name}.{key}": value
        for name in ("context", "status")
        for key, value in as_fields(record.get(name)).items()
    }
    return {**record, **inner} if inner else record


def _find_part(record: SpanFields, part: str) -> Any:
    """Return a part of a span or a log by the names of `PARTS`; None without it."""
    names = (name for name in PARTS[part] if record.get(name) not in (None, ""))
    return next((record[name] for name in names), None)


def read_traces(
    documents: Documents, source: str, reading: Reading
) -> Iterator[tuple[str, dict[str, Span]]]:
    """Read the spans of each trace by their ids, in the order in which the traces began; logs
    become events of their spans. All spans are held in memory, since those of one trace may be
    anywhere in the file.

    Raises:
        InputError: a file cannot be read, or is not JSON.
    """
    records = (
        placed
        for where, document in documents
        for placed in place_records(where, document, reading)
    )
    return group_records(records, source, reading)


def group_records(
    records: Iterable[PlacedRecord], source: str, reading: Reading
) -> Iterator[tuple[str, dict[str, Span]]]:
    """Group spans and logs by their traces, as `read_traces` does."""
    spans: dict[str, dict[str, Span]] = {}
    messages: dict[tuple[str, str], list[tuple[int, SpanEvent]]] = {}

    for place, record in records:
        if isinstance(record, Span):
            # An exporter that is not sure whether a batch arrived sends it again.
            trace = spans.setdefault(record.trace_id, {})
            if trace.setdefault(record.span_id, record) != record:
                reading.report(f"{place}: another span has the id {record.span_id} too")
            continue

        place_ids, time, event = record
        group = messages.setdefault(place_ids, [])
        if event[0].startswith(MESSAGE_LOGS) and not (time and (time, event) in group):
            group.append((time, event))

    lost = 0

    for (trace_id, span_id), group in messages.items():
        if span := spans.get(trace_id, {}).get(span_id):
            events = (event for _, event in sorted(group, key=itemgetter(0)))
            spans[trace_id][span_id] = replace(span, events=(*span.events, *events))
        else:
            lost += len(group)

    yield from sorted(
        spans.items(), key=lambda trace: min(span.start for span in trace[1].values())
    )
    if lost:
        reading.report(f"{source}: {lost:,} logs of messages belong to none of its spans")


def read_documents(lines: Lines, source: str, reading: Reading) -> Iterator[tuple[str, object]]:
    """Read each line as a document if the first line is a complete one, otherwise the whole file as
    one document.

    Raises:
        InputError: it is not JSON.
    """
    later_lines = iter(lines)
    where, first_line = next(later_lines)

    with suppress(InputError):
        yield where, parse_document(where, first_line)
        for where, line in later_lines:
            try:
                yield where, parse_document(where, line)
            except InputError as error:
                reading.report(str(error))

        return

    yield source, parse_document(source, first_line + "".join(line for _, line in later_lines))


def _read_trajectory(
    document: Mapping[str, Any], where: str, trace: str, parent: str = ""
) -> Iterator[Span]:
    """Yield the spans of a trajectory in ATIF: one for each step of its agent and for each of its
    tool calls, in their order. A step without a time has that of the step before it. A step that
    was copied from an earlier trajectory is no step of this one, only a part of its input.

    Args:
        document: The trajectory.
        where: Its place, which makes the ids of its spans unique.
        trace: The id of the trace.
        parent: The id of the span around it, if it is of a sub-agent.
    """
    agent = as_object(document.get("agent"))
    before: list[object] = []
    start = 0

    for number, step in enumerate(read_steps(document), 1):
        fields = step.fields
        start = max(start, _read_time(fields.get("timestamp")))
        own_messages = [message for message in step.messages if message["role"] == "assistant"]
        spans: list[tuple[str, object, SpanFields]] = []
        if fields.get("source") == "agent":
            model = fields.get("model_name") or agent.get("model_name") or agent.get("name")
            metrics = as_object(fields.get("metrics"))
            attributes = {
                "openinference.span.kind": "CHAIN" if fields.get("llm_call_count") == 0 else "LLM",
                "gen_ai.input.messages": [*before] or None,
                "gen_ai.output.messages": own_messages or None,
                "gen_ai.usage": metrics,
                "gen_ai.tool.definitions": agent.get("tool_definitions"),
                **pick(metrics, METRICS),
            }
            spans.append((f"{where} {number}", model, attributes))

        results = {message.get("tool_call_id"): message["content"] for message in step.messages}
        for call in as_array(own_messages[0].get("tool_calls")) if own_messages else ():
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.call.arguments": call["arguments"],
                "gen_ai.tool.call.result": results.get(call["id"]),
            }
            spans.append((f"{where} {call['id']}", call["name"], attributes))

        before += step.messages
        for id, name, attributes in spans:
            shown = {} if fields.get("is_copied_context") else _flatten(attributes)
            yield Span(trace, id, parent, str(name or "agent"), start, 0, shown, (), None)
        for id, subagent in step.subagents:
            caller = f"{where} {id}"
            yield from _read_trajectory(subagent, f"{caller} {id_of(subagent)}", trace, caller)


def parse_document(where: str, text: str | bytes) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON: {str(error).split(';')[0]}") from None
    except RecursionError:
        raise InputError(f"{where}: not a trace: nested too deeply") from None


READERS: Mapping[str, Callable[[object], Span | Log]] = {
    EXPORT: _read_exported,
    SPAN: _read_span,
    LOG: _read_log,
}
"""The functions that read records, by their forms."""
UNREADABLE = (
    *(InputError, ParseError, ArithmeticError),
    *(ValueError, TypeError, AttributeError, KeyError),
)
"""The errors of records that cannot be used."""


def place_records(where: str, document: object, reading: Reading) -> Iterator[PlacedRecord]:
    """Read each span and each log of a document; report each that cannot be used."""
    numbers: Counter[str] = Counter()
    for form, record in _list_records(document, EXPORT, {}):
        noun = form if form in (LOG, TRAJECTORY) else SPAN
        numbers[noun] += 1
        place = f"{where}: {noun} {numbers[noun]}"
        try:
            if form == TRAJECTORY:
                trajectory = as_object(record)
                trace = id_of(trajectory) or place
                yield from [(place, s) for s in _read_trajectory(trajectory, place, trace)]
            else:
                yield place, READERS[form](record)
        except UNREADABLE as error:
            reading.report(f"{place}: {shorten_error(error)}")
