"""OTLP's JSON: spans and logs as an exporter or a collector writes them, gathered trace by trace.

One document, or one on each line; names in the form of JSON or of the protocol's files. Some
instrumentations write what was said to logs, not to spans: both may be in one file, in any order,
or in several. What a span means is the business of `otel.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.node_eval.episodes import Reading
from textevolve.rows import read_lines

Lines = Iterable[tuple[str, str]]
"""Lines of a file, each with its place for messages."""

OURS = "gen_ai."
"""Logs of other names are an application's own, and say nothing of what a model was asked."""

SIGNALS = ("resourceSpans", "resourceLogs", "resourceMetrics")


@dataclass(frozen=True, slots=True)
class Span:
    """Times in nanoseconds. `events`: each a name with its attributes."""

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    status: str | None


@dataclass(frozen=True, slots=True)
class Log:
    """`trace` and `span` are empty where it was written in none; `time` is 0 where it has none.
    `fields`: its attributes, and those of its body."""

    trace: str
    span: str
    name: str
    time: int
    fields: Mapping[str, Any]


def is_otlp(data: object) -> bool:
    return any(_get(data, signal) is not None for signal in SIGNALS)


def read_traces(
    lines: Lines, source: str, logs: Sequence[str], reading: Reading
) -> Iterator[tuple[str, dict[str, Span]]]:
    """The spans of each trace by their ids, in the order in which the traces began; logs are among
    their events. `lines` are those of `source`; `logs` are further files. Spans of a trace may be
    spread over a whole file, so all are held.

    Raises:
        InputError: a file cannot be read, is empty, or no JSON.
    """
    spans: dict[str, dict[str, Span]] = {}
    messages: dict[tuple[str, str], list[Log]] = {}
    files = [(lines, source), *((read_lines(path), path) for path in logs)]
    for where, document in (one for file in files for one in _read_documents(*file, reading)):
        for place, raw, is_span in _raw_records(where, document, reading):
            try:
                if is_span:
                    span = parse_span(place, raw)
                    # An exporter that is not sure whether a batch arrived sends it again.
                    if spans.setdefault(span.trace, {}).setdefault(span.id, span) != span:
                        raise InputError(f"{place}: another span has the id {span.id} too")
                elif (log := parse_log(place, raw)).name.startswith(OURS):
                    group = messages.setdefault((log.trace, log.span), [])
                    if not log.time or log not in group:
                        group.append(log)
            except InputError as error:
                reading.report(str(error))
    lost = 0
    for (trace, id), group in messages.items():
        if span := spans.get(trace, {}).get(id):
            group.sort(key=lambda one: one.time)
            events = [(log.name, log.fields) for log in group]
            spans[trace][id] = replace(span, events=(*span.events, *events))
        else:
            lost += len(group)
    yield from sorted(spans.items(), key=lambda one: min(s.start for s in one[1].values()))
    if lost:
        reading.report(f"{source}: {lost:,} logs of messages belong to none of its spans")


def _read_documents(lines: Lines, source: str, reading: Reading) -> Iterator[tuple[str, object]]:
    """Each line by itself where the first is one whole document; else the file is one.

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


def _raw_records(
    where: str, document: object, reading: Reading
) -> Iterator[tuple[str, object, bool]]:
    """Each span and each log of a document: its place, its content, whether it is a span."""
    documents = cast(list[object], document) if isinstance(document, list) else [document]
    spans = logs = 0
    for one in documents:
        if _get(one, "resourceSpans") is None and _get(one, "resourceLogs") is None:
            reading.report(f"{where}: no OTLP trace: it has no resourceSpans")
            continue
        for span in _nested(one, "resourceSpans", "scopeSpans", "spans"):
            spans += 1
            yield f"{where}: span {spans}", span, True
        for log in _nested(one, "resourceLogs", "scopeLogs", "logRecords"):
            logs += 1
            yield f"{where}: log {logs}", log, False


def parse_span(where: str, raw: object) -> Span:
    """
    Raises:
        InputError: it lacks an id or a time, or is no object.
    """
    trace, id = _text(_get(raw, "traceId")), _text(_get(raw, "spanId"))
    if not trace or not id:
        raise InputError(f"{where}: has no traceId or no spanId")
    start, end = (_nanoseconds(where, raw, f"{one}TimeUnixNano") for one in ("start", "end"))
    if end < start:
        raise InputError(f"{where}: ends before it starts")
    attributes = _attributes(raw)
    events = [(_text(_get(event, "name")), _attributes(event)) for event in _items(raw, "events")]
    return Span(
        trace=trace,
        id=id,
        parent=_text(_get(raw, "parentSpanId")),
        name=_text(_get(raw, "name")),
        start=start,
        end=end,
        attributes=attributes,
        events=tuple(events),
        status=_status(raw),
    )


def parse_log(where: str, raw: object) -> Log:
    """
    Raises:
        InputError: it is no object.
    """
    if not isinstance(raw, dict):
        raise InputError(f"{where}: is no log record")
    record: object = cast(object, raw)
    body = _value(_get(record, "body"), 0)
    if isinstance(body, str) and body.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    if not isinstance(body, dict):
        body = {} if body is None else {"content": body}
    fields = {**_attributes(record), **cast(dict[str, Any], body)}
    times = (_get(record, name) for name in ("timeUnixNano", "observedTimeUnixNano"))
    return Log(
        trace=_text(_get(record, "traceId")),
        span=_text(_get(record, "spanId")),
        name=_text(_get(record, "eventName")) or _text(fields.get("event.name")),
        time=next((int(time) for one in times if (time := _number(one, whole=True))), 0),
        fields=fields,
    )


def _status(raw: object) -> str | None:
    """What is said of a span that failed; None where it did not."""
    status = _get(raw, "status")
    if _get(status, "code") not in (2, "2", "STATUS_CODE_ERROR"):
        return None
    return _text(_get(status, "message"))


def _nanoseconds(where: str, raw: object, name: str) -> int:
    value = _get(raw, name)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InputError(f"{where}: has no {name}")
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number < 2**64:
        raise InputError(f"{where}: {name} is no number of nanoseconds")
    return number


def _attributes(raw: object) -> dict[str, Any]:
    pairs = [(_get(one, "key"), _value(_get(one, "value"), 0)) for one in _items(raw, "attributes")]
    return {key: value for key, value in pairs if isinstance(key, str)}


def _value(raw: object, depth: int) -> Any:
    """A value out of OTLP's wrapping; None where it has none that can be read."""
    if not isinstance(raw, dict) or depth > 40:
        return None
    for name, value in cast(dict[str, Any], raw).items():
        match name.removesuffix("Value").removesuffix("_value"):
            case "string" | "bool" | "bytes":
                return value
            case "int" | "double" as kind:
                return _number(value, whole=kind == "int")
            case "array":
                return [_value(part, depth + 1) for part in _items(value, "values")]
            case "kvlist":
                pairs = _items(value, "values")
                return {str(_get(p, "key")): _value(_get(p, "value"), depth + 1) for p in pairs}
            case _:
                pass
    return None


def _number(value: object, *, whole: bool) -> int | float | None:
    try:
        return int(cast(Any, value)) if whole else float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _nested(raw: object, name: str, *below: str) -> Iterator[object]:
    for one in _items(raw, name):
        if below:
            yield from _nested(one, *below)
        else:
            yield one


def _get(raw: object, name: str) -> object:
    """A field by its name in JSON, or by that in the protocol's files."""
    if not isinstance(raw, dict):
        return None
    found = cast(dict[str, object], raw)
    return found[name] if name in found else found.get(_snake(name))


@lru_cache
def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _items(raw: object, name: str) -> list[object]:
    value = _get(raw, name)
    return cast(list[object], value) if isinstance(value, list) else []
