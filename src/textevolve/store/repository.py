"""`Store`: the journal, the runs and their cases in one database. The SQL lives beside it.

A store may be used from several threads and event loops at once, and by several processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from textevolve.errors import StoreError
from textevolve.evaluation import Case
from textevolve.llm.model import Request
from textevolve.settings import StoreLocation
from textevolve.store import journal, lease, records, removal, runs, served
from textevolve.store.batches import StoreLedger
from textevolve.store.database import Database, open_database
from textevolve.store.documents import CHECK
from textevolve.store.journal import StoredCall, StoreJournal
from textevolve.store.postgres import Patience, is_lost
from textevolve.store.records import Found, Kept, Place, RecordOrder
from textevolve.store.runs import Freed, RunRecord, RunStatus, RunTotals
from textevolve.store.served import Choose, ServedRun, WantedState
from textevolve.store.writer import Writer

T = TypeVar("T")


def open_store(location: StoreLocation | str) -> Store:
    """Open the store in this file, which is made where it is missing, or at this postgresql://
    address. Close it, or use `with`.

    Raises:
        StoreError: it cannot be used; says why and what to do.
    """
    return Store(open_database(location))


def open_shared_store(location: StoreLocation | str) -> Store:
    """`open_store` for one more process of a run that is under way: a server that is away is waited
    for, as long as in the run.

    Raises:
        StoreError: it cannot be used, or is away for too long.
    """
    patience = Patience()
    while True:
        try:
            return open_store(location)
        except StoreError as error:
            cause = error.__cause__
            away = isinstance(cause, DBAPIError) and is_lost(cause, connected=False, gone=False)
            if not (away and patience.wait()):
                raise


class Store:
    """An open store; a context manager, sync and async. Every method may raise StoreError.

    `has_journal`: records can be made anew from what it keeps.
    """

    has_journal = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = Writer(database)
        self._elsewhere = ThreadPoolExecutor(1, "textevolve-look-up") if database.remote else None

    @property
    def location(self) -> StoreLocation:
        """The file or address; shown, it holds no password."""
        return self._database.location

    @property
    def place(self) -> str:
        """Where its runs are, for people."""
        return str(self.location)

    def close(self) -> None:
        """Wait until what was handed over is written, then let go of the database."""
        self._writer.close()
        if self._elsewhere is not None:
            self._elsewhere.shutdown()
        self._database.close()

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

    # Calls

    def journal(self, run_id: str) -> StoreJournal:
        """The journal that keeps calls as those of this run."""
        read = partial(self._read, run_id=run_id)
        find = self._database.find_answers
        return StoreJournal(run_id, self._writer, read, find, self._elsewhere)

    def batches(self, run_id: str) -> StoreLedger:
        """The ledger of this run's batch jobs."""
        return StoreLedger(run_id, self._writer, partial(self._read, run_id=run_id))

    def calls(self, run_id: str) -> Iterator[StoredCall]:
        """The calls that a run asked or found, failed ones too, oldest first."""
        after = 0
        while page := self._read(
            lambda c, after=after: journal.read_page(c, run_id, after), run_id
        ):
            yield from page
            after = page[-1].id

    def find_calls(self, run_id: str, text: str, most: int) -> list[StoredCall] | None:
        """The calls of a run that were sent a text with this one in it; None where it has more than
        `most`."""
        return self._read(lambda c: journal.find_calls(c, run_id, text, most), run_id)

    def has_erased(self, run_id: str) -> bool:
        """Whether a call that a run asked or found was erased."""
        return self._read(lambda c: journal.has_erased(c, run_id), run_id)

    def page_calls(self, run_id: str, after: int) -> list[StoredCall]:
        """The next calls after the one with this id; empty at the end."""
        return self._read(lambda c: journal.read_page(c, run_id, after), run_id)

    def read_request(self, call: StoredCall) -> Request:
        """The request of a call, with all texts."""
        return self._read(lambda c: journal.read_request(c, call))

    # Runs

    def create_run(
        self, spec: Mapping[str, Any], fingerprint: str, name: str = "", source: str = ""
    ) -> RunRecord:
        """Note a run. `spec` is any JSON; a fingerprint that is known already is refused.

        Until a lease is taken the run counts as interrupted.
        """
        return self._writer.run(lambda c: runs.create_run(c, spec, fingerprint, name, source))

    def copy_run(self, run: RunRecord) -> None:
        """Note a run of another store, or what is new of it; without its cases."""
        self._writer.run(lambda c: runs.copy_run(c, run))

    def settle_run(self, run_id: str, fingerprint: str) -> RunRecord:
        """Give a new run, once its cases are in, its fingerprint; where another run has it, that
        one is returned and the new one removed."""
        return self._writer.run(lambda c: runs.settle_run(c, run_id, fingerprint))

    def respecify(self, run_id: str, changed: Mapping[str, Any]) -> RunRecord:
        """Change parts of a run's specification that are not its identity."""
        return self._writer.run(lambda c: runs.respecify(c, run_id, changed), run_id)

    def find_run(self, fingerprint: str) -> RunRecord | None:
        return self._read(lambda c: runs.find_run(c, fingerprint))

    def get_run(self, which: str) -> RunRecord:
        """The run with this id, start of an id, or name; `last`: the newest that has its cases."""
        return self._read(lambda c: runs.get_run(c, which))

    def list_runs(self, limit: int = 50) -> list[RunRecord]:
        """The newest runs, newest first."""
        return self._read(lambda c: runs.list_runs(c, limit))

    def finish_run(self, run_id: str, status: RunStatus) -> None:
        self._change_own(run_id, lambda c: runs.finish_run(c, run_id, status))

    def run_totals(self, run_id: str) -> RunTotals:
        return self._read(lambda c: runs.run_totals(c, run_id), run_id)

    def busy_seconds(self, run_id: str) -> float:
        """For how long at least one call of the run was under way."""
        return self._read(lambda c: runs.busy_seconds(c, run_id), run_id)

    def delete_run(self, run_id: str) -> Freed:
        """Remove a run with the calls and texts that no other run uses."""
        return self._writer.run(lambda c: removal.delete_run(c, run_id))

    @contextmanager
    def lease(self, run_id: str) -> Generator[None]:
        """Work on a run, which is refused while another living process, or this one, does.

        On leaving, a run that was not marked as finished or failed counts as interrupted. Where
        another process has taken the run meanwhile, nothing more of what is found is written.

        Raises:
            BusyError: another process works on it.
        """
        token = self._writer.run(lambda c: lease.take(c, run_id), run_id)
        self._writer.hold_lease(run_id, token)
        try:
            yield
        except BaseException:
            # What went wrong says more than a lease that could not be given back.
            with suppress(StoreError):
                self._writer.give_lease_back(run_id)
            raise
        self._writer.give_lease_back(run_id)

    def _change_own(self, run_id: str, change: Callable[[Connection], T]) -> T:
        """A change of a run's status or records; by whoever holds its lease, if this is it.

        Raises:
            BusyError: the lease that was taken here is another process's by now.
        """
        token = self._writer.lease_of(run_id)

        def fenced(connection: Connection) -> T:
            if token is not None:
                lease.require(connection, run_id, token)
            return change(connection)

        return self._writer.run(fenced, run_id)

    # Runs of a server's clients

    def serve_run(self, run: ServedRun) -> None:
        """Note a run as a server's, or how it goes on with one."""
        self._writer.run(lambda c: served.keep_served(c, run), run.run_id)

    def want_run(self, run_id: str, wanted: WantedState, reason: str = "") -> None:
        """Change what is to become of a run, if it is a server's."""
        self._writer.run(lambda c: served.want(c, run_id, wanted, reason), run_id)

    def get_served(self, run_id: str) -> ServedRun | None:
        """What a server knows of a run, if it is one's."""
        return self._read(lambda c: served.find_served(c, [run_id])).get(run_id)

    def all_served(self) -> list[ServedRun]:
        return self._read(served.all_served)

    def unfinished_served(self) -> list[ServedRun]:
        """The runs that are to go on, in the order in which they were begun."""
        return self._read(served.find_unfinished)

    def list_chosen(
        self,
        namespaces: Sequence[str] | None,
        after: tuple[float, str] | None,
        choose: Choose,
        limit: int,
    ) -> list[tuple[RunRecord, ServedRun | None]]:
        """The newest runs that are chosen, newest first; see `served.list_found`."""
        return self._read(lambda c: served.list_found(c, namespaces, after, choose, limit))

    # Cases

    def add_cases(self, run_id: str, cases: Iterable[Case]) -> int:
        """Take in all cases of a run, read lazily; returns how many. Starts over after a crash."""
        self._writer.run(lambda c: runs.start_cases(c, run_id), run_id)
        count = 0
        for chunk in runs.chunk_cases(run_id, cases):
            self._writer.run(lambda c, chunk=chunk: runs.insert_cases(c, chunk), run_id)
            count += len(chunk)
        self._writer.run(lambda c: runs.end_cases(c, run_id, count), run_id)
        return count

    def iterate_cases(self, run_id: str, start: int = 0) -> Iterator[Case]:
        """The cases of a run in their order, from the index `start` on."""
        while page := self._read(lambda c, start=start: runs.read_cases(c, run_id, start), run_id):
            for index, case in page:
                if index < start:  # an index that is damaged
                    raise StoreError(f"run {run_id}: case {index} is out of its order; {CHECK}")
                start = index + 1
                yield case

    def find_image(self, key: str) -> str | None:
        """The data URL of an image by its key, which references in records have; None where the
        store has it no more, or never had it."""
        return self._read(lambda c: runs.find_image(c, bytes.fromhex(key)))

    def count_cases(self, run_id: str) -> int:
        """How many cases are in so far."""
        return self._read(lambda c: runs.count_cases(c, run_id), run_id)

    # Records

    def keep_records(self, run_id: str, found: Sequence[Kept]) -> None:
        """Keep what a run found; a record takes the place of an earlier one with its key."""

        def change(connection: Connection) -> None:
            records.keep_records(connection, run_id, found)
            if any(one.status == "skipped" for one in found):
                runs.reopen_run(connection, run_id)

        if found:
            self._change_own(run_id, change)

    def append(self, run_id: str, case: Case, record: Kept) -> None:
        """Keep one more case of a run together with what was found of it; several processes may do
        so at once."""

        def change(connection: Connection) -> None:
            runs.append_case(connection, run_id, case)
            records.keep_records(connection, run_id, [record])

        self._change_own(run_id, change)

    def drop_records(self, run_id: str) -> None:
        """Forget what a run found, which its journal still knows."""
        self._change_own(run_id, lambda c: records.drop_records(c, run_id))

    def iterate_records(
        self, run_id: str, wanted: Found | None = None, order: RecordOrder = "position"
    ) -> Iterator[Kept]:
        """The records of a run that are wanted, in the order that is asked for."""
        start = 0
        while page := self._read(
            lambda c, start=start: records.read_page(c, run_id, wanted or Found(), order, start),
            run_id,
        ):
            yield from page
            start += len(page)

    def read_records(
        self,
        run_id: str,
        wanted: Found,
        order: RecordOrder = "position",
        after: Place | None = None,
        limit: int = records.PAGE,
    ) -> list[Kept]:
        """The next records behind a place, of those that are wanted."""
        return self._read(
            lambda c: records.read_behind(c, run_id, wanted, order, after, limit), run_id
        )

    def read_changes(self, run_id: str, revision: int, limit: int) -> list[Kept]:
        """The records that were kept after a revision, in the order in which they were."""
        return self._read(lambda c: records.read_changes(c, run_id, revision, limit), run_id)

    def newest_revision(self, run_id: str) -> int:
        """Of the records of a run; 0 where it has none."""
        return self._read(lambda c: records.newest_revision(c, run_id), run_id)

    def count_records(self, run_id: str) -> Mapping[str, int]:
        """How many records a run has, by their status."""
        return self._read(lambda c: records.count_records(c, run_id), run_id)

    def look(self, query: Callable[[Connection], T], run_id: str = "") -> T:
        """What a query of `run_pages` finds."""
        return self._read(query, run_id)

    def _read(self, query: Callable[[Connection], T], run_id: str = "") -> T:
        return self._database.read(query, run_id)
