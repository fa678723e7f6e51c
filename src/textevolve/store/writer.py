"""The one thread that writes: what many calls hand over is committed in groups.

An fsync costs the same for one row and for hundreds. Entries that arrive while a commit is under
way wait for the next; each waiter is woken once its row is on the disk. Rows go in with few large
statements, since each statement gives up the interpreter's lock and has to win it back.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from textevolve.errors import StoreError
from textevolve.store import lease
from textevolve.store.documents import DAMAGES, hash_bytes, pack, text_to_bytes
from textevolve.store.schema import connect, explain
from textevolve.store.sqlite import sqlite3

GROUP_SIZE = 512
"""Most entries in one transaction."""

GROUP_SECONDS = 0.01
"""Commits begin at least this far apart: each costs time of its own, however quick the disk."""

KNOWN_TEXTS = 65_536
"""How many hashes of texts that are already stored a writer remembers."""

ROWS_PER_STATEMENT = 64

CALL_COLUMNS = (
    "run_id, key, model, started, seconds, attempts, prompt_tokens, cached_tokens, "
    "completion_tokens, cost, parts, request, error, response, saved"
)

_SWEEPS = "SELECT value FROM counters WHERE name = 'sweeps'"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A row of `calls` without its id, its texts, and who waits for it."""

    row: tuple[Any, ...]
    texts: tuple[str, ...]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Reuse:
    """A run used a call that another run had asked. Nobody waits for this."""

    run_id: str
    call_id: int


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Any other change, made in a transaction of its own."""

    change: Callable[[Connection], Any]
    done: Future[Any]


class _Stop:
    pass


class Writer:
    """Owns the connection that writes, and the thread that uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[WrittenCall | Reuse | WriteJob | _Stop] = queue.SimpleQueue()
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._sweeps = -1
        self._failure: StoreError | None = None
        self._closed = False
        self._gate = threading.Lock()
        self._leases: set[str] = set()
        self._last_commit = 0.0
        self._last_beat = time.monotonic()
        self._connection = connect(path, writing=True)
        # Groups go straight to the driver: the layer above costs more than the rows.
        self._raw = cast(sqlite3.Connection, self._connection.connection.driver_connection)
        self._thread = threading.Thread(target=self._work, name="textevolve-store", daemon=True)
        self._thread.start()

    # From any thread

    def submit_call(self, row: tuple[Any, ...], texts: tuple[str, ...]) -> asyncio.Future[None]:
        """Queue a row of `calls`; the future is done once it is durable."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._put(WrittenCall(row, texts, loop, done))
        return done

    def submit_reuse(self, run_id: str, call_id: int) -> None:
        self._put(Reuse(run_id, call_id))

    def run(self, change: Callable[[Connection], T]) -> T:
        """Make a change in a transaction of its own and wait until it is durable.

        Raises:
            StoreError: the change was refused, or could not be written; nothing of it stays.
        """
        done: Future[T] = Future()
        self._put(WriteJob(change, done))
        return done.result()

    def hold_lease(self, token: str) -> None:
        self._leases.add(token)

    def drop_lease(self, token: str) -> None:
        self._leases.discard(token)

    def close(self) -> None:
        """Write what is queued, then end the thread and close the connection."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(_Stop())
        self._thread.join()
        self._connection.close()

    def _put(self, item: WrittenCall | Reuse | WriteJob) -> None:
        """Nothing is queued behind the end, where it would wait for ever."""
        with self._gate:
            if self._closed:
                raise StoreError(f"store {self._path}: is closed")
            self._queue.put(item)

    # In the thread

    def _work(self) -> None:
        while True:
            items = self._take_group()
            calls = [item for item in items if isinstance(item, WrittenCall)]
            reuses = [item for item in items if isinstance(item, Reuse)]
            if calls or reuses:
                self._write_group(calls, reuses)
            for item in items:
                if isinstance(item, WriteJob):
                    self._do(item)
            self._beat()
            if any(isinstance(item, _Stop) for item in items):
                return

    def _take_group(self) -> list[WrittenCall | Reuse | WriteJob | _Stop]:
        """All that waits, up to a group; nothing where a heartbeat is due first."""
        try:
            items = [self._queue.get(timeout=lease.BEAT_SECONDS)]
        except queue.Empty:
            return []
        early = self._last_commit + GROUP_SECONDS - time.monotonic()
        if early > 0 and isinstance(items[0], WrittenCall | Reuse):
            time.sleep(early)
        with suppress(queue.Empty):
            while len(items) < GROUP_SIZE:
                items.append(self._queue.get_nowait())
        return items

    def _write_group(self, calls: Sequence[WrittenCall], reuses: Sequence[Reuse]) -> None:
        failure = self._failure
        if failure is None:
            try:
                self._last_commit = time.monotonic()
                self._raw.execute("BEGIN IMMEDIATE")
                with self._raw:
                    self._insert(calls, reuses)
            except sqlite3.OperationalError as error:
                failure = self._failure = explain(error, self._path)
            except Exception as error:  # noqa: BLE001  a bad row must not take others with it
                self._known.clear()
                if type(error) is sqlite3.DatabaseError:  # no row is bad, but the file
                    _wake(calls, explain(error, self._path))
                    return
                if len(calls) > 1:
                    for call in calls:
                        self._write_group([call], ())
                    self._write_group((), reuses)
                    return
                failure = StoreError(f"store {self._path}: a call cannot be kept: {error}")
        _wake(calls, failure)

    def _insert(self, calls: Sequence[WrittenCall], reuses: Sequence[Reuse]) -> None:
        (sweeps,) = self._raw.execute(_SWEEPS).fetchone()
        if sweeps != self._sweeps:
            self._known.clear()
            self._sweeps = sweeps
        new_texts = [row for call in calls for row in self._unknown(call.texts)]
        _insert_rows(self._raw, "OR IGNORE INTO texts (hash, size, body)", new_texts)
        _insert_rows(self._raw, f"INTO calls ({CALL_COLUMNS})", [call.row for call in calls])
        pairs = [(reuse.run_id, reuse.call_id) for reuse in reuses]
        _insert_rows(self._raw, "OR IGNORE INTO reuses (run_id, call_id)", pairs)

    def _unknown(self, texts: Iterable[str]) -> Iterable[tuple[bytes, int, bytes]]:
        for text in texts:
            digest = hash_bytes(text)
            if digest in self._known:
                self._known.move_to_end(digest)
                continue
            self._known[digest] = None
            if len(self._known) > KNOWN_TEXTS:
                self._known.popitem(last=False)
            body = text_to_bytes(text)
            yield digest, len(body), pack(body)

    def _do(self, job: WriteJob) -> None:
        try:
            with self._connection.begin():
                result = job.change(self._connection)
        except (SQLAlchemyError, *DAMAGES) as error:
            job.done.set_exception(explain(error, self._path))
        except Exception as error:  # noqa: BLE001  it belongs to the thread that asked
            job.done.set_exception(error)
        else:
            job.done.set_result(result)

    def _beat(self) -> None:
        """Renew the leases that this process holds."""
        now = time.monotonic()
        if now - self._last_beat < lease.BEAT_SECONDS:
            return
        self._last_beat = now
        tokens = list(self._leases)
        if not tokens or self._failure is not None:
            return
        try:
            with self._connection.begin():
                lease.renew(self._connection, tokens)
        except DBAPIError as error:
            self._failure = explain(error, self._path)


def _wake(calls: Sequence[WrittenCall], failure: StoreError | None) -> None:
    """Tell the waiters, with one wake-up for each loop."""
    waiting: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for call in calls:
        waiting[call.loop].append(call.done)
    for loop, futures in waiting.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, futures, failure)


def _settle(futures: Iterable[asyncio.Future[None]], failure: StoreError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(StoreError(str(failure)))


def _insert_rows(raw: sqlite3.Connection, target: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for position in range(0, len(rows), ROWS_PER_STATEMENT):
        chunk = rows[position : position + ROWS_PER_STATEMENT]
        values = [value for row in chunk for value in row]
        raw.execute(_insert_statement(target, len(chunk[0]), len(chunk)), values)


@lru_cache(maxsize=3 * ROWS_PER_STATEMENT)
def _insert_statement(target: str, columns: int, count: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT {target} VALUES {', '.join([row] * count)}"
