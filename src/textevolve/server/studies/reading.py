"""Read runs for clients: one run, lists of runs, records and reports."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, TypeAlias, TypeVar, cast

from pydantic import TypeAdapter

from textevolve.errors import InputError, NotFoundError, StoreAwayError, StoreError, TextEvolveError
from textevolve.evaluation import Usage, empty_default
from textevolve.mappings import omit, read_fields
from textevolve.remote.wire import (
    ENDED,
    RunDetail,
    RunProgress,
    StudyStatus,
    WireLimits,
    WireRecord,
    WireStatus,
    WireUsage,
)
from textevolve.runs.report import check_format, write_output
from textevolve.runs.stored import STANDING, StudyRun, read_records
from textevolve.server.errors import ApiError, log
from textevolve.server.identity import Caller
from textevolve.server.state import ServerState
from textevolve.server.studies.runner import Runner
from textevolve.store.records import Place, RecordFilter, StoredRecord
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.store.served import (
    NamespaceMark,
    RunSearch,
    Sees,
    ServedRun,
    read_marks,
    search_runs,
)

# Stream the events of a run to its watchers (clients that wait for results).
#
# A watcher has a position in the run's records, a revision. Later records are read from the store
# in pages, so slow and reconnecting watchers miss nothing. Watchers at the same position share what
# was read a moment ago, so that many of them cost little more than one.

LOOK_SECONDS = 0.5
"""The seconds between two looks at a watched run for new records."""
SHARED_SECONDS = 0.25
"""The seconds for which watchers share a look at their run."""
SUM_INTERVAL_FACTOR = 20
"""The factor that limits how often the sums of `progress` are computed: after each computation they
are left alone for this many times its duration."""
PAGE_RECORDS = 100
QUIET_SECONDS = 15.0
"""The seconds without an event after which a watcher is sent an empty line, so its connection stays
open."""

T = TypeVar("T")


async def stream_events(runner: Runner, run_id: str, after: int = 0) -> AsyncGenerator[bytes]:
    """Yield the events of a run after a revision, until the run or the server ends or the store
    cannot be read: new records, and the status and the progress when they have changed. The final
    status comes after all records."""
    last: dict[str, bytes] = {}
    sum_at = 0.0
    heard = time.monotonic()
    yield b"retry: 1000\n\n"

    while not runner.ending.is_set():
        try:
            look = await _share(runner, _look, run_id, after)
            is_over = look.is_over
            news = {} if is_over else {"status": look.status}
            now = time.monotonic()
            if is_over or now >= sum_at:
                news["progress"] = await _share(runner, _sum_up, run_id)
                sum_at = now + SUM_INTERVAL_FACTOR * (time.monotonic() - now)
        except TextEvolveError as error:
            log.warning("the progress of run %s cannot be read: %s", run_id, error)
            return

        parts = [event for name, event in news.items() if last.get(name) != event]
        if is_over and not look.records:
            parts.append(look.status)
        last |= news

        if part := look.records_after(b"".join(parts)):
            heard = now
            yield part
        elif now - heard > QUIET_SECONDS:
            heard = now
            yield b": nothing new\n\n"

        if look.records:
            after = look.after
        elif is_over:
            return
        else:
            await asyncio.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class _Look:
    """The news of a run for its watchers.

    Attributes:
        is_over: Whether the run has ended.
        status: The event of its status.
        records: The events of its next records.
        after: The revision of the last of these records.
    """

    is_over: bool
    status: bytes
    records: bytes
    after: int
    _parts: dict[bytes, bytes] = empty_default(dict)

    def records_after(self, events: bytes) -> bytes:
        """Return the records' events after other ones. Watchers with equal events get the same
        object, since each of them holds what it was sent last."""
        if events not in self._parts:
            self._parts[events] = events + self.records
        return self._parts[events]


async def _share(runner: Runner, read: Callable[..., T], *place: Any) -> T:
    """Return what a function reads of a run, or what it has read of it for another watcher in the
    last `SHARED_SECONDS`."""
    key = (read, *place)
    reading = runner.readings.get(key)

    if reading is None:
        reading = asyncio.ensure_future(asyncio.to_thread(read, runner, *place))
        runner.readings[key] = reading
        asyncio.get_running_loop().call_later(SHARED_SECONDS, runner.readings.pop, key, None)

    return await asyncio.shield(reading)


def _look(runner: Runner, run_id: str, after: int) -> _Look:
    """Return a run's status and its next records after a revision, at most `PAGE_RECORDS`. The
    status is read first, so an ended run's records are complete."""
    store = runner.store
    status, reason = runner.status_of(store.get_run(run_id), store.get_served(run_id))
    records = store.read_changes(run_id, after, PAGE_RECORDS)
    event = encode_event("status", WireStatus(status=status, reason=reason).model_dump())
    revision = records[-1].revision if records else after
    return _Look(status in ENDED, event, b"".join(map(encode_record, records)), revision)


def _sum_up(runner: Runner, run_id: str) -> bytes:
    store = runner.store
    totals = store.run_totals(run_id)
    progress = RunProgress(
        cases=store.get_run(run_id).n_cases,
        records=store.count_records(run_id),
        spent=wire_usage(totals.spent),
        reused=wire_usage(totals.reused),
    )
    return encode_event("progress", progress.model_dump())


def wire_usage(usage: Usage) -> WireUsage:
    return WireUsage(**read_fields(usage, *WireUsage.model_fields))


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
    fields = read_fields(record, *omit(WireRecord.model_fields, ["record"]))
    return json.dumps(fields).encode()[:-1] + b', "record": ' + body + b"}"


ReportFormat: TypeAlias = Literal["html", "md", "json", "jsonl", "csv", "parquet"]
MEDIA: Mapping[ReportFormat, str] = {
    "html": "text/html; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
SPOOLED = 2**20
"""The bytes of a report that stay in memory until it is sent; the rest is in a temporary file."""
CHUNK = 2**16

P = TypeVar("P")
_RUN_PLACE = TypeAdapter(tuple[float, str])
_RECORD_PLACE: TypeAdapter[Place] = TypeAdapter(Place)


@dataclass(frozen=True, slots=True)
class VisibleRun:
    """A run that a caller may see. `served`: the row that a server stores for runs of its clients;
    None if the run was made without a server."""

    run: RunRecord
    served: ServedRun | None


NAMESAKES = 500
"""The most runs with a text like a name that are looked at, the newest first."""


def find_seen(server: ServerState, caller: Caller, run_ref: str) -> VisibleRun:
    """Find a run by its id, its name, the start or the end of its id, or `last`, the
    run with cases that was performed last.

    Raises:
        NotFoundError: the caller sees no such run. StoreAwayError: the store cannot be read.
    """
    store = server.store
    marks = server.resources.read(read_marks)

    try:
        run = store.get_run(run_ref)
        served = store.get_served(run.id)
        if sees_run(caller, served, marks):
            return VisibleRun(run, served)
    except StoreAwayError:
        raise
    except StoreError:
        pass

    # A run of another tenant may have the same name.
    visible = visible_to(server, caller)
    if visible is not None:
        found = store.read(search_runs, visible, RunSearch(text=run_ref), 0, NAMESAKES)
        named = [match for match in found.runs if run_ref in match.names]
        if len(named) == 1:
            return VisibleRun(named[0], store.get_served(named[0].id))

    raise NotFoundError(f"no run '{run_ref[:60]}'")


def sees_run(caller: Caller, served: ServedRun | None, marks: Mapping[str, NamespaceMark]) -> bool:
    """Check whether a caller may see a run, by the current namespaces. Runs of a deleted namespace
    are seen only by those who see all of them, also if another one has its name now."""
    if caller.namespaces is None:
        return True
    if served is None or not caller.sees(served.namespace):
        return False

    return served.is_of(marks.get(served.namespace))


def visible_to(server: ServerState, caller: Caller) -> Sees | None:
    """Return a function that returns whether the caller may see the run of a server's row; None if
    it may see all runs, also those without such a row."""
    if caller.namespaces is None:
        return None
    marks = server.resources.read(read_marks)
    return lambda served: sees_run(caller, served, marks)


def find_study_run(server: ServerState, caller: Caller, run_id: str) -> VisibleRun:
    """Find the run of a study by its whole id.

    Raises:
        NotFoundError: the caller sees no such run, or the run belongs to no study, such as one with
            the calls of a server.
    """
    seen = find_seen(server, caller, run_id)
    if seen.run.id != run_id or seen.run.spec.get("kind") in STANDING:
        raise NotFoundError(f"no run '{run_id[:60]}'")

    return seen


def _summary(
    runner: Runner,
    run: RunRecord,
    served: ServedRun | None,
    marks: Mapping[str, NamespaceMark],
) -> dict[str, Any]:
    status, reason = runner.status_of(run, served)
    namespace = None
    if served is not None and not served.outlives(marks.get(served.namespace)):
        namespace = served.namespace

    return {
        "id": run.id,
        "kind": str(run.spec.get("kind", "")),
        "name": run.name,
        "namespace": namespace,
        "status": status,
        "reason": reason,
        "created": run.created,
        "updated": run.updated,
        "cases": run.n_cases,
        "model": str(run.spec.get("model", "")),
        "source": run.source,
    }


def run_detail(server: ServerState, seen: VisibleRun) -> RunDetail:
    """Return one run with its usage so far."""
    store = server.store
    run = seen.run
    served = seen.served
    totals = store.run_totals(run.id)
    launch: Mapping[str, Any] = {} if served is None else served.launch

    return RunDetail(
        **_summary(server.runner, run, served, server.resources.read(read_marks)),
        spec=run.spec.get("spec", {}),
        described=run.spec.get("described", {}),
        records=store.count_records(run.id),
        spent=wire_usage(totals.spent),
        reused=wire_usage(totals.reused),
        failed_calls=totals.failed,
        limits=WireLimits(**launch.get("limits", {})),
        time_limit=launch.get("time_limit"),
        why=str(run.spec.get("why", "")),
        prices=tuple(run.spec.get("prices", ())),
        answers=run.spec.get("answers", {}),
    )


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The filter of a list of runs; empty fields match every run. `kind`: the kind of study;
    `text`: a part of the run's name or id."""

    kind: str = ""
    status: StudyStatus | None = None
    text: str = ""


def list_page(
    server: ServerState, caller: Caller, run_filter: RunFilter, cursor: str, limit: int
) -> dict[str, Any]:
    """Return a page of the studies' runs that the caller may see and that match the filter, the
    newest first, and the cursor of the next page."""
    place = read_cursor(cursor, _RUN_PLACE)
    seen = None if caller.namespaces is None else sorted(caller.namespaces)
    marks = server.resources.read(read_marks)

    def choose(run: RunRecord, served: ServedRun | None) -> bool:
        return (
            run.spec.get("kind") not in STANDING
            and sees_run(caller, served, marks)
            and run_filter.kind in ("", run.spec.get("kind"))
            and run_filter.text.lower() in f"{run.id} {' '.join(run.names)}".lower()
            and run_filter.status in (None, server.runner.last_status(run, served)[0])
        )

    runs = server.store.list_chosen(seen, place, choose, limit + 1)
    page = runs[:limit]
    more = write_cursor(page[-1][0].created, page[-1][0].id) if len(runs) > limit else None

    data = [_summary(server.runner, run, served, marks) for run, served in page]
    return {"data": data, "next": more}


def records_page(
    store: Store, run_id: str, statuses: tuple[str, ...], cursor: str, limit: int
) -> bytes:
    """Return a page of records as JSON."""
    place = read_cursor(cursor, _RECORD_PLACE)
    rows = store.read_records(run_id, RecordFilter(statuses), "position", place, limit + 1)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    more = None if last is None else write_cursor(last.position, last.key)
    data = b", ".join(map(record_json, page))

    return b'{"data": [' + data + b'], "next": ' + json.dumps(more).encode() + b"}"


def write_cursor(*place: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str, place: TypeAdapter[P]) -> P | None:
    """Decode the cursor of a page; None if it is empty.

    Raises:
        InputError: the cursor is invalid.
    """
    if not cursor:
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        return place.validate_json(raw, strict=True)
    except ValueError:
        raise InputError("cursor: is not the cursor of an earlier page") from None


def write_report(server: ServerState, seen: VisibleRun, format: ReportFormat) -> IO[bytes]:
    """Write a run's report to a temporary file, which is deleted when it is closed; return the
    file, at its beginning.

    Raises:
        SettingsError: the package that writes the format is not installed.
        ApiError: the run has no results yet.
    """
    store = server.store
    run = StudyRun(seen.run)
    records = read_records(store, run)
    ending = f".{format}"
    check_format(ending)
    if not store.count_records(run.id):
        raise ApiError(409, "no_records", f"run {run.id} has no records yet")
    target = cast("IO[bytes]", tempfile.SpooledTemporaryFile(SPOOLED))  # noqa: SIM115  is sent

    try:
        with server.runner.confine(seen.served):
            write_output(store, run, records, ending, target)
        target.seek(0)
    except BaseException:
        target.close()
        raise

    return target


def read_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks, then close the file."""
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
