"""Spans and the logs that belong to them, gathered trace by trace.

Some instrumentations write what was said to logs, not to spans. Both may stand in one file, in any
order, or in several. How one is decoded is in `otlp.py`, what it means in `otel.py`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from textevolve.errors import InputError
from textevolve.node_eval.episodes import Reading
from textevolve.node_eval.otlp import (
    Log,
    Span,
    parse_log,
    parse_span,
    raw_records,
    read_documents,
    start_of,
    trace_of,
)
from textevolve.reach import is_file
from textevolve.rows import read_lines

Lines = Iterable[tuple[str, str]]

OURS = "gen_ai."
"""Logs of other names are an application's own, and say nothing of what a model was asked."""


@dataclass(slots=True)
class _Gathered:
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    logs: dict[str, list[Log]] = field(default_factory=dict[str, list[Log]])


def read_traces(
    lines: Lines, source: str, logs: Sequence[str], reading: Reading
) -> Iterator[tuple[str, dict[str, Span]]]:
    """The spans of each trace by their ids, in the order in which the traces began; logs are among
    their events. `lines` are those of `source`; `logs` are further files.

    Spans of a trace may be spread over a whole file. Files of whole lines are read twice, first to
    see where each trace ends, so that no more is held than the traces that overlap. What is one
    document, or cannot be read twice, is held as a whole.

    Raises:
        InputError: a file cannot be read, is empty, or no JSON.
    """
    head = list(itertools.islice(lines, 2))
    lines = itertools.chain(head, lines)
    several = len(head) + len(logs) > 1 and head[0][1].rstrip().endswith(("}", "]"))
    twice = several and all(is_file(one) for one in (source, *logs))
    ends = deque(_find_ends(source, logs) if twice else [])
    expected = {trace for trace, _ in ends} if twice else None
    known: dict[str, _Gathered] = {}
    lost = 0
    for number, (where, document) in enumerate(_read_all(lines, source, logs, reading)):
        for place, raw, is_span in raw_records(where, document, reading):
            try:
                lost += _add(place, raw, is_span, known, expected)
            except InputError as error:
                reading.report(str(error))
        while ends and ends[0][1] <= number:
            trace, _ = ends.popleft()
            if expected is not None:
                expected.discard(trace)
            found = known.pop(trace, _Gathered())
            lost += _count_lost(found)
            if found.spans:
                yield trace, _join(found)
    lost += sum(map(_count_lost, known.values()))
    left = [(trace, _join(found)) for trace, found in known.items() if found.spans]
    yield from sorted(left, key=lambda one: min(span.start for span in one[1].values()))
    if lost:
        reading.report(f"{source}: {lost:,} logs of messages belong to none of its spans")


def _read_all(
    lines: Lines, source: str, logs: Sequence[str], reading: Reading
) -> Iterator[tuple[str, object]]:
    yield from read_documents(lines, source, reading)
    for path in logs:
        yield from read_documents(read_lines(path), path, reading)


def _find_ends(source: str, logs: Sequence[str]) -> list[tuple[str, int]]:
    """Each trace that has spans, in the order in which they began, with the number of the last
    document that has anything of it."""
    starts: dict[str, int] = {}
    last: dict[str, int] = {}
    silent = Reading()  # what is wrong is said when it is read again
    documents = _read_all(read_lines(source), source, logs, silent)
    for number, (where, document) in enumerate(documents):
        for place, raw, is_span in raw_records(where, document, silent):
            trace = trace_of(raw)
            last[trace] = number
            with suppress(InputError):
                if is_span:
                    start = start_of(place, raw)
                    starts[trace] = min(start, starts.get(trace, start))
    return [(trace, last[trace]) for trace in sorted(starts, key=starts.__getitem__)]


def _add(
    place: str,
    raw: object,
    is_span: bool,
    known: dict[str, _Gathered],
    expected: Container[str] | None,
) -> int:
    """Put a span or a log to its trace; the number of logs that have none.

    Raises:
        InputError: it cannot be used.
    """
    if is_span:
        span = parse_span(place, raw)
        if expected is not None and span.trace not in expected:
            raise InputError(f"{place}: was written while the file was read; read it again")
        spans = known.setdefault(span.trace, _Gathered()).spans
        # An exporter that is not sure whether a batch arrived sends it again.
        if spans.setdefault(span.id, span) != span:
            raise InputError(f"{place}: another span has the id {span.id} too")
        return 0
    log = parse_log(place, raw)
    if not log.name.startswith(OURS):
        return 0
    if not log.trace or (expected is not None and log.trace not in expected):
        return 1
    kept = known.setdefault(log.trace, _Gathered()).logs.setdefault(log.span, [])
    if not log.time or log not in kept:
        kept.append(log)
    return 0


def _count_lost(found: _Gathered) -> int:
    return sum(len(logs) for span, logs in found.logs.items() if span not in found.spans)


def _join(found: _Gathered) -> dict[str, Span]:
    """The spans, with the logs that were written in each, by time, after its own events."""
    for id, logs in found.logs.items():
        if id in found.spans:
            events = [(log.name, log.fields) for log in sorted(logs, key=lambda one: one.time)]
            span = found.spans[id]
            found.spans[id] = replace(span, events=(*span.events, *events))
    return found.spans
