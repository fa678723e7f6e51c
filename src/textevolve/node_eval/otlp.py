"""OTLP's JSON: spans as an exporter or a collector writes them, decoded one by one.

One document, or one on each line; names in the form of JSON or of the protocol's files. What a span
means is the business of `otel.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.node_eval.episodes import Reading


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


def holds_spans(data: object) -> bool:
    return isinstance(data, dict) and ("resourceSpans" in data or "resource_spans" in data)


def read_documents(
    lines: Iterable[tuple[str, str]], source: str, reading: Reading
) -> Iterator[tuple[str, object]]:
    """Each line by itself where the first is one whole document; else the file is one."""
    rest = iter(lines)
    where, first = next(rest)
    try:
        yield where, json.loads(first)
    except (ValueError, RecursionError):
        text = first + "".join(line for _, line in rest)
        try:
            yield source, json.loads(text)
        except ValueError as error:
            raise InputError(f"{source}: not valid JSON: {str(error).split(';')[0]}") from None
        except RecursionError:
            raise InputError(f"{source}: not a trace: nested too deeply") from None
        return
    for where, line in rest:
        try:
            yield where, json.loads(line)
        except ValueError as error:
            reading.report(f"{where}: not valid JSON: {str(error).split(';')[0]}")
        except RecursionError:
            reading.report(f"{where}: nested too deeply")


def raw_spans(where: str, document: object, reading: Reading) -> Iterator[tuple[str, object]]:
    documents = cast(list[object], document) if isinstance(document, list) else [document]
    number = 0
    for one in documents:
        if not holds_spans(one):
            reading.report(f"{where}: no OTLP trace: it has no resourceSpans")
            continue
        for resource in _items(one, "resourceSpans", "resource_spans"):
            for scope in _items(resource, "scopeSpans", "scope_spans"):
                for span in _items(scope, "spans"):
                    number += 1
                    yield f"{where}: span {number}", span


def parse_span(where: str, raw: object) -> Span:
    """
    Raises:
        InputError: it lacks an id or a time, or is no object.
    """
    trace, id = (_get(raw, *names) for names in (("traceId", "trace_id"), ("spanId", "span_id")))
    if not isinstance(trace, str) or not isinstance(id, str) or not trace or not id:
        raise InputError(f"{where}: has no traceId or no spanId")
    start = _nanoseconds(where, raw, "startTimeUnixNano", "start_time_unix_nano")
    end = _nanoseconds(where, raw, "endTimeUnixNano", "end_time_unix_nano")
    if end < start:
        raise InputError(f"{where}: ends before it starts")
    attributes = _attributes(raw)
    events = [
        (str(_get(event, "name") or ""), _attributes(event)) for event in _items(raw, "events")
    ]
    return Span(
        trace=trace,
        id=id,
        parent=str(_get(raw, "parentSpanId", "parent_span_id") or ""),
        name=str(_get(raw, "name") or ""),
        start=start,
        end=end,
        attributes=attributes,
        events=tuple(events),
        status=_status(raw),
    )


def _status(raw: object) -> str | None:
    """What is said of a span that failed; None where it did not."""
    status = _get(raw, "status")
    if _get(status, "code") not in (2, "2", "STATUS_CODE_ERROR"):
        return None
    return str(_get(status, "message") or "")


def _nanoseconds(where: str, raw: object, *names: str) -> int:
    value = _get(raw, *names)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InputError(f"{where}: has no {names[0]}")
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not 0 <= number < 2**64:
        raise InputError(f"{where}: {names[0]} is no number of nanoseconds")
    return number


def _attributes(raw: object) -> dict[str, Any]:
    pairs = [(_get(one, "key"), _value(_get(one, "value"), 0)) for one in _items(raw, "attributes")]
    return {key: value for key, value in pairs if isinstance(key, str)}


def _value(raw: object, depth: int) -> Any:
    """A value out of OTLP's wrapping; None where it has none that can be read."""
    if not isinstance(raw, dict) or depth > 40:
        return None
    for name, value in cast(dict[str, Any], raw).items():
        match name:
            case "stringValue" | "string_value" | "boolValue" | "bool_value" | "bytesValue":
                return value
            case "intValue" | "int_value" | "doubleValue" | "double_value":
                return _number(value, whole=name.startswith("int"))
            case "arrayValue" | "array_value":
                return [_value(part, depth + 1) for part in _items(value, "values")]
            case "kvlistValue" | "kvlist_value":
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


def _get(raw: object, *names: str) -> object:
    if not isinstance(raw, dict):
        return None
    found = cast(dict[str, object], raw)
    return next((found[name] for name in names if name in found), None)


def _items(raw: object, *names: str) -> list[object]:
    value = _get(raw, *names)
    return cast(list[object], value) if isinstance(value, list) else []
