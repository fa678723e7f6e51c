"""The one thread that writes changes of runs: it commits the calls of many tasks in groups.

An fsync takes the same time for one row and for hundreds. Calls that arrive during a commit wait
for the next one; each waiting task is woken once its row is on the disk. Rows are inserted with few
large statements, since each statement releases the interpreter's lock and has to wait to get it
back.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from sqlalchemy.engine import Connection

from textevolve.errors import BusyError, StoreAwayError, StoreError, TextEvolveError
from textevolve.store import lease
from textevolve.store.database import Database
from textevolve.store.dialects import CALL_COLUMNS, GroupRows
from textevolve.store.documents import pack, split_hashes, text_to_bytes

GROUP_SIZE = 512
"""The maximum number of calls in one transaction."""

GROUP_SECONDS = 0.01
"""The least time between the starts of two commits, since each commit takes processor time even on
a fast disk."""

KNOWN_TEXTS = 16_384
"""The approximate number of hashes of stored texts that a writer remembers, with 100 bytes each."""

PARTS = CALL_COLUMNS.index("parts")
"""The index of the column with the hashes of a call's texts."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call to write. `row`: a row of `calls` without its id. `texts`: its texts. `done`: the
    future of the waiting task, on its event `loop`."""

    row: tuple[Any, ...]
    texts: tuple[str, ...]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


Reuse: TypeAlias = tuple[str, int]
"""A run, and the id of another run's call whose answer it used. No task waits until it is
written."""


TROUBLES: dict[str, str] = {}
"""Why the last write failed, by the location of a store that cannot be written now. A write that
succeeds ends it."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """A change of runs in a separate transaction. `run_id`: the only run that it changes; None:
    any. `args`, `kwargs`: the arguments of `change` after the connection. `done`: gets its
    result."""

    run_id: str | None
    change: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    done: Future[Any]


class Writer:
    """The thread that writes all changes of runs of this process to one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: queue.SimpleQueue[WrittenCall | Reuse | WriteJob | None] = queue.SimpleQueue()
        self._known: set[bytes] = set()
        self._sweeps = -1
        self._closed = False
        self._gate = threading.Lock()
        self.leases: dict[str, str] = {}  # tokens, by the runs whose leases were taken here
        self._lost: dict[str, BusyError] = {}
        self._owed: set[str] = set()
        self._last_commit = 0.0
        self._last_beat = time.monotonic()
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
        self._put((run_id, call_id))

    def run(
        self,
        run_id: str | None,
        change: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Make a change in a separate transaction, and wait until it is durable. `run_id`: the only
        run that it changes, so that other processes need not wait; None: any.

        Raises:
            StoreError: the change was rejected, or could not be written; it is rolled back.
        """
        done: Future[T] = Future()
        self._put(WriteJob(run_id, change, args, kwargs, done))

        return done.result()

    def give_lease_back(self, run_id: str) -> None:
        """Release the lease of a run. If that fails now, a later heartbeat does it, so a process
        that stays alive does not block the run.

        Raises:
            StoreError: the store cannot be written now.
        """
        token = self.leases.pop(run_id)
        self._lost.pop(run_id, None)

        try:
            self.run(run_id, lease.release, token)
        except StoreError:
            self._owed.add(token)
            raise

    def check_lease(self, run_id: str) -> None:
        """Check that this process has not lost the lease of a run.

        Raises:
            BusyError: another process has taken the run.
        """
        if (lost := self._lost.get(run_id)) is not None:
            raise BusyError(str(lost))

    def close(self) -> None:
        """Write everything in the queue, then end the thread."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)

        self._thread.join()

    def _put(self, item: WrittenCall | Reuse | WriteJob) -> None:
        """Put an item into the queue. A closed writer raises an error, since the item would never
        be written."""
        with self._gate:
            if self._closed:
                raise StoreAwayError(f"store {self._database.location}: is closed; open it again")
            self._queue.put(item)

    # In the thread

    def _work(self) -> None:
        while True:
            items = self._take_group()
            calls = [item for item in items if isinstance(item, WrittenCall)]
            reuses = [item for item in items if isinstance(item, tuple)]
            if calls or reuses:
                self._write_group(calls, reuses)
            for item in items:
                if isinstance(item, WriteJob):
                    self._do(item)
            self._beat()
            if any(item is None for item in items):
                return

    def _take_group(self) -> list[WrittenCall | Reuse | WriteJob | None]:
        """Wait for the next write, and take it with the writes that wait behind it, up to a group.
        Return an empty list if no write arrives before the next heartbeat is due."""
        try:
            items = [self._queue.get(timeout=lease.BEAT_SECONDS)]
        except queue.Empty:
            return []

        early = self._last_commit + GROUP_SECONDS - time.monotonic()
        if early > 0 and isinstance(items[0], WrittenCall | tuple):
            time.sleep(early)
        with suppress(queue.Empty):
            while len(items) < GROUP_SIZE:
                items.append(self._queue.get_nowait())

        return items

    def _write_group(self, calls: Sequence[WrittenCall], reuses: Sequence[Reuse]) -> None:
        """Write a group, and tell its calls. A failure ends with its group: the next one is tried
        again, since the disk may have room by then, or the lock may be free."""
        added: set[bytes] = set()
        failure: TextEvolveError | None = None
        try:
            self._last_commit = time.monotonic()
            self._database.insert(lambda sweeps: self._fill(calls, reuses, sweeps, added))
        except Exception as error:  # noqa: BLE001  a bad row must not take others with it
            is_row = self._database.is_row_fault(error)
            if is_row and len(calls) > 1:
                for call in calls:
                    self._write_group([call], ())
                self._write_group((), reuses)
                return

            cause = f"a call cannot be kept: {error}"
            failure = StoreError(cause) if is_row else self._database.explain(error)
        else:
            if len(self._known) > KNOWN_TEXTS:
                self._known.clear()
            self._known |= added

        self._note(failure)
        _wake(calls, failure)

    def _note(self, failure: TextEvolveError | None) -> None:
        """Remember whether the last write failed for a reason that concerns the whole store."""
        place = str(self._database.location)
        if isinstance(failure, StoreAwayError):
            TROUBLES[place] = str(failure)
        elif failure is None:
            TROUBLES.pop(place, None)

    def _fill(
        self, calls: Sequence[WrittenCall], reuses: Sequence[Reuse], sweeps: int, added: set[bytes]
    ) -> GroupRows:
        """Return the rows of a group; `added` takes the hashes of the texts among them."""
        added.clear()
        if sweeps != self._sweeps:
            self._known.clear()
            self._sweeps = sweeps
        texts: list[tuple[bytes, int, bytes]] = []

        for call in calls:
            for digest, text in zip(split_hashes(call.row[PARTS]), call.texts, strict=True):
                if digest not in self._known and digest not in added:
                    added.add(digest)
                    body = text_to_bytes(text)
                    texts.append((digest, len(body), pack(body)))

        return GroupRows(texts, [call.row for call in calls], reuses)

    def _do(self, job: WriteJob) -> None:
        try:
            result = self._database.change(job.run_id, job.change, *job.args, **job.kwargs)
        except Exception as error:  # noqa: BLE001  it belongs to the thread that asked
            if isinstance(error, StoreAwayError):
                self._note(error)
            job.done.set_exception(error)
        else:
            self._note(None)
            job.done.set_result(result)

    def _beat(self) -> None:
        """If a heartbeat is due, renew the leases of this process, note the lost ones, and release
        leases that could not be released before."""
        now = time.monotonic()
        if now - self._last_beat < lease.BEAT_SECONDS:
            return
        self._last_beat = now
        leases = dict(self.leases)
        owed = set(self._owed)
        if not (leases or owed):
            return
        with suppress(TextEvolveError):  # the next entry is told what is wrong
            lost = self._database.change("", _renew, leases, owed)
            self._owed -= owed
            self._lost |= {run: error for run, error in lost.items() if run in self.leases}


def _renew(
    connection: Connection, leases: Mapping[str, str], owed: Collection[str]
) -> dict[str, BusyError]:
    """Renew leases by their runs, and release the `owed` ones; return an error for each lost one,
    which names its new holder, by run."""
    for token in owed:
        lease.release(connection, token)
    renewed = lease.renew(connection, list(leases.values()))
    lost: dict[str, BusyError] = {}

    for run_id, token in leases.items():
        if token not in renewed:
            try:
                lease.require(connection, run_id, token)
            except BusyError as error:
                lost[run_id] = error

    return lost


def _wake(calls: Sequence[WrittenCall], failure: TextEvolveError | None) -> None:
    """Set the results of the waiting calls, with one wake-up for each event loop."""
    waiting: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for call in calls:
        waiting[call.loop].append(call.done)
    for loop, futures in waiting.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, futures, failure)


def _settle(futures: Iterable[asyncio.Future[None]], failure: TextEvolveError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(type(failure)(str(failure)))
