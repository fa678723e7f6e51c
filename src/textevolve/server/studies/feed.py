"""Stream the events of a run to its watchers (clients that wait for results).

A watcher has a position in the run's records, a revision. Later records are read from the store in
pages, so slow and reconnecting watchers miss nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from textevolve.errors import TextEvolveError
from textevolve.evaluation import Usage
from textevolve.remote.wire import (
    ENDED,
    RunProgress,
    WireRecord,
    WireStatus,
    WireUsage,
)
from textevolve.server.studies.runner import Runner
from textevolve.store import Store
from textevolve.store.records import StoredRecord

LOOK_SECONDS = 0.5
"""The seconds between two looks at a watched run for new records."""
SUM_INTERVAL_FACTOR = 20
"""The factor that limits how often the sums of `progress` are computed: after each computation they
are left alone for this many times its duration."""
PAGE_RECORDS = 100
QUIET_SECONDS = 15.0
"""The seconds without an event after which a watcher is sent an empty line, so its connection stays
open."""

log = logging.getLogger("textevolve.server")


async def stream_events(runner: Runner, run_id: str, after: int = 0) -> AsyncGenerator[bytes]:
    """Yield the events of a run after a revision, until the run or the server ends or the store
    cannot be read: new records, and the status and the progress when they have changed. The final
    status comes after all records."""
    last: dict[str, bytes] = {}
    sum_at, heard = 0.0, time.monotonic()
    while not runner.ending.is_set():
        try:
            status, records = await asyncio.to_thread(_look, runner, run_id, after)
            is_over = status.status in ENDED
            status_event = encode_event("status", status.model_dump())
            news = {} if is_over else {"status": status_event}
            now = time.monotonic()
            if is_over or now >= sum_at:
                news["progress"] = await asyncio.to_thread(_sum_up, runner.store, run_id)
                sum_at = now + SUM_INTERVAL_FACTOR * (time.monotonic() - now)
        except TextEvolveError as error:
            log.warning("the progress of run %s cannot be read: %s", run_id, error)
            return
        parts = [event for name, event in news.items() if last.get(name) != event]
        parts += map(encode_record, records)
        parts += [status_event] if is_over and not records else []
        last |= news
        if parts:
            heard = now
            yield b"".join(parts)
        elif now - heard > QUIET_SECONDS:
            heard = now
            yield b": nothing new\n\n"
        if records:
            after = records[-1].revision
        elif is_over:
            return
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(runner.ending.wait(), LOOK_SECONDS)


def _look(runner: Runner, run_id: str, after: int) -> tuple[WireStatus, Sequence[StoredRecord]]:
    """Return a run's status and its next records after a revision, at most `PAGE_RECORDS`. The
    status is read first, so an ended run's records are complete."""
    store = runner.store
    status, reason = runner.status_of(store.get_run(run_id), store.get_served(run_id))
    records = store.read_changes(run_id, after, PAGE_RECORDS)
    return WireStatus(status=status, reason=reason), records


def _sum_up(store: Store, run_id: str) -> bytes:
    totals = store.run_totals(run_id)
    progress = RunProgress(
        cases=store.get_run(run_id).n_cases,
        records=store.count_records(run_id),
        spent=wire_usage(totals.spent),
        reused=wire_usage(totals.reused),
    )
    return encode_event("progress", progress.model_dump())


def wire_usage(usage: Usage) -> WireUsage:
    return WireUsage(**{name: getattr(usage, name) for name in WireUsage.model_fields})


def encode_event(name: str, data: Any) -> bytes:
    """Return an event in the format of server-sent events."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def encode_record(record: StoredRecord) -> bytes:
    return b"id: %d\nevent: record\ndata: %b\n\n" % (record.revision, record_json(record))


def record_json(record: StoredRecord) -> bytes:
    """Return a record as JSON in one line: the fields that all kinds of studies have, and the
    record's own data in `record`. NaN and infinity are texts, since JSON has no such numbers."""
    body = record.body
    if b"NaN" in body or b"Infinity" in body or b"\n" in body or b"\r" in body:
        body = json.dumps(json.loads(body, parse_constant=str)).encode()
    fields = {name: getattr(record, name) for name in WireRecord.model_fields if name != "record"}
    return json.dumps(fields).encode()[:-1] + b', "record": ' + body + b"}"
