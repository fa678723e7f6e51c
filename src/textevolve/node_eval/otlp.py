"""Read OTLP's JSON: spans and logs as an exporter or a collector writes them, trace by trace.

One document, or one on each line; names in the form of JSON or of the protocol's files. Some
instrumentations write messages to logs, not to spans: both may be in one file, in any order,
or in several. `otel.py` makes nodes of the spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, cast

from pydantic import (
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_snake

from textevolve.errors import InputError
from textevolve.node_eval.episodes import Reading
from textevolve.rows import read_lines

Lines = Iterable[tuple[str, str]]
"""Lines of a file, each with its place for messages."""

OURS = "gen_ai."
"""Logs of other names are an application's own, and hold no messages of a model."""

SIGNALS = ("resourceSpans", "resourceLogs", "resourceMetrics")
MOST_LEVELS = 40


def _read_value(raw: Any, depth: int = 0) -> Any:
    """Take a value out of OTLP's wrapping; None where it has none that can be read."""
    if not isinstance(raw, dict) or depth > MOST_LEVELS:
        return None
    for name, value in cast(dict[str, Any], raw).items():
        match name.removesuffix("Value").removesuffix("_value"):
            case "string" | "bool" | "bytes":
                return value
            case "int":
                return int(value)
            case "double":
                return float(value)
            case "array":
                return [_read_value(part, depth + 1) for part in _items(value, "values") or ()]
            case "kvlist":
                return _read_pairs(_items(value, "values"), depth + 1)
            case _:
                pass
    return None


def _read_pairs(pairs: Any, depth: int = 0) -> dict[str, Any]:
    return {pair["key"]: _read_value(pair.get("value"), depth) for pair in pairs or ()}


def _read_events(events: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(event.get("name") or "", _read_pairs(event.get("attributes"))) for event in events]


def _read_status(status: Any) -> str | None:
    """Return what is said of a span that failed; None where it did not."""
    if status.get("code") not in (2, "2", "STATUS_CODE_ERROR"):
        return None
    return status.get("message") or ""


def _read_body(raw: Any) -> dict[str, Any]:
    body: Any = _read_value(raw)
    if isinstance(body, str) and body.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    if isinstance(body, dict):
        return cast(dict[str, Any], body)
    return {} if body is None else {"content": body}


OtlpEvent = tuple[str, dict[str, Any]]
"""A name with its attributes."""
OtlpAttributes = Annotated[dict[str, Any], BeforeValidator(_read_pairs)]
Nanoseconds = Annotated[int, Field(ge=0, lt=2**64)]


def _named(name: str) -> Any:
    return Field(validation_alias=AliasChoices(name, to_snake(name)))


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        alias_generator=AliasGenerator(
            validation_alias=lambda name: AliasChoices(to_camel(name), name)
        ),
    )

    name: str = ""
    attributes: OtlpAttributes = {}


class Span(_Record):
    trace_id: Annotated[str, Field(min_length=1)]
    span_id: Annotated[str, Field(min_length=1)]
    parent_span_id: str = ""
    start: Nanoseconds = _named("startTimeUnixNano")
    end: Nanoseconds = _named("endTimeUnixNano")
    events: Annotated[tuple[OtlpEvent, ...], BeforeValidator(_read_events)] = ()
    status: Annotated[str | None, BeforeValidator(_read_status)] = None

    @model_validator(mode="after")
    def _check_times(self) -> Span:
        if self.end < self.start:
            raise ValueError("ends before it starts")
        return self


class Log(_Record):
    """The ids are empty where it was written in no span; `time` is 0 where it has none."""

    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""
    time_unix_nano: int = 0
    observed_time_unix_nano: int = 0
    body: Annotated[dict[str, Any], BeforeValidator(_read_body)] = {}

    @property
    def time(self) -> int:
        return self.time_unix_nano or self.observed_time_unix_nano

    @property
    def event(self) -> OtlpEvent:
        fields = {**self.attributes, **self.body}
        return self.event_name or str(fields.get("event.name", "")), fields


def is_otlp(data: object) -> bool:
    return any(_items(data, signal) is not None for signal in SIGNALS)


def read_traces(
    lines: Lines, source: str, logs: Sequence[str], reading: Reading
) -> Iterator[tuple[str, dict[str, Span]]]:
    """Read the spans of each trace by their ids, in the order in which the traces began; logs are
    among their events. `lines` are those of `source`; `logs` are further files. Spans of a trace
    may be spread over a whole file, so all are held.

    Raises:
        InputError: a file cannot be read, is empty, or no JSON.
    """
    spans: dict[str, dict[str, Span]] = {}
    messages: dict[tuple[str, str], list[Log]] = {}
    files = [(lines, source), *((read_lines(path), path) for path in logs)]
    for where, document in (one for file in files for one in _read_documents(*file, reading)):
        for place, record in _read_records(where, document, reading):
            if isinstance(record, Span):
                # An exporter that is not sure whether a batch arrived sends it again.
                trace = spans.setdefault(record.trace_id, {})
                if trace.setdefault(record.span_id, record) != record:
                    reading.report(f"{place}: another span has the id {record.span_id} too")
            elif record.event[0].startswith(OURS):
                group = messages.setdefault((record.trace_id, record.span_id), [])
                if not record.time or record not in group:
                    group.append(record)
    lost = 0
    for (trace_id, span_id), group in messages.items():
        if span := spans.get(trace_id, {}).get(span_id):
            events = [log.event for log in sorted(group, key=lambda log: log.time)]
            update = {"events": (*span.events, *events)}
            spans[trace_id][span_id] = span.model_copy(update=update)
        else:
            lost += len(group)
    yield from sorted(
        spans.items(), key=lambda trace: min(span.start for span in trace[1].values())
    )
    if lost:
        reading.report(f"{source}: {lost:,} logs of messages belong to none of its spans")


def _read_documents(lines: Lines, source: str, reading: Reading) -> Iterator[tuple[str, object]]:
    """Read each line by itself where the first is one whole document; else the file is one.

    Raises:
        InputError: it is empty, or no JSON.
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


PLACES: tuple[tuple[type[Span] | type[Log], str, tuple[str, ...]], ...] = (
    (Span, "span", ("resourceSpans", "scopeSpans", "spans")),
    (Log, "log", ("resourceLogs", "scopeLogs", "logRecords")),
)


def _read_records(
    where: str, document: object, reading: Reading
) -> Iterator[tuple[str, Span | Log]]:
    """Read each span and each log of a document; those that cannot be used are reported."""
    documents = cast(list[object], document) if isinstance(document, list) else [document]
    for one in documents:
        if all(_items(one, names[0]) is None for _, _, names in PLACES):
            reading.report(f"{where}: no OTLP trace: it has no resourceSpans")
    for kind, noun, names in PLACES:
        raws = (raw for one in documents for raw in _nested(one, *names))
        for number, raw in enumerate(raws, 1):
            place = f"{where}: {noun} {number}"
            try:
                yield place, kind.model_validate(_drop_nulls(raw))
            except ValidationError as error:
                reading.report(f"{place}: {describe_fault(error)}")
            except (TypeError, KeyError, AttributeError, OverflowError):
                reading.report(f"{place}: its attributes are not in OTLP's form")


def _drop_nulls(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    return {name: one for name, one in cast(dict[str, Any], raw).items() if one is not None}


def describe_fault(error: ValidationError) -> str:
    """Return the first fault that pydantic found, with its place."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"][:2])
    said = fault["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said


def _nested(raw: object, name: str, *below: str) -> Iterator[object]:
    for one in _items(raw, name) or ():
        if below:
            yield from _nested(one, *below)
        else:
            yield one


@lru_cache
def _snake(name: str) -> str:
    return to_snake(name)


def _items(raw: object, name: str) -> Any:
    """Return a list by its name in JSON, or by that in the protocol's files; None if it is none."""
    if not isinstance(raw, dict):
        return None
    fields = cast(dict[str, Any], raw)
    value: Any = fields.get(name, fields.get(_snake(name)))
    return cast(Any, value) if isinstance(value, list) else None
