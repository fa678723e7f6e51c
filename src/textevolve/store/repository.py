"""The class `Store`: all persistent data, in one database. The other modules of the package have
the SQL.

A store may be used by several threads, event loops and processes at once. It opens its database on
first use. One thread (`Writer`) writes all changes of runs in their order; changes of namespaces
and their resources are separate transactions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import wraps
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy.engine import Connection

from textevolve.errors import ConflictError, StoreAwayError, StoreError
from textevolve.evaluation import Case
from textevolve.llm.model import Response
from textevolve.settings import Settings, StoreLocation
from textevolve.store import jobs, journal, keys, kinds, lease, records, runs, served
from textevolve.store.database import Database, open_database
from textevolve.store.documents import CHECK, intact, load_response
from textevolve.store.graph_ladybug import LadybugGraph, LadybugMemories
from textevolve.store.jobs import JobClaim
from textevolve.store.journal import StoredCall, StoreJournal, StoreLedger
from textevolve.store.memories import StoredMemories
from textevolve.store.records import Place, RecordFilter, StoredRecord
from textevolve.store.served import ServedRun
from textevolve.store.sessions import StoredSessions
from textevolve.store.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


def open_store(location: StoreLocation | str, *, patient: bool = False) -> Store:
    """Open the store at a path, where a missing file is created, or at a postgresql:// address.
    Close it, or use `with`. `patient`: wait up to a minute for a PostgreSQL server that is away,
    instead of failing at once.

    Raises:
        StoreError: the store cannot be used; the message says why and what to do.
    """
    return Store(location, open_database(location, patient=patient))


def open_resources(settings: Settings) -> Store:
    """Return the store of namespaces, agents and memories that the settings name."""
    return Store(
        settings.memory_location,
        graph_folder=settings.graph_folder,
        vectors_mb=settings.memory.vectors_mb,
    )


def _reads(query: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Return a function that reads from a connection as a method of a store. If its first argument
    is the id of a run, errors of the database name that run."""
    of_run = list(signature(query).parameters)[1:2] == ["run_id"]

    @wraps(query)
    def read(store: Store, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return store.read(query, *args, **kwargs)
        except StoreAwayError as error:
            if of_run:
                raise StoreAwayError(f"run {[*args, *kwargs.values()][0]}: {error}") from error
            raise

    return read


def _writes(change: Callable[Concatenate[Connection, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Return a function that changes runs as a method of a store; no other change of runs is
    written at the same time."""

    @wraps(change)
    def write(store: Store, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.writer.run(None, change, *args, **kwargs)

    return write


def _writes_own(
    change: Callable[Concatenate[Connection, str, P], T],
) -> Callable[Concatenate[Store, str, P], T]:
    """Return a function that changes only data of one run as a method of a store. If this process
    has taken the run's lease, it must still hold it."""

    @wraps(change)
    def write(store: Store, run_id: str, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.change_own(run_id, change, run_id, *args, **kwargs)

    return write


class Store:
    """A store of all persistent data; a context manager, sync and async. Every method may raise
    StoreError.

    Attributes:
        location: The path of an SQLite file, or a postgresql:// address.
        has_journal: Whether records can be rebuilt from its journal.
    """

    has_journal = True

    def __init__(
        self,
        location: StoreLocation | str,
        opened: Database | None = None,
        graph_folder: Path | None = None,
        vectors_mb: int | None = None,
    ) -> None:
        self._place = location
        self._opened = opened
        self._graph_folder = graph_folder
        self._vectors_mb = vectors_mb
        self._graph: LadybugGraph | None = None
        self._lock = threading.RLock()
        self._writing: Writer | None = None
        self._closed = False
        self._elsewhere = ThreadPoolExecutor(1, "textevolve-look-up")

    @property
    def database(self) -> Database:
        """Return the open database of the store.

        Raises:
            StoreError: the store cannot be opened; the message says why and what to do.
        """
        with self._lock:
            if self._opened is None and self._closed:
                raise StoreAwayError(f"store {self._place}: is closed; open it again")
            self._opened = self._opened or open_database(self._place, vectors_mb=self._vectors_mb)
            return self._opened

    @property
    def writer(self) -> Writer:
        """Return the thread that writes changes of runs, which starts with the first change."""
        with self._lock:
            self._writing = self._writing or Writer(self.database)
            return self._writing

    @property
    def location(self) -> StoreLocation:
        """Return the file or address; when printed, it shows no password."""
        return self.database.location

    @property
    def place(self) -> str:
        """Return the location of its runs, for messages."""
        return str(self.database.location)

    def close(self) -> None:
        """Wait until all submitted changes are written, then close the database."""
        with self._lock:
            self._closed = True
            if self._writing is not None:
                self._writing.close()
            self._elsewhere.shutdown()
            if self._graph is not None:
                self._graph.close()
            if self._opened is not None:
                self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.close))

    def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a connection that reads one consistent snapshot of the database."""
        return self.database.read(query, *args, **kwargs)

    def write(
        self, change: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of a connection that changes namespaces and their resources; if it
        raises, nothing is stored."""
        return self.database.write(change, *args, **kwargs)

    # Namespaces and what belongs to them

    def memories(self, namespace: str) -> StoredMemories:
        """Return the memories of a namespace; if the namespace does not exist, the first query
        fails."""
        if self._graph_folder is None:
            return StoredMemories(lambda: self.database, namespace)
        return LadybugMemories(lambda: self.database, namespace, self._open_graph)

    def _open_graph(self) -> LadybugGraph:
        with self._lock:
            assert self._graph_folder is not None
            self._graph = self._graph or LadybugGraph(self._graph_folder)
            return self._graph

    def sessions(self, namespace: str) -> StoredSessions:
        """Return the chats of a namespace; if the namespace does not exist, the first query
        fails."""
        return StoredSessions(self.database, namespace)

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        if name not in self.namespace_names():
            self.write(kinds.ensure_namespace, name)

    def namespace_names(self) -> list[str]:
        return [namespace.spec.name for namespace in self.read(kinds.list_all, kinds.NAMESPACES)]

    def claim_due_job(self, seconds: float) -> JobClaim | None:
        """Claim the job that is overdue longest for this process, for `seconds`; None if no job is
        due that another process does not hold."""
        for id in self.read(jobs.list_due_jobs):
            # Two who change the same at once may undo each other again and again; the next look
            # finds what neither of them got.
            with suppress(ConflictError):
                claim = self.write(jobs.claim_due_job, id, seconds)
                if claim is not None:
                    return claim

        return None

    def note_usage(self, tokens: Mapping[str, int], keys_used: Mapping[str, float]) -> None:
        """Store the tokens used by namespaces, and the times at which keys were last used, by
        id."""

        def write(connection: Connection) -> None:
            keys.add_tokens(connection, tokens)
            keys.note_used(connection, keys_used)

        self.write(write)

    # Calls

    find_calls = _reads(journal.find_calls)
    has_erased = _reads(journal.has_erased)
    page_calls = _reads(journal.read_page)
    read_request = _reads(journal.read_request)

    def journal(self, run_id: str) -> StoreJournal:
        """Return the journal that stores calls as those of this run."""
        elsewhere = self._elsewhere if self.database.remote else None
        return StoreJournal(run_id, self.writer, self.database, elsewhere)

    def find_answer(self, key: str) -> Response | None:
        """Return the answer that some run stored under a key; None if there is none."""
        for _, id, *used, response, _ in self.database.find_answers("", [key])[-1:]:
            with intact(f"the answer {id}"):
                return load_response(response, *used)
        return None

    def batches(self, run_id: str) -> StoreLedger:
        """Return the ledger of this run's batch jobs."""
        return StoreLedger(run_id, self.writer, self.database)

    def calls(self, run_id: str) -> Iterator[StoredCall]:
        """Yield the calls that a run made or reused, failed ones too, oldest first."""
        after = 0
        while page := self.page_calls(run_id, after):
            yield from page
            after = page[-1].id

    # Runs

    create_run = _writes(runs.create_run)
    copy_run = _writes(runs.copy_run)
    settle_run = _writes(runs.settle_run)
    delete_run = _writes(runs.delete_run)
    respecify = _writes_own(runs.respecify)
    finish_run = _writes_own(runs.finish_run)
    find_run = _reads(runs.find_run)
    get_run = _reads(runs.get_run)
    list_runs = _reads(runs.list_runs)
    run_totals = _reads(runs.run_totals)

    @contextmanager
    def lease(self, run_id: str) -> Generator[None]:
        """Hold the lease of a run within the block, so that no other process works on the run.

        On leaving, a run that is not marked as finished or failed becomes interrupted. If another
        process has taken the run in the meantime, this process cannot write to it any more.

        Raises:
            BusyError: another process works on it.
        """
        token = self.writer.run(run_id, lease.take, run_id)
        self.writer.leases[run_id] = token

        try:
            yield
        except BaseException:
            # What went wrong says more than a lease that could not be given back.
            with suppress(StoreError):
                self.writer.give_lease_back(run_id)
            raise

        self.writer.give_lease_back(run_id)

    def change_own(
        self,
        run_id: str,
        change: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Change a run's status or records. If this process has taken the run's lease, it must
        still hold it.

        Raises:
            BusyError: another process has taken the lease in the meantime.
        """
        token = self.writer.leases.get(run_id)

        def fenced(connection: Connection) -> T:
            if token is not None:
                lease.require(connection, run_id, token)
            return change(connection, *args, **kwargs)

        return self.writer.run(run_id, fenced)

    # Runs of a server's clients

    want_run = _writes_own(served.want)
    all_served = _reads(served.all_served)
    get_served = _reads(served.find_served)
    unfinished_served = _reads(served.find_unfinished)
    list_chosen = _reads(served.list_found)

    def serve_run(self, run: ServedRun) -> None:
        """Store or update a run that a server performs."""
        self.writer.run(run.run_id, served.keep_served, run)

    # Cases

    def add_cases(self, run_id: str, cases: Iterable[Case]) -> int:
        """Store all cases of a run, which are read lazily; return their number. Repeated after a
        crash, it replaces the cases that were stored before."""
        self.writer.run(run_id, runs.start_cases, run_id)
        count = 0
        for chunk in runs.chunk_cases(run_id, cases):
            self.writer.run(run_id, runs.insert_cases, chunk)
            count += len(chunk)
        self.writer.run(run_id, runs.end_cases, run_id, count)

        return count

    def iterate_cases(self, run_id: str, start: int = 0) -> Iterator[Case]:
        """Yield the cases of a run in their order, from the index `start` on."""
        while page := self.read(runs.read_cases, run_id, start):
            for index, case in page:
                if index < start:  # an index that is damaged
                    raise StoreError(f"run {run_id}: case {index} is out of its order; {CHECK}")
                start = index + 1
                yield case

    def find_image(self, key: str) -> str | None:
        """Return the data URL of an image by its key, the SHA-256 in hexadecimal by which records
        refer to it; None if the store lacks it."""
        return self.read(runs.find_image, bytes.fromhex(key))

    # Records

    drop_records = _writes_own(records.drop_records)
    read_records = _reads(records.read_behind)
    read_changes = _reads(records.read_changes)
    count_records = _reads(records.count_records)

    def keep_records(self, run_id: str, new_records: Sequence[StoredRecord]) -> None:
        """Store records of a run; a record replaces an earlier one with its key. If any is skipped,
        a finished run becomes resumable again."""

        def change(connection: Connection) -> None:
            records.keep_records(connection, run_id, new_records)
            if any(record.status == "skipped" for record in new_records):
                runs.reopen_run(connection, run_id)

        if new_records:
            self.change_own(run_id, change)

    def append(self, run_id: str, case: Case, record: StoredRecord) -> None:
        """Add a case to a run together with its record; several processes may do so at once."""

        def change(connection: Connection) -> None:
            runs.append_case(connection, run_id, case)
            records.keep_records(connection, run_id, [record])

        self.change_own(run_id, change)

    def iterate_records(
        self, run_id: str, criteria: RecordFilter | None = None
    ) -> Iterator[StoredRecord]:
        """Yield the records of a run that match the criteria, in the order of their cases."""
        after: Place | None = None
        while page := self.read_records(run_id, criteria or RecordFilter(), "position", after):
            yield from page
            after = page[-1].position, page[-1].key
