"""Runs at a server: begun there, and followed until they end.

Records are decoded by their own study here, as they come.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textevolve.errors import FatalModelError, InputError, StoreError
from textevolve.evaluation import Case, Usage
from textevolve.evaluators import describe_judge
from textevolve.events import CallFinished
from textevolve.llm.chains.chain_file import ENDINGS, load_chain
from textevolve.reach import is_file, note_files
from textevolve.remote.connection import Connection, find_server, part
from textevolve.remote.wire import (
    ENDED,
    MOST_FILES,
    CasePart,
    RunDetail,
    RunProgress,
    WireRecord,
    WireStatus,
    WireUsage,
)
from textevolve.rows import STANDARD_INPUT
from textevolve.rows.hub import PREFIX
from textevolve.settings import Settings
from textevolve.spec import files_read
from textevolve.store.records import Kept
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord, RunStatus, RunTotals
from textevolve.studies.driver import Launch
from textevolve.studies.kinds import find_study
from textevolve.studies.stored import VERSION, RecordKeeper
from textevolve.studies.study import AnyStudy, Row, StudySpec

STATUSES: dict[str, RunStatus] = {
    "finished": "finished",
    "failed": "failed",
    "running": "running",
    "queued": "running",
}
"""As runs of this machine have them; all others are such that can be gone on with."""


class MirrorStore(Store):
    """A store for the time of a command, which holds a run of a server, so that it is shown,
    summarised and written by the code for runs of this machine. It has records and no journal.
    `place`: the address of the server.

    Raises:
        StoreError: no file can be written for it.
    """

    has_journal = False

    def __init__(self, address: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="textevolve-", ignore_cleanup_errors=True)
        super().__init__(Path(self._folder.name) / "mirror.db")
        self._address = address
        self._totals = dict[str, RunTotals]()

    @property
    def place(self) -> str:
        return self._address

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def run_totals(self, run_id: str) -> RunTotals:
        return self._totals[run_id]

    def take_run(self, told: RunDetail) -> RunRecord:
        """Note a run of the server, or what is new of it."""
        run = record_of(told, self._address)
        spent, reused = told_usage(told.spent), told_usage(told.reused)
        self._totals[told.id] = RunTotals(spent, reused, told.failed_calls)
        self.copy_run(run)
        return run


def record_of(told: RunDetail, address: str) -> RunRecord:
    """A run of a server, as a store has runs: its source is the server."""
    spec: dict[str, Any] = {"version": VERSION, "kind": told.kind, "spec": dict(told.spec)}
    spec |= {"model": told.model, "why": told.why, "prices": list(told.prices)}
    spec["answers"] = dict(told.answers)
    spec["described"] = dict(told.described)
    return RunRecord(
        id=told.id,
        name=told.name,
        fingerprint=f"{address}/{told.id}",
        created=told.created,
        updated=told.updated,
        status=STATUSES.get(told.status, "interrupted"),
        source=address,
        n_cases=told.cases,
        spec=spec,
    )


def told_usage(told: WireUsage) -> Usage:
    return Usage(**told.model_dump())


def kept_of(told: WireRecord) -> Kept:
    """A record as the store keeps it."""
    fields = told.model_dump(exclude={"record"})
    return Kept(**fields, body=json.dumps(told.record).encode())


RUNS = "/v1/studies"


def remote_server(settings: Settings, named: str | None = None) -> RemoteServer | None:
    """The server that is named, or else that of the settings, if there is one.

    Raises:
        SettingsError: it is no address.
    """
    address = find_server(settings, named)
    return None if address is None else RemoteServer(address, settings)


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server by its address, as `find_server` gives it, and how it is asked."""

    address: str
    settings: Settings

    async def begin(
        self,
        study: AnyStudy,
        spec: StudySpec,
        launch: Launch,
        cases: Iterable[Case] | None = None,
    ) -> RunDetail:
        """Begin a study there, or find the run that it is already.

        Raises:
            InputError: it holds what cannot be sent, or cannot be used there.
        """
        refuse_objects(launch)
        body = write_study(study, spec, self.settings, self._run_part(launch), cases)
        async with Connection(self.address, self.settings) as server:
            return RunDetail(**await server.ask("POST", RUNS, body))

    def _run_part(self, launch: Launch) -> dict[str, Any]:
        space, limits = self.settings.namespace, launch.limits
        return {
            "name": launch.name,
            "namespace": None if space == Settings.model_fields["namespace"].default else space,
            "limits": {"cost": limits.cost, "tokens": limits.tokens, "calls": limits.calls},
            "time_limit": launch.time_limit,
            "concurrency": self.settings.concurrency,
            "batch": self.settings.batch,
        }

    async def follow(
        self,
        told: RunDetail,
        launch: Launch,
        store: MirrorStore | None = None,
        *,
        again: bool = False,
    ) -> AsyncGenerator[Any]:
        """The records of a run as they come, until it ends; `store` keeps them, too. `told`: what
        the run was when it was begun. Where the server is stopped meanwhile and goes on, what it
        had to skip comes once it is done, and what it had done comes once, or with `again` as often
        as it is kept.

        Raises:
            FatalModelError: no call of it could succeed. StoreError: it was cancelled, and no store
                tells so.
        """
        study, path = find_study(told.kind), f"{RUNS}/{part(told.id)}/events"
        keeper = None if store is None else RecordKeeper(study, store, told.id)
        spent = {False: told_usage(told.spent), True: told_usage(told.reused)}
        last: WireStatus | None = None
        seen, skipped = dict[str, Row](), dict[str, Any]()

        def report(progress: RunProgress) -> None:
            """Report new usage as calls of this program would."""
            for replayed, total in ((False, progress.spent), (True, progress.reused)):
                new = told_usage(total) - spent[replayed]
                if new.calls > 0:
                    spent[replayed] = told_usage(total)
                    launch.listener(CallFinished(told.model, new, 0.0, replayed))

        async with Connection(self.address, self.settings) as server:
            try:
                async with aclosing(server.listen(path, launch.listener)) as events:
                    async for event in events:
                        if event.name == "progress":
                            report(RunProgress(**event.data))
                        elif event.name == "status":
                            last = WireStatus(**event.data)
                            if last.status in ENDED:
                                break
                        elif event.name == "record":
                            record = study.decode(kept_of(WireRecord(**event.data)).body)
                            if keeper is not None:
                                await keeper.add(record)
                            row = study.row(record)
                            skipped.pop(row.key, None)
                            if row.status == "skipped":  # unless the server goes on with it
                                skipped[row.key] = record
                            elif again or seen.get(row.key) != row:
                                seen[row.key] = row
                                yield record
                for record in skipped.values():
                    yield record
            finally:
                if keeper is not None:
                    await keeper.flush()
            if store is not None:
                store.take_run(RunDetail(**await server.ask("GET", f"{RUNS}/{part(told.id)}")))
        if last is not None and last.status == "failed":
            raise FatalModelError(last.reason or f"run {told.id}: has failed at {self.address}")
        if store is None and last is not None and last.status == "cancelled":
            raise StoreError(f"run {told.id}: was cancelled at {self.address}; it can be resumed")


def refuse_objects(launch: Launch) -> None:
    """
    Raises:
        InputError: functions of this program would have to be sent to a server.
    """
    for name in launch.objects:
        raise InputError(
            f"{name}: is this program's own and cannot be sent to a server; name what the server"
            " has, or run it here with server='none'"
        )


def write_study(
    study: AnyStudy,
    spec: StudySpec,
    settings: Settings,
    run: Mapping[str, Any],
    cases: Iterable[Case] | None = None,
) -> dict[str, Any]:
    """The body that begins a study at a server, with what the settings here say of it. `run`: how
    it is run. `cases`: those of the program, in place of those that the specification names.

    Raises:
        InputError: a file cannot be read, or the specification names what is the program's own.
    """
    if STANDARD_INPUT in files_read(spec):
        raise InputError("standard input cannot be sent to a server: name a file")
    given = None if cases is None else [_case_data(case) for case in cases]
    with note_files() as noted:
        spec = study.complete(spec, settings)
        _read_here(study, spec, reads_cases=cases is None)
    named = [one for one in files_read(spec) if is_file(one)]
    names = {**noted, **dict.fromkeys(named)}
    if len(names) > MOST_FILES:
        raise InputError(
            f"the study reads {len(names):,} files, and a server takes {MOST_FILES:,}: put images"
            " into the rows as data URLs, send fewer rows, or run it here"
        )
    files = {name: _content(name) for name in names}
    part = {**run, "files": files} | ({} if given is None else {"cases": given})
    data = spec.model_dump(mode="json", exclude_defaults=True)
    return {"kind": study.kind, **data, "run": part}


def _read_here(study: AnyStudy, spec: StudySpec, *, reads_cases: bool) -> None:
    """Read all that the specification names, but for what the server has to fetch."""
    asks = study.asks(spec)
    for judge in asks.judges:
        describe_judge(judge)
    for chain in asks.chains:
        if chain.lower().endswith(ENDINGS):
            load_chain(chain)
    elsewhere = any(name.startswith(PREFIX) for name in files_read(spec))
    if reads_cases and not elsewhere:
        for _ in study.cases(spec):
            pass


def _content(name: str) -> str | dict[str, str]:
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _case_data(case: Case) -> dict[str, Any]:
    fields = {name: getattr(case, name) for name in CasePart.model_fields}
    required = ("input", "candidates", "id")
    return {name: value for name, value in fields.items() if value or name in required}
