"""What watchers of runs are told: one look at the store for all of them, and pages that they share.

A watcher is a place in the run's records, its revision; nothing is queued for it. What comes after
that place is read from the store in pages, each once for all watchers who stand there, and the
newest pages stay in memory for a while. So whoever is slow, or comes back, misses nothing, and many
watchers need little more than one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import TextEvolveError
from textevolve.evaluation import Usage
from textevolve.remote.wire import (
    ENDED,
    RunProgress,
    StudyStatus,
    WireRecord,
    WireStatus,
    WireUsage,
)
from textevolve.store import RunRecord, Store
from textevolve.store.records import Kept
from textevolve.store.served import ServedRun

LOOK_SECONDS = 0.5
"""How often the store is looked at for all runs that are watched."""
SPARING = 20
"""What is summed up for `progress` waits so many times as long as the last sum took."""
PAGE_RECORDS = 100
KEPT_PAGES = 8
"""The newest pages of a run that stay in memory."""
QUIET_SECONDS = 15.0
"""After which a line is sent to a watcher to whom nothing was to be told."""

log = logging.getLogger("textevolve.server")

StatusOf = Callable[[RunRecord, ServedRun | None], tuple[StudyStatus, str]]


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Events, encoded, and the revision of the last one."""

    body: bytes
    last: int


@dataclass
class Watched:
    """A run that somebody watches. `newest`: its newest revision. `changed` is set, and another
    event takes its place, whenever there is something new."""

    watchers: int = 0
    newest: int = 0
    status: bytes = b""
    progress: bytes = b""
    ended: bool = False
    gone: bool = False
    summed: tuple[float, float] = (0.0, 0.0)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    pages: dict[int, asyncio.Task[FeedPage]] = field(
        default_factory=dict[int, asyncio.Task[FeedPage]]
    )

    def tell(self) -> None:
        before, self.changed = self.changed, asyncio.Event()
        before.set()


@dataclass
class Feed:
    """`status_of`: the state of a run, as `Runner.status_of` has it."""

    store: Store
    status_of: StatusOf
    ending: bool = False
    reads: int = 0
    _watched: dict[str, Watched] = field(default_factory=dict[str, Watched])

    async def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[bytes]:
        """The events of a run behind a revision, until it has ended or the server does."""
        watched = self._watched.setdefault(run_id, Watched())
        watched.watchers += 1
        try:
            if not watched.status:
                await self._look_at(run_id, watched)
            async for part in self._follow(run_id, watched, after):
                yield part
        finally:
            watched.watchers -= 1
            if not watched.watchers and self._watched.get(run_id) is watched:
                del self._watched[run_id]

    async def _follow(self, run_id: str, watched: Watched, after: int) -> AsyncGenerator[bytes]:
        told: tuple[bytes, bytes] = (b"", b"")
        while not self.ending and not watched.gone:
            changed, ended = watched.changed, watched.ended
            now = (b"" if ended else watched.status, watched.progress)
            if news := b"".join(new for new, old in zip(now, told, strict=True) if new != old):
                yield news
            told = now
            if after < watched.newest:
                page = await self._page(run_id, watched, after)
                after = page.last
                yield page.body
            elif ended:  # all records were sent
                yield watched.status
                return
            else:
                try:
                    await asyncio.wait_for(changed.wait(), QUIET_SECONDS)
                except TimeoutError:
                    yield b": nothing new\n\n"

    async def _page(self, run_id: str, watched: Watched, after: int) -> FeedPage:
        """Return the next events behind a revision, read once for all who stand there."""
        task = watched.pages.get(after)
        if task is None:
            self.reads += 1
            reading = asyncio.to_thread(self._read_page, run_id, after)
            task = watched.pages[after] = asyncio.create_task(reading)
            if len(watched.pages) > KEPT_PAGES:
                del watched.pages[next(iter(watched.pages))]
        try:
            return await asyncio.shield(task)
        except TextEvolveError:
            watched.pages.pop(after, None)
            raise

    def _read_page(self, run_id: str, after: int) -> FeedPage:
        found = self.store.read_changes(run_id, after, PAGE_RECORDS)
        if not found:  # those that were there have changed since, and come later
            return FeedPage(b"", self.store.newest_revision(run_id))
        return FeedPage(b"".join(map(encode_record, found)), found[-1].revision)

    async def look(self) -> None:
        """Looks at the store, as long as it is let."""
        while True:
            began = time.monotonic()
            for run_id, watched in list(self._watched.items()):
                try:
                    await self._look_at(run_id, watched)
                except TextEvolveError as error:
                    log.warning("run %s cannot be watched: %s", run_id, error)
                    watched.gone = True
                    watched.tell()
            took = time.monotonic() - began
            await asyncio.sleep(max(LOOK_SECONDS, took))

    async def _look_at(self, run_id: str, watched: Watched) -> None:
        before = watched.newest, watched.status, watched.progress
        await asyncio.to_thread(self._look_into, run_id, watched)
        if before != (watched.newest, watched.status, watched.progress):
            watched.tell()

    def _look_into(self, run_id: str, watched: Watched) -> None:
        """In this order: what was kept before a run ended is known when its end is."""
        run, served = self.store.get_run(run_id), self.store.get_served(run_id)
        status, reason = self.status_of(run, served)
        newest = self.store.newest_revision(run_id)
        at, took = watched.summed
        now = time.monotonic()
        if status in ENDED or now - at >= SPARING * took:
            watched.progress = encode_event("progress", progress_of(self.store, run).model_dump())
            watched.summed = now, time.monotonic() - now
        watched.newest = max(newest, watched.newest)
        told = WireStatus(status=status, reason=reason).model_dump()
        watched.status = encode_event("status", told)
        watched.ended = status in ENDED

    def end(self) -> None:
        """All streams end, so that a server that is to end need not wait for them."""
        self.ending = True
        for watched in self._watched.values():
            watched.tell()


@asynccontextmanager
async def open_feed(store: Store, status_of: StatusOf) -> AsyncGenerator[Feed]:
    """A feed that looks at the store while it is open; at its end all streams end."""
    feed = Feed(store, status_of)
    looking = asyncio.create_task(feed.look())
    try:
        yield feed
    finally:
        feed.end()
        looking.cancel()


def progress_of(store: Store, run: RunRecord) -> RunProgress:
    totals = store.run_totals(run.id)
    return RunProgress(
        cases=run.n_cases,
        records=store.count_records(run.id),
        spent=wire_usage(totals.spent),
        reused=wire_usage(totals.reused),
    )


def wire_usage(usage: Usage) -> WireUsage:
    return WireUsage(**{name: getattr(usage, name) for name in WireUsage.model_fields})


def encode_event(name: str, data: Any, id: int | None = None) -> bytes:
    """An event as it stands in a stream."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def encode_record(kept: Kept) -> bytes:
    return b"id: %d\nevent: record\ndata: %b\n\n" % (kept.revision, record_json(kept))


def record_json(kept: Kept) -> bytes:
    """A record as JSON in one line: what all kinds have, and the record as its kind encodes it, in
    which NaN and infinity are texts, since JSON has no such numbers."""
    body = kept.body
    if b"NaN" in body or b"Infinity" in body or b"\n" in body or b"\r" in body:
        body = json.dumps(json.loads(body, parse_constant=str)).encode()
    fields = {name: getattr(kept, name) for name in WireRecord.model_fields if name != "record"}
    return json.dumps(fields).encode()[:-1] + b', "record": ' + body + b"}"
