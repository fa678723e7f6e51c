"""Run the studies of clients in the background of the server: a limited number at a time, the
others in turn.

The store remembers which runs should continue (`served_runs`), so a server resumes the runs of
another server on the same store, even if that one crashed. A lease in the store names the server
that works on a run. Thanks to the journal only calls that were in flight are repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from textevolve.engine.local import cancel
from textevolve.errors import (
    BusyError,
    InputError,
    StoreAwayError,
    StoreError,
    TextEvolveError,
    public_message,
)
from textevolve.evaluation import empty_default
from textevolve.events import CallFinished, Event
from textevolve.images import decode_base64
from textevolve.llm.catalogue import PROVIDER, SUFFIX
from textevolve.llm.providers import known_providers
from textevolve.reach import Reach, confine, stored_name
from textevolve.remote.wire import Base64File, StudyStatus, WireLimits
from textevolve.runs import driver
from textevolve.runs.driver import Launch
from textevolve.runs.stored import StudyRun
from textevolve.server.errors import ApiError, log
from textevolve.server.identity import THIS_MACHINE, Identities, UsageLimits
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings
from textevolve.store.records import RecordFilter
from textevolve.store.repository import Store
from textevolve.store.runs import RunRecord
from textevolve.store.served import ServedRun, files_folder
from textevolve.wiring import Limits

# Store the files of clients' requests by their contents, in a folder next to the store.
#
# The files of one request are in one folder, whose name is the hash of all file names and
# contents, so equal files are stored once. They are never executed.

LONGEST_NAME = 200
SWEPT_SECONDS = 3600.0
"""The seconds after which files that no run needs are deleted, such as the files of an estimate."""
MOST_BYTES = 8 * 2**30
"""The most bytes of all files that clients sent."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """The folders of clients' files. `folder`: the folder that contains them; `used`: returns the
    names of the folders that runs need."""

    folder: Path
    used: Callable[[], set[str]]

    def keep(self, files: Mapping[str, str | Base64File]) -> str:
        """Store files under their names; return the name of the folder that holds them, empty if
        there are no files.

        Raises:
            InputError: a name is not a valid file name, a content is not Base64, or the limit of
                all files is reached.
        """
        contents = _place({name: _read(name, sent) for name, sent in files.items()})
        if not contents:
            return ""
        self.sweep()
        digest = hashlib.sha256()
        for path in sorted(contents):
            name = str(path).encode()
            head = f"{len(name)}:{len(contents[path])}:".encode()
            digest.update(head + name + contents[path])

        target = self.folder / digest.hexdigest()
        if target.is_dir():
            os.utime(target)  # so that they are not swept before their run is known
            return target.name
        size = sum(map(len, contents.values()))
        stored = self.folder.rglob("*") if self.folder.is_dir() else ()

        if size + sum(path.stat().st_size for path in stored) > MOST_BYTES:
            raise InputError(
                f"run.files: the server keeps at most {MOST_BYTES / 2**30:g} GiB of clients' files,"
                " and these are too many; delete runs that are not needed any more"
            )

        _write(target, contents)

        return target.name

    def holds(self, name: str) -> bool:
        return not name or (self.folder / name).is_dir()

    def drop(self, name: str) -> None:
        """Remove the files of a run that was removed, unless another run needs them."""
        if name and name not in self.used():
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def sweep(self) -> None:
        """Delete the folders that no run needs and that are older than `SWEPT_SECONDS`."""
        used = self.used()
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name not in used and time.time() - path.stat().st_mtime > SWEPT_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _read(name: str, content: str | Base64File) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace")
    raw = decode_base64(content.base64)
    if content.base64.strip() and not raw:
        raise InputError(f"run.files: {name}: is not valid Base64")
    return raw


def _place(contents: Mapping[str, bytes]) -> dict[Path, bytes]:
    """Return the path of each file within the folder."""
    placed: dict[Path, bytes] = {}
    for name, content in contents.items():
        path = stored_name(name)
        if not path.parts or len(name.encode()) > LONGEST_NAME or path in placed:
            raise InputError(
                f"run.files: '{name:.60}': the name is too long or is given twice; give each file"
                f" a name of at most {LONGEST_NAME} bytes"
            )

        placed[path] = content

    if nested := [path for path in placed if not placed.keys().isdisjoint(path.parents)]:
        raise InputError(f"run.files: '{nested[0]}' uses the name of another file as its folder")

    return placed


def _write(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Write the files atomically: the folder gets its name once all files are in it."""
    beside = folder.with_name(f".{secrets.token_hex(8)}.part")
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    folder.parent.chmod(0o700)

    try:
        for place, content in contents.items():
            for parent in reversed(place.parents):
                (beside / parent).mkdir(0o700, exist_ok=True)
            (beside / place).touch(0o600)
            (beside / place).write_bytes(content)

        try:
            os.replace(beside, folder)
        except OSError:
            if not folder.is_dir():  # else somebody else has sent the same meanwhile
                raise
    except OSError as error:
        raise StoreError(f"the files of the study cannot be stored: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def reach_of(served: ServedRun, options: ServerOptions, settings: Settings, store: Store) -> Reach:
    """Return the files, models, code, addresses and namespaces that a run may use."""
    sent = served.launch.get("files")
    seen = served.launch.get("namespaces")
    return Reach(
        folder=files_folder(store.location) / sent if sent else None,
        own=lambda name: name == settings.profile,
        models=allowed_models(options, settings, trusted=bool(served.launch.get("trusted"))),
        code=lambda name: name in options.allow_code,
        addresses=lambda address: _matches(address, options.allow_address),
        namespaces=lambda name: seen is None or name in seen,
    )


def allowed_models(
    options: ServerOptions, settings: Settings, *, trusted: bool
) -> Callable[[str], bool]:
    """Return a check for the models that a client may use: the served ones, those of the settings,
    and the ones that the operator allows. Callers that need no key (`trusted`) may use all known
    providers, but no address and no file of weights."""
    configured = {*options.model, settings.model, settings.embedder}

    def allowed(spec: str) -> bool:
        if spec in configured or _matches(spec, options.allow_model):
            return True
        name, _, model = spec.partition("/")
        if not trusted or "://" in spec or name not in known_providers(settings):
            return False
        is_path = any(mark in model for mark in "/\\~") or model.endswith(SUFFIX)
        return name != PROVIDER or not is_path

    return allowed


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


LONGEST_WAIT = 5.0
"""The most seconds between two checks whether a study that waits for its key's next minute may
continue."""
GONE = "the key that started the run is no longer valid; resume the run with another key"


DRAIN_SECONDS = 30.0
"""The most seconds that the server waits for calls in flight when it ends."""
LOOK_SECONDS = 1.0
"""The seconds between two checks whether a run was cancelled, or was abandoned by another
process."""
ENDING = "the server is stopping, and resumes the run at its next start"


@dataclass
class Runner:
    """The runner of clients' studies.

    Attributes:
        store: The storage of the runs.
        limits: The remaining quotas of keys and namespaces, which are charged for new calls.
        identities: Finds the caller whose key started a run.
        ending: Is set when the server is stopping: no more calls are started, and streams end.
        readings: What watchers of runs have just read, which others of the same run share.
    """

    store: Store
    settings: Settings
    options: ServerOptions
    limits: UsageLimits
    identities: Identities
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    readings: dict[tuple[object, ...], asyncio.Future[Any]] = empty_default(dict)
    _tasks: dict[str, asyncio.Task[None]] = empty_default(dict)
    _begun: set[str] = empty_default(set)
    _endings: set[asyncio.Task[None]] = empty_default(set)

    def __post_init__(self) -> None:
        self.uploads = Uploads(files_folder(self.store.location), self._used_files)
        self._places = asyncio.Semaphore(self.options.studies)

    def submit(self, run_id: str) -> None:
        """Run a stored study as soon as there is a place, unless it is running already."""
        if run_id in self._tasks or self.ending.is_set():
            return
        self.readings.clear()  # the run may have ended before
        task = self._tasks[run_id] = asyncio.create_task(self._work(run_id), name=f"run {run_id}")
        task.add_done_callback(lambda _task: self._tasks.pop(run_id, None))

    def _used_files(self) -> set[str]:
        return {served.launch.get("files", "") for served in self.store.all_served()}

    def works_on(self, run_id: str) -> bool:
        """Check whether this server works on a run, or has queued it."""
        return run_id in self._tasks

    async def wait(self, run_id: str, seconds: float) -> None:
        """Wait until this server no longer works on a run, at most for some seconds."""
        task = self._tasks.get(run_id)
        if task is not None:
            await asyncio.wait([task], timeout=seconds)

    async def is_busy(self, run_id: str) -> bool:
        """Check like `works_on`, but first wait for a cancelled or finished run to end."""
        task = self._tasks.get(run_id)
        if task is not None:
            served = await asyncio.to_thread(self.store.get_served, run_id)
            run = await asyncio.to_thread(self.store.get_run, run_id)
            if served is None or served.wanted != "running" or run.status == "finished":
                await asyncio.wait([task])

        return self.works_on(run_id)

    def status_of(self, run: RunRecord, served: ServedRun | None) -> tuple[StudyStatus, str]:
        """Return the status of a run and its reason. Both are read again if the work on the run may
        have ended since: the reason is stored before the run is released."""
        should_run = served is not None and served.wanted == "running"
        if should_run and run.status not in ("running", "finished") and not self.works_on(run.id):
            run = self.store.get_run(run.id)
            served = self.store.get_served(run.id)
        return self.last_status(run, served)

    def last_status(self, run: RunRecord, served: ServedRun | None) -> tuple[StudyStatus, str]:
        """Return the status of a run and its reason by what was read of it. It reads nothing, so
        that a filter of a list can call it within the read of the list."""
        if run.status == "finished":
            return "finished", ""
        if run.status == "running" or run.id in self._begun:
            return "running", ""
        if served is None:
            return ("failed" if run.status == "failed" else "interrupted"), ""
        if served.wanted == "running":
            return ("queued" if self.works_on(run.id) else "interrupted"), ""
        states: dict[str, StudyStatus] = {"cancelled": "cancelled", "failed": "failed"}

        return states.get(served.wanted, "interrupted"), served.reason

    async def cancel(self, run_id: str) -> None:
        """Cancel a run and end the work on it; stored answers stay."""
        await asyncio.to_thread(self.store.want_run, run_id, "cancelled")
        await self._end(run_id)

    def give_up(self, run_id: str) -> None:
        """Cancel a run without waiting for its end, for a caller who is being cancelled."""
        task = asyncio.create_task(self.cancel(run_id))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _end(self, run_id: str) -> None:
        if (task := self._tasks.get(run_id)) is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])

    async def drain(self) -> None:
        """Start no more calls, and wait a while for those in flight. Unfinished runs are resumed at
        the next start."""
        self.ending.set()
        if not self.options.resumes:  # no later server would
            for run_id in list(self._tasks):
                await self.cancel(run_id)
        for run_id, task in list(self._tasks.items()):
            if run_id not in self._begun:
                task.cancel()
        tasks = [*self._tasks.values(), *self._endings]

        if tasks:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
            await cancel(late)

    async def look(self) -> None:
        """Stop runs that were cancelled through another server on the same store, and resume
        abandoned ones, on which no server worked at two consecutive looks."""
        free: set[str] = set()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                for run_id in list(self._tasks):
                    served = await asyncio.to_thread(self.store.get_served, run_id)
                    if served is None or served.wanted == "cancelled":
                        await self._end(run_id)

                abandoned = free
                if self.options.resumes:
                    abandoned = set(await asyncio.to_thread(self._find_left))
            except StoreError as error:
                log.warning("the server cannot read its runs from the store now: %s", error)
                continue

            for run_id in abandoned & free:
                self.submit(run_id)
            free = abandoned

    def _find_left(self) -> list[str]:
        """Return the ids of the runs that should continue and that no server works on, except runs
        whose files are on another machine."""
        return [
            served.run_id
            for served in self.store.unfinished_served()
            if served.run_id not in self._tasks
            and self.uploads.holds(served.launch.get("files", ""))
            and self.store.get_run(served.run_id).status != "running"
        ]

    async def _work(self, run_id: str) -> None:
        try:
            await driver.work_alone(self.store, run_id, partial(self._take_place, run_id))
        except TextEvolveError as error:
            log.warning("run %s failed: %s", run_id, error)
            if not isinstance(error, StoreAwayError):  # else it is taken up when the store is back
                await self._note_failure(run_id, public_message(error))
        except Exception:
            log.exception("run %s failed", run_id)
            await self._note_failure(run_id, "the server failed; its log says why")
        finally:
            self._begun.discard(run_id)

    async def _take_place(self, run_id: str) -> None:
        """Work on a run when there is a place for it.

        Raises:
            BusyError: another server was faster, or has taken it over.
        """
        async with self._places:
            try:
                await self._perform(run_id)
            except BusyError:
                self._begun.discard(run_id)
                raise

    async def _note_failure(self, run_id: str, reason: str) -> None:
        try:
            await asyncio.to_thread(self.store.want_run, run_id, "failed", reason)
        except StoreError as error:  # the run is resumed when the store is back
            log.warning("run %s: its outcome could not be stored: %s", run_id, error)

    async def _perform(self, run_id: str) -> None:
        served = await asyncio.to_thread(self.store.get_served, run_id)
        run = StudyRun(await asyncio.to_thread(self.store.get_run, run_id))
        if served is None or served.wanted != "running" or run.record.status == "finished":
            return
        self._begun.add(run_id)
        settings = self.settings_of(served)
        launch = await asyncio.to_thread(self._launch, served)
        with self.confine(served):
            async with aclosing(driver.perform(self.store, run, settings, launch)) as records:
                async for _ in records:
                    pass

        record = await asyncio.to_thread(self.store.get_run, run_id)
        if record.status != "finished" and not self.ending.is_set():
            await asyncio.to_thread(self._note_limit, run_id)

    def confine(self, served: ServedRun | None) -> AbstractContextManager[None]:
        """Limit the block to the files, models and namespaces that a client's run may use; a run
        that was made without a server is not limited."""
        if served is None:
            return confine(None)
        return confine(reach_of(served, self.options, self.settings, self.store))

    def settings_of(self, served: ServedRun) -> Settings:
        """Return the settings for a run. Names without a namespace belong to the run's namespace;
        the client may lower the number of calls at a time, and choose batches."""
        concurrency = served.launch.get("concurrency")
        most = self.settings.concurrency
        if concurrency is not None and most is not None:
            concurrency = min(concurrency, most)
        changed = {"namespace": served.namespace, "concurrency": concurrency or most}
        changed["batch"] = self.settings.batch or bool(served.launch.get("batch"))

        return self.settings.model_copy(update=changed)

    def _launch(self, served: ServedRun) -> Launch:
        """Return the launch options of a run. New calls are charged to its key and its namespace,
        and a call waits or is refused when their quota is spent."""
        limits = WireLimits(**served.launch.get("limits", {}))
        totals = self.store.run_totals(served.run_id)
        caller = THIS_MACHINE

        def hear(event: Event) -> None:
            if isinstance(event, CallFinished) and not event.replayed:
                self.limits.note_tokens(caller, event.usage.tokens, served.namespace)

        async def halt() -> str:
            """Wait until the key's tokens per minute allow a call. Return a reason if no call will
            be possible, such as a spent daily budget; otherwise an empty text."""
            nonlocal caller
            while not self.ending.is_set():
                try:
                    holder = await self.identities.find_by_id(served.key_id)
                    if holder is None:
                        return GONE
                    caller = holder
                    await self.limits.check_tokens(caller, served.namespace, served.namespace_id)
                except StoreError:  # keys cannot be looked up meanwhile: the run goes on
                    return ""
                except ApiError as error:
                    if error.code != "rate_limit_exceeded":
                        return error.message
                    await asyncio.sleep(min(error.retry_after or 1.0, LONGEST_WAIT))
                else:
                    return ""

            return ENDING

        spent = replace(totals.spent, calls=totals.spent.calls + totals.failed)

        return Launch(
            name=served.launch.get("name", ""),
            source="HTTP",
            limits=Limits(limits.cost, limits.tokens, limits.calls, spent),
            time_limit=served.launch.get("time_limit"),
            listener=hear,
            halt=halt,
        )

    def _note_limit(self, run_id: str) -> None:
        skipped = self.store.read_records(run_id, RecordFilter(statuses=("skipped",)), limit=1)
        reason = skipped[0].reason if skipped else "its limits are reached"
        self.store.want_run(run_id, "limited", reason)


@asynccontextmanager
async def keep_running(runner: Runner) -> AsyncGenerator[None]:
    """Resume unfinished runs, unless the server only shows pages; at the end release all runs
    cleanly."""
    if not runner.options.serves:
        yield
        return
    if runner.options.resumes:
        await asyncio.to_thread(runner.uploads.sweep)
        for served in await asyncio.to_thread(runner.store.unfinished_served):
            runner.submit(served.run_id)
    looking = asyncio.create_task(runner.look())

    try:
        yield
    finally:
        looking.cancel()
        await runner.drain()
