"""Runs on a server: they are started there, and their records are followed until they end.

The records are decoded on this machine by the study of their kind.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from yarl import URL

from textevolve.addresses import is_loopback
from textevolve.errors import (
    ConflictError,
    FatalModelError,
    InputError,
    NotFoundError,
    SettingsError,
    StoreError,
    TextEvolveError,
    UnavailableError,
)
from textevolve.evaluation import Case, Usage
from textevolve.events import CallFinished, CallRetried, Listener
from textevolve.llm.chains.chain import ENDINGS, load_chain
from textevolve.llm.connections import Http
from textevolve.llm.providers import find_key, has_login, split_address
from textevolve.llm.refusals import read_refusal
from textevolve.mappings import read_fields
from textevolve.reach import is_file, note_files
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
from textevolve.rows.images import PREFIX
from textevolve.runs.driver import Launch
from textevolve.runs.stored import VERSION, RecordKeeper
from textevolve.runs.study import AnyStudy, Row, StudySpec, find_study
from textevolve.settings import Settings
from textevolve.spec import files_read
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord, RunStatus, RunTotals

# Requests to a TextEvolve server: JSON, files, and event streams that resume after a broken
# connection.
#
# `runs` decides what is requested.

KEY = "TEXTEVOLVE_SERVER_KEY"  # the environment variable with the key for the server
QUIET = 60.0
"""The seconds without data after which a stream of events counts as broken; a server sends
something every 15 seconds."""
LARGEST_EVENT = 64 * 2**20
"""The largest size of an event, in bytes."""
FIRST_WAIT = 0.5
LONGEST_WAIT = 15.0
PATIENCE = 600.0
"""The seconds before the first attempt to reconnect, the longest wait between two attempts, and the
total time after which there are no more."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a server's stream. `name`: its type; `id`: its id, empty if the server sent
    none; `data`: its JSON."""

    name: str
    id: str
    data: Any


class Connection:
    """An open connection to the server at this address; close it, or use `async with`.

    Raises:
        SettingsError: the key cannot be used.
    """

    def __init__(self, address: str, settings: Settings) -> None:
        self.address = address
        host = urlsplit(address).netloc
        key = find_key(host, KEY, ask_keyring=not is_loopback(address))
        if key is not None and not address.startswith("https:") and not is_loopback(address):
            raise SettingsError(
                f"{address}: a key is only sent over https; give the server's https address"
            )

        timeouts = settings.timeouts
        largest = max(settings.largest_answer, 256)
        self._http = Http(f"server {host}", address, key, timeouts, 8, largest)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the server's answer; None for an empty body.

        Raises:
            UnavailableError: the server cannot be reached, or is overloaded.
            NotFoundError, ConflictError, InputError, SettingsError, StoreError: the server rejected
                the request.
        """
        data = None if body is None else json.dumps(body).encode()
        status, headers, raw = await self._http.exchange(method, self._url(path), data)
        if not 200 <= status < 300:
            raise self._refusal(status, headers, raw)
        try:
            return json.loads(raw) if raw else None
        except ValueError:
            raise UnavailableError(
                f"{self.address}: the answer is not JSON, so this is not a TextEvolve server"
            ) from None

    async def listen(self, path: str, listener: Listener) -> AsyncGenerator[ServerEvent]:
        """Yield the events of a path, each once. If the stream breaks off, it is resumed after the
        last event that had an id. The caller stops reading at the last event that it expects.

        Raises:
            UnavailableError: the server has been unreachable for ten minutes. Further errors as in
                `ask`.
        """
        loop = asyncio.get_running_loop()
        last = ""
        attempt = 0
        since = loop.time()

        while True:
            try:
                async with aclosing(self._events(path, last)) as events:
                    async for event in events:
                        last = event.id or last
                        attempt = 0
                        since = loop.time()
                        yield event

                raise UnavailableError(f"{self.address}: the stream of events ended early")
            except UnavailableError as error:
                if loop.time() - since > PATIENCE:
                    raise
                attempt += 1
                wait = error.retry_after or min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1))
                listener(CallRetried(self.address, str(error), attempt, wait))
                await asyncio.sleep(wait)

    async def _events(self, path: str, last: str) -> AsyncGenerator[ServerEvent]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        buffer = b""
        answer = await self._http.begin("GET", self._url(path), extra=headers, quiet=QUIET)
        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                buffer += part
                if len(buffer) > LARGEST_EVENT:
                    raise StoreError(f"{self.address}: an event is larger than 64 MiB")
                if answer.status != 200:
                    continue
                *blocks, buffer = buffer.split(b"\n\n")

                for block in blocks:
                    lines = block.decode("utf-8", "replace").split("\n")
                    fields = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
                    if "data" in fields:
                        data = json.loads(fields["data"])
                        yield ServerEvent(fields.get("event", ""), fields.get("id", ""), data)

        if answer.status != 200:
            raise self._refusal(answer.status, answer.headers, buffer)

    def _url(self, path: str) -> URL:
        return URL(self.address + path, encoded=True)

    def _refusal(self, status: int, headers: Mapping[str, str], raw: bytes) -> TextEvolveError:
        if failed := self._http.failure_on_the_way(status, read_refusal(raw), headers):
            return failed
        try:
            text = json.loads(raw)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            text = self._http.describe_body(raw)

        message = self._http.scrub(str(text))
        if status in (408, 429) or status >= 500:
            return UnavailableError(f"{self.address}: {message}", status=status)
        if status in (401, 403):
            return SettingsError(
                f"{self.address}: {message}; the key is read from {KEY}, or from the keyring"
            )

        kinds = {404: NotFoundError, 409: ConflictError, 400: InputError, 422: InputError}
        kind = kinds.get(status, StoreError)
        is_ours = b'"code":"' in raw  # as in all refusals of this package's servers
        where = "" if is_ours and kind in (InputError, NotFoundError) else f"{self.address}: "

        return kind(where + message)


def part(name: str) -> str:
    """Quote a name for use as one segment of a URL's path."""
    return quote(name, safe="")


STATUSES: dict[str, RunStatus] = {
    "finished": "finished",
    "failed": "failed",
    "running": "running",
    "queued": "running",
}
"""The local status for each status of a server's run. A run with another status is interrupted, and
can be resumed."""


class MirrorStore(Store):
    """A temporary store with a copy of a server's run, so that the code for local runs can show,
    summarise and export it. It has records but no journal of answers. `place`: the address of the
    server.

    Raises:
        StoreError: the file of the store cannot be written.
    """

    has_journal = False

    def __init__(self, address: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="textevolve-", ignore_cleanup_errors=True)
        super().__init__(Path(self._folder.name) / "mirror.db")
        self._address = address
        self._totals: dict[str, RunTotals] = {}

    @property
    def place(self) -> str:
        return self._address

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def run_totals(self, run_id: str) -> RunTotals:
        return self._totals[run_id]

    def take_run(self, detail: RunDetail) -> RunRecord:
        """Store the copy of a server's run, or update it, and return it."""
        run = record_of(detail, self._address)
        spent = usage_from_wire(detail.spent)
        reused = usage_from_wire(detail.reused)
        self._totals[detail.id] = RunTotals(spent, reused, detail.failed_calls)
        self.copy_run(run)
        return run


def record_of(detail: RunDetail, address: str) -> RunRecord:
    """Convert a server's run to a `RunRecord`, whose source is the server's address."""
    names = {"kind", "spec", "model", "why", "prices", "answers", "described"}
    return RunRecord(
        id=detail.id,
        name=detail.name,
        fingerprint=f"{address}/{detail.id}",
        created=detail.created,
        updated=detail.updated,
        status=STATUSES.get(detail.status, "interrupted"),
        source=address,
        n_cases=detail.cases,
        spec={"version": VERSION, **detail.model_dump(mode="json", include=names)},
    )


def usage_from_wire(usage: WireUsage) -> Usage:
    return Usage(**usage.model_dump())


HERE = "none"
"""The value in place of a server's address that selects this machine, whatever the settings
name."""
RUNS = "/v1/studies"  # the path of runs in the server's HTTP API


def remote_server(settings: Settings, requested: str | None = None) -> RemoteServer | None:
    """Return the server at the requested address, or that of the settings; None if studies run on
    this machine.

    Raises:
        SettingsError: the address is not valid.
    """
    address = requested or settings.server
    if address is None or address == HERE:
        return None
    parts = split_address(address)

    if parts is None or has_login(parts):
        raise SettingsError(
            "the server's address is not of the form http(s)://host[:port]; set its key in the"
            f" environment variable {KEY}"
        )

    return RemoteServer(address.strip().rstrip("/").removesuffix("/v1"), settings)


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server that runs studies for this machine, with the settings of this machine."""

    address: str
    settings: Settings

    async def begin(
        self, spec: StudySpec, launch: Launch, cases: Iterable[Case] | None = None
    ) -> RunDetail:
        """Start a study on the server, and return its run. If the server already has a run of the
        same study, return that.

        Raises:
            InputError: the study has objects that cannot be sent, or the server rejects it.
        """
        for name in launch.objects:
            raise InputError(
                f"{name}: is an object of this program and cannot be sent to a server; name"
                " something that the server has, or run the study here with server='none'"
            )

        space = self.settings.namespace
        limits = launch.limits
        run = {
            "name": launch.name,
            "namespace": None if space == Settings.model_fields["namespace"].default else space,
            "limits": {"cost": limits.cost, "tokens": limits.tokens, "calls": limits.calls},
            "time_limit": launch.time_limit,
            "concurrency": self.settings.concurrency,
            "batch": self.settings.batch,
        }
        body = write_study(spec, self.settings, run, cases)
        async with Connection(self.address, self.settings) as server:
            return RunDetail(**await server.ask("POST", RUNS, body))

    async def follow(
        self,
        detail: RunDetail,
        launch: Launch,
        store: MirrorStore | None = None,
        *,
        again: bool = False,
    ) -> AsyncGenerator[Any]:
        """Yield the records of a run as they arrive, until the run ends, and add them to `store`.
        `detail`: the run as it was at its start. A skipped record is held back until the end, since
        the server may still finish it, and is yielded only if it stays skipped. A record that the
        server sends again unchanged is yielded only once, unless `again` is set.

        Raises:
            FatalModelError: no call of the run could succeed. StoreError: the run was cancelled,
                and there is no store that could record it.
        """
        study = find_study(detail.kind)
        path = f"{RUNS}/{part(detail.id)}/events"
        keeper = None if store is None else RecordKeeper(study, store, detail.id)
        spent = {False: usage_from_wire(detail.spent), True: usage_from_wire(detail.reused)}
        last = WireStatus(status="running", reason="")
        seen: dict[str, Row] = {}
        skipped: dict[str, Any] = {}

        def report(progress: RunProgress) -> None:
            """Report new usage by events, as the calls of a local run would."""
            for replayed, wire_total in ((False, progress.spent), (True, progress.reused)):
                total = usage_from_wire(wire_total)
                new = total - spent[replayed]
                if new.calls > 0:
                    spent[replayed] = total
                    launch.listener(CallFinished(detail.model, new, 0.0, replayed))

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
                            body = json.dumps(WireRecord(**event.data).record)
                            record = study.decode(body.encode())
                            if keeper is not None:
                                await keeper.add(record)
                            row = study.row(record)
                            skipped.pop(row.key, None)

                            if row.status == "skipped":  # unless the server resumes it
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
                store.take_run(RunDetail(**await server.ask("GET", f"{RUNS}/{part(detail.id)}")))

        if last.status == "failed":
            raise FatalModelError(last.reason or f"run {detail.id}: has failed at {self.address}")
        if store is None and last.status == "cancelled":
            raise StoreError(f"run {detail.id}: was cancelled at {self.address}; it can be resumed")


def write_study(
    spec: StudySpec,
    settings: Settings,
    run: Mapping[str, Any],
    cases: Iterable[Case] | None = None,
) -> dict[str, Any]:
    """Return the body of the request that starts a study on a server, completed from the settings
    of this machine. `run`: the launch options. `cases`: cases of the program, which replace the
    files that the specification names.

    Raises:
        InputError: a file cannot be read, or the specification names an object of this program.
    """
    if STANDARD_INPUT in files_read(spec):
        raise InputError("standard input cannot be sent to a server: name a file")
    study = find_study(spec.kind)
    inline_cases = None if cases is None else list(map(_case_data, cases))
    with note_files() as noted:
        spec = study.complete(spec, settings)
        _read_here(study, spec, reads_cases=cases is None)
    named_files = [named_file for named_file in files_read(spec) if is_file(named_file)]
    names = {**noted, **dict.fromkeys(named_files)}

    if len(names) > MOST_FILES:
        raise InputError(
            f"the study reads {len(names):,} files, and a server takes {MOST_FILES:,}: put images"
            " into the rows as data URLs, send fewer rows, or run it here"
        )

    files = {name: _content(name) for name in names}
    part = {**run, "files": files} | ({} if inline_cases is None else {"cases": inline_cases})
    data = spec.model_dump(mode="json", exclude_defaults=True)

    return {"kind": study.kind, **data, "run": part}


def _read_here(study: AnyStudy, spec: StudySpec, *, reads_cases: bool) -> None:
    """Read the files that the specification names, so that all files to be sent are recorded. Data
    sets on a hub are left to the server."""
    asks = study.asks(spec)
    for judge in asks.judges:
        judge.describe()
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
    fields = read_fields(case, *CasePart.model_fields)
    required = ("input", "candidates", "id")
    return {name: value for name, value in fields.items() if value or name in required}
