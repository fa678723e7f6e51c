"""The stored runs of a client: list, read, compare, export and resume them.

    with Client(store="my.db") as client:
        for run in client.runs.list():
            print(run.id, run.kind, run.result)
        run = client.runs.get("last")
        run.to_frame()
        print(run.report())

The command line uses the same functions of `runs.stored_runs`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textevolve.api.results import attach_run
from textevolve.engine import sync
from textevolve.engine.sync import waited
from textevolve.errors import InputError
from textevolve.evaluation import Figure
from textevolve.report.blocks import Report
from textevolve.report.html import html_fragment
from textevolve.report.markdown import write_markdown
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.runs.report import (
    ListedRun,
    StoredComparison,
    compare_stored,
    list_studies,
    make_data,
    make_report,
)
from textevolve.runs.stored import Records, StudyRun, read_records
from textevolve.runs.stored_runs import (
    check_outputs,
    find_runs,
    get_whole,
    is_complete,
    kind_of,
    reread,
    run_data,
    write_outputs,
)
from textevolve.settings import Settings
from textevolve.showing import Shown, TableRows, show_as
from textevolve.spec import files_read
from textevolve.store.repository import Store, open_store
from textevolve.wiring import take_limits

if TYPE_CHECKING:
    from textevolve.api.options import ClientOptions

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class SavedRun(Shown):
    """A stored run. Its facts are those of the moment at which it was read; its report and its
    rows are read anew from the store each time.

    Attributes:
        listed: The run with its main figures, and `facts`: the same as JSON-ready data.
        settings: Those with which its store is opened.
    """

    listed: ListedRun
    facts: Mapping[str, Any]
    settings: Settings

    def __repr__(self) -> str:
        return f"SavedRun({self.id!r}, {self.kind}, {self.status}, {self.result or 'no result'})"

    @property
    def id(self) -> str:
        return self.listed.run.id

    @property
    def name(self) -> str:
        return self.listed.run.name

    @property
    def kind(self) -> str:
        """The kind of study, such as `compare`."""
        return kind_of(self.listed.run)

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted` (it can be resumed) or `failed`."""
        return self.listed.run.status

    @property
    def result(self) -> str:
        """The main figure as a text, such as a pass rate; empty without one."""
        return self.listed.result

    def report(self) -> str:
        """Return the report as Markdown.

        Raises:
            InputError, StoreError: the run cannot be read.
        """
        with self._opened() as (store, run, records):
            return write_report(make_report(store, run, records))

    @property
    def data(self) -> dict[str, Any]:
        """The report as JSON-ready data, the same as `textevolve runs show --json`."""
        with self._opened() as (_, run, records):
            return make_data(run, records)

    @cached_property
    def aggregates(self) -> Mapping[str, Figure]:
        """The figures by name, the same as `aggregates` of its data."""
        return self.data["aggregates"]

    @property
    def records(self) -> list[Any]:
        """The records, in their order."""
        with self._opened() as (_, _, records):
            return list(records())

    def export(self, *files: str | Path) -> None:
        """Write the results to files, in the formats of their endings: .json, .jsonl, .csv,
        .parquet, .html or .md.

        Raises:
            InputError: a file cannot be written.
        """
        with self._opened() as (store, run, records):
            names = list(map(str, files))
            if not names:
                raise InputError("name a file to write, such as results.csv")
            check_outputs(run.study, names, files_read(run.spec))
            for line in write_outputs(store, run, records, names):
                logging.getLogger("textevolve").info(line)

    def _rows(self) -> TableRows:
        with self._opened() as (_, run, records):
            return list(run.study.table(records()))

    def _repr_html_(self) -> str:
        with self._opened() as (store, run, records):
            return html_fragment(make_report(store, run, records))

    @contextmanager
    def _opened(self) -> Generator[tuple[Store, StudyRun, Records]]:
        with open_store(self.settings.store) as store:
            run = _restore(store, self.id, self.settings)
            yield store, run, read_records(store, run)


@dataclass(frozen=True, repr=False)
class ComparedRuns(Shown):
    """The paired difference of two runs over the same cases.

    Attributes:
        stored: The comparison, with its report.
    """

    stored: StoredComparison

    def __repr__(self) -> str:
        return f"ComparedRuns({self.stored.report.sentence})"

    @property
    def data(self) -> dict[str, Any]:
        """The comparison as JSON-ready data, the same as `textevolve runs compare --json`."""
        return self.stored.comparison.data

    def report(self) -> str:
        """Return the report as Markdown."""
        return write_report(self.stored.report)

    def _rows(self) -> TableRows:
        for variant, cases in self.stored.comparison.cases.items():
            for case, (first, second) in cases.items():
                yield {
                    "case": case,
                    "variant": variant,
                    "first": first,
                    "second": second,
                    "difference": second - first,
                }


def _draw_comparison(compared: ComparedRuns) -> str:
    return html_fragment(compared.stored.report)


show_as(ComparedRuns, _draw_comparison)


def write_report(report: Report) -> str:
    """Return a report as Markdown."""
    target = BytesIO()
    write_markdown(report, target)
    return target.getvalue().decode()


def _restore(store: Store, name: str, settings: Settings) -> StudyRun:
    """Return a run whose records are complete, as far as its journal can restore them."""
    run = get_whole(store, name)
    if reason := sync.run(driver.restore_records(store, run, settings)):
        logging.getLogger("textevolve").warning(
            "the records of run %s are as they were stored: %s", run.id, reason
        )
    return run


class AsyncRuns:
    """The stored runs of a client, with async methods. Each may raise StoreError if there is no
    such run, or if the store cannot be read. A run is named by its id, the start of it, its name,
    or "last"."""

    def __init__(self, client: ClientOptions) -> None:
        self._client = client

    async def list(self, limit: int = 20, *, everything: bool = False) -> list[SavedRun]:
        """List runs, the newest first. `everything`: also those that hold calls of servers, chats
        and memories."""
        return await self._read(
            lambda store, settings: [
                save_run(store, listed, settings)
                for listed in find_runs(store, limit, everything=everything)
            ]
        )

    async def get(self, run: str = "last") -> SavedRun:
        """Return a run."""

        def read(store: Store, settings: Settings) -> SavedRun:
            (listed,) = list_studies(store, [get_whole(store, run).record])
            return save_run(store, listed, settings)

        return await self._read(read)

    async def compare(self, first: str, second: str) -> ComparedRuns:
        """Compare two runs over the same cases.

        Raises:
            InputError: they were scored in different ways, or share no case with a score.
        """

        def read(store: Store, settings: Settings) -> ComparedRuns:
            runs = [_restore(store, name, settings).record for name in (first, second)]
            return ComparedRuns(compare_stored(store, *runs))

        return await self._read(read)

    async def export(self, run: str, *files: str | Path) -> None:
        """Write the results of a run to files, like `SavedRun.export`."""
        saved = await self.get(run)
        await asyncio.to_thread(saved.export, *files)

    async def resume(self, run: str = "last") -> Any:
        """Perform the missing part of a run, and return its result, as the verb that began it
        does. Calls that were answered are not made again.

        Raises:
            InputError: the run calls an object of a program; call its verb again instead.
            FatalModelError: no call can succeed; all answers so far are stored.
        """
        client = self._client
        settings = client.read_settings()
        launch = Launch(
            source="Python",
            limits=take_limits(client.limits),
            time_limit=client.time_limit,
            listener=client.listener,
            ends=True,
        )
        latest: dict[str, Any] = {}

        async with open_store(settings.store) as store:
            stored = get_whole(store, run)
            study = stored.study
            work = (
                reread(store, stored, launch)
                if is_complete(store, stored)
                else driver.perform(store, stored, settings, launch)
            )
            async with aclosing(work) as records:
                async for record in records:
                    row = study.row(record)
                    latest[row.key] = attach_run(record, stored.record, [record])

        ordered = sorted(latest.values(), key=lambda record: study.row(record).position)

        return attach_run(study.summarise(stored.spec, ordered), stored.record, ordered)

    async def _read(self, read: Callable[[Store, Settings], T]) -> T:
        settings = self._client.read_settings()

        def open_and_read() -> T:
            with open_store(settings.store) as store:
                return read(store, settings)

        return await asyncio.to_thread(open_and_read)


def save_run(store: Store, listed: ListedRun, settings: Settings) -> SavedRun:
    """Return a run of a list as Python has it."""
    return SavedRun(listed, run_data(listed, store.run_totals(listed.run.id)), settings)


class Runs:
    """The stored runs of a client; each method waits for that of `AsyncRuns`."""

    def __init__(self, client: ClientOptions) -> None:
        self._runs = AsyncRuns(client)

    def call_sync(self, method: Any, *arguments: Any, **options: Any) -> Any:
        """Call a method of `AsyncRuns`, and return its result."""
        return sync.run(method(self._runs, *arguments, **options))

    list = waited(AsyncRuns.list)
    get = waited(AsyncRuns.get)
    compare = waited(AsyncRuns.compare)
    export = waited(AsyncRuns.export)
    resume = waited(AsyncRuns.resume)
