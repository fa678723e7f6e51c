"""Read the JSON of OTLP, OpenTelemetry's protocol: spans and logs as an exporter or a collector
writes them, trace by trace. Spans in exports of other tools, which `exports.py` flattens, are read
as well.

A file is one document, or has one on each line; names are in the style of JSON or of the protocol's
files. Some instrumentations write messages to logs, not to spans: a file may have both, in any
order. `otel.py` converts the spans to nodes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from textevolve.errors import InputError
from textevolve.json_texts import parse_text
from textevolve.node_eval.episodes import Reading
from textevolve.node_eval.exports import (
    EXPORT,
    LOG,
    PARTS,
    SPAN,
    SpanFields,
    as_span,
    find_part,
    list_records,
    translate,
)
from textevolve.node_eval.span_messages import as_fields
from textevolve.node_eval.span_states import Event, Span

Lines = Iterable[tuple[str, str]]
"""The lines of a file, each with its place for error messages."""
Documents = Iterable[tuple[str, object]]
"""The JSON documents of a file, each with its place for error messages."""

MESSAGE_LOGS = "gen_ai."
"""The prefix of the names of logs that hold messages of models; other logs belong to the
application."""

IDS = ("trace_id", "span_id", "parent_span_id")
"""The parts of spans and logs that are ids. They are no base64, which protobuf would expect."""
UNPARSED = {"links", *(name for part in IDS for name in PARTS[part])}


@dataclass(frozen=True)
class Log:
    """A log record. `trace_id` and `span_id` are empty outside of a span; `time` is 0 if it is
    unknown."""

    trace_id: str
    span_id: str
    time: int
    event: Event


def _read_value(value: Any) -> Any:
    """Return the value inside OTLP's wrapping; None if there is none."""
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_read_value(part) for part in value.array_value.values]
        case "kvlist_value":
            return _read_pairs(value.kvlist_value.values)
        case kind:
            return getattr(value, kind)


def _read_pairs(pairs: Any) -> dict[str, Any]:
    return {pair.key: _read_value(pair.value) for pair in pairs}


def _parse_message(raw: object, message: Any) -> list[str]:
    """Parse the fields of a span or a log into its message, and return its ids."""
    if not isinstance(raw, dict):
        raise ParseError(f"must be a JSON object, but is of type {type(raw).__name__}")
    fields = cast("SpanFields", raw)
    parsed = {name: value for name, value in fields.items() if name not in UNPARSED}
    ParseDict(parsed, message, ignore_unknown_fields=True)
    return [str(find_part(fields, part) or "") for part in IDS]


def _read_span(raw: object) -> Span:
    span: Any = SpanMessage()
    trace_id, span_id, parent = _parse_message(raw, span)
    if not trace_id or not span_id:
        raise ParseError("it has no traceId or no spanId")
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if end < start:
        raise ParseError("it ends before it starts")
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
    return Log(trace_id, span_id, log.time_unix_nano or log.observed_time_unix_nano, (name, fields))


def _read_exported(raw: object) -> Span:
    """Read a span of an export; some have OTLP's own spans."""
    record = as_fields(raw)
    return _read_span(record) if isinstance(record.get("attributes"), list) else as_span(record)


def read_traces(
    documents: Documents, source: str, reading: Reading
) -> Iterator[tuple[str, dict[str, Span]]]:
    """Read the spans of each trace by their ids, in the order in which the traces began; logs
    become events of their spans. All spans are held in memory, since those of one trace may be
    anywhere in the file.

    Raises:
        InputError: a file cannot be read, is empty, or is not JSON.
    """
    spans: dict[str, dict[str, Span]] = {}
    messages: dict[tuple[str, str], list[Log]] = {}
    for where, document in documents:
        for place, record in _read_records(where, document, reading):
            if isinstance(record, Span):
                # An exporter that is not sure whether a batch arrived sends it again.
                trace = spans.setdefault(record.trace_id, {})
                if trace.setdefault(record.span_id, record) != record:
                    reading.report(f"{place}: another span has the id {record.span_id} too")
            elif record.event[0].startswith(MESSAGE_LOGS):
                group = messages.setdefault((record.trace_id, record.span_id), [])
                if not record.time or record not in group:
                    group.append(record)
    lost = 0
    for (trace_id, span_id), group in messages.items():
        if span := spans.get(trace_id, {}).get(span_id):
            events = [log.event for log in sorted(group, key=lambda log: log.time)]
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
        InputError: it is empty, or not JSON.
    """
    rest = iter(lines)
    where, first = next(rest, (source, ""))
    if not first:
        raise InputError(f"{source}: no spans and no logs: it is empty")
    with suppress(InputError):
        yield where, _parse_document(where, first)
        for where, line in rest:
            try:
                yield where, _parse_document(where, line)
            except InputError as error:
                reading.report(str(error))
        return
    yield source, _parse_document(source, first + "".join(line for _, line in rest))


def _parse_document(where: str, text: str) -> object:
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
    InputError,
    ParseError,
    ArithmeticError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
)
"""The errors of records that cannot be used."""


def _read_records(
    where: str, document: object, reading: Reading
) -> Iterator[tuple[str, Span | Log]]:
    """Read each span and each log of a document; report those that cannot be used."""
    numbers: Counter[str] = Counter()
    for form, record in list_records(document, EXPORT, {}):
        noun = LOG if form == LOG else SPAN
        numbers[noun] += 1
        place = f"{where}: {noun} {numbers[noun]}"
        try:
            yield place, READERS[form](record)
        except UNREADABLE as error:
            reading.report(f"{place}: {' '.join(str(error).split())[:300]}")
