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
from collections.abc import Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

from textevolve.api.options import ClientOptions
from textevolve.api.results import collect_result
from textevolve.engine import sync
from textevolve.engine.sync import waited
from textevolve.errors import InputError
from textevolve.ledger import log
from textevolve.report.blocks import Report
from textevolve.report.html import html_fragment
from textevolve.report.markdown import write_markdown
from textevolve.rows.writing import frame_rows, plain
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.runs.logs import LOGS, is_log_target, write_logs
from textevolve.runs.report import (
    ListedRun,
    RunComparison,
    compare_stored,
    list_studies,
    make_data,
    make_report,
    report_comparison,
)
from textevolve.runs.stored import Records, StudyRun, read_records
from textevolve.runs.stored_runs import (
    check_outputs,
    find_runs,
    get_whole,
    is_complete,
    reread,
    run_data,
    study_kind,
    write_outputs,
)
from textevolve.settings import Settings
from textevolve.showing import Shown, TableRows
from textevolve.spec import files_read
from textevolve.store.repository import Store, open_store
from textevolve.wiring import take_limits


@dataclass(frozen=True)
class SavedRun(Shown):
    """A stored run. Its fields are those of the moment at which it was read; its report and its
    rows are read anew from the store each time.

    Attributes:
        kind: The kind of study, such as `compare`.
        status: `running`, `finished`, `interrupted` (it can be resumed) or `failed`.
        result: The main figure as a text, such as a pass rate; empty without one.
        facts: All that the list of runs knows of it, as JSON-ready data.
    """

    id: str
    name: str
    kind: str
    status: str
    result: str
    facts: Mapping[str, Any] = field(repr=False)
    _settings: Settings = field(repr=False)

    def report(self) -> str:
        """Return the report as Markdown.

        Raises:
            InputError, StoreError: the run cannot be read.
        """
        return self._draw(write_report)

    @property
    def data(self) -> dict[str, Any]:
        """The report as JSON-ready data, the same as `textevolve runs show --json`."""
        with self._opened() as (_, run, records):
            return plain(make_data(run, records))

    def export(self, *files: str | Path, to: str = "") -> None:
        """Write the results to files, in the formats of their endings: .json, .jsonl, .csv,
        .parquet, .html or .md.

        Args:
            files: The names of the files.
            to: A folder for files of another program: inspect:FOLDER, every-eval-ever:FOLDER or
                atif:FOLDER.

        Raises:
            InputError: a file cannot be written, or the run has no outputs for such a folder.
        """
        if to and not is_log_target(to):
            raise InputError(f"'{to}': must be one of {', '.join(LOGS)}, a colon and a folder")
        with self._opened() as (store, run, records):
            names = list(map(str, files))
            if not (names or to):
                raise InputError("name a file to write, such as results.csv")
            check_outputs(run.study, names, files_read(run.spec))
            lines = write_outputs(store, run, records, names)
            for line in chain(lines, write_logs(store, run, to) if to else ()):
                log.info(line)

    def _rows(self) -> TableRows:
        with self._opened() as (_, run, records):
            return frame_rows(run.study.table(records()))

    def _draw(self, draw: Callable[[Report], str]) -> str:
        with self._opened() as (store, run, records):  # a report reads records as it is drawn
            return draw(make_report(store, run, records))

    def _repr_html_(self) -> str:
        return self._draw(html_fragment)

    @contextmanager
    def _opened(self) -> Generator[tuple[Store, StudyRun, Records]]:
        with open_store(self._settings.store) as store:
            run = sync.run(_restore(store, self.id, self._settings))
            yield store, run, read_records(store, run)


@dataclass(frozen=True)
class ComparedRuns(Shown):
    """The paired difference of two runs over the same cases. `data`: the comparison as JSON-ready
    data, which `textevolve runs compare FIRST SECOND --json` prints."""

    data: Mapping[str, Any]
    _comparison: RunComparison = field(repr=False)
    _report: Report = field(repr=False)

    def report(self) -> str:
        """Return the report as Markdown."""
        return write_report(self._report)

    def _rows(self) -> TableRows:
        for variant, cases in self._comparison.cases.items():
            for case, (first, second) in cases.items():
                yield {"case": case, "variant": variant, "first": first, "second": second}

    def _repr_html_(self) -> str:
        return html_fragment(self._report)


def write_report(report: Report) -> str:
    """Return a report as Markdown."""
    target = BytesIO()
    write_markdown(report, target)
    return target.getvalue().decode()


async def _restore(store: Store, name: str, settings: Settings) -> StudyRun:
    """Return a run whose records are complete, as far as its journal can restore them."""
    run = get_whole(store, name)
    if reason := await driver.restore_records(store, run, settings):
        log.warning("the records of run %s are as they were stored: %s", run.id, reason)
    return run


class AsyncRuns:
    """The stored runs of a client, with async methods. Each may raise StoreError if there is no
    such run, or if the store cannot be read. A run is named by its id, the start of it, its name,
    or "last"."""

    def __init__(self, client: ClientOptions) -> None:
        self._client = client

    async def list(self, limit: int = 20, *, everything: bool = False) -> list[SavedRun]:
        """List runs, the newest first. `everything`: also runs that hold calls of servers, chats
        and memories."""
        settings = self._client.read_settings()
        with open_store(settings.store) as store:
            listed = find_runs(store, limit, everything=everything)
            return [_save_run(store, run, settings) for run in listed]

    async def get(self, run: str = "last") -> SavedRun:
        """Return a run."""
        settings = self._client.read_settings()
        with open_store(settings.store) as store:
            (listed,) = list_studies(store, [get_whole(store, run).record])
            return _save_run(store, listed, settings)

    async def compare(self, first: str, second: str) -> ComparedRuns:
        """Compare two runs over the same cases.

        Raises:
            InputError: they were scored in different ways, or share no case with a score.
        """
        settings = self._client.read_settings()
        with open_store(settings.store) as store:
            runs = [(await _restore(store, name, settings)).record for name in (first, second)]
            compared = compare_stored(store, *runs)
            return ComparedRuns(compared.data, compared, report_comparison(compared, runs))

    async def export(self, run: str, *files: str | Path, to: str = "") -> None:
        """Write the results of a run to files, like `SavedRun.export`."""
        await asyncio.to_thread((await self.get(run)).export, *files, to=to)

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
            limits=take_limits(client.limits),
            time_limit=client.time_limit,
            listener=client.listener,
            ends=True,
        )
        async with open_store(settings.store) as store:
            stored = get_whole(store, run)
            work = driver.perform(store, stored, settings, launch)
            if is_complete(store, stored):
                work = reread(store, stored, launch)
            async with aclosing(work) as records:
                return await collect_result(stored.study, stored.spec, stored.record, records)


def _save_run(store: Store, listed: ListedRun, settings: Settings) -> SavedRun:
    run = listed.run
    facts = run_data(listed, store.run_totals(run.id))
    return SavedRun(run.id, run.name, study_kind(run), run.status, listed.result, facts, settings)


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
