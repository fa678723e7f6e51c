"""One batch job at its endpoint: submitted so that it is never lost, found again, and polled.

Not here: whose calls are in it, and what becomes of its answers (`gathering`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from textevolve.errors import AccessError, ModelError, RejectedError, UnavailableError
from textevolve.events import BatchPolled, CallRetried, Listener
from textevolve.llm.batches.dialects import NewJob, RemoteBatch
from textevolve.llm.batches.ledger import BatchLedger, JobState, KeptBatch
from textevolve.llm.batches.service import BatchService
from textevolve.settings import Batches

TRIES = 12
"""Of what is done before a job is submitted: about a quarter of an hour."""
LOOKS = 3
"""How often a job is looked for that may have been submitted, before it counts as not."""
CLOCKS_DIFFER = 3600.0
"""Seconds by which the endpoint's clock may be behind."""
PATIENCE = 24 * 3600.0
"""Seconds past its window for which a job is polled that does not come to an end."""

_FULL = re.compile(r"enqueued|token_limit_exceeded|queue (is )?full", re.IGNORECASE)

T = TypeVar("T")


class QueueFullError(Exception):
    """The endpoint takes no more now, or not so much at once."""


def is_full(said: str) -> bool:
    """Whether a refusal means that too much waits at the endpoint already."""
    return bool(_FULL.search(said))


@dataclass(eq=False)
class Job:
    """A batch job and the keys in it whose outcome is not kept yet; `done` once there are none.
    `resumed`: an earlier process submitted it. `watched`: it was seen under way. `failure`: why
    nothing more is to be learnt of it now."""

    kept: KeptBatch
    left: set[str]
    resumed: bool = False
    watched: bool = False
    failure: Exception | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Submissions:
    """What is done with the jobs of one model. `path`: what their lines ask, such as
    /chat/completions."""

    name: str
    model: str
    service: BatchService
    ledger: BatchLedger
    options: Batches
    listener: Listener

    async def note(self, job: Job, state: JobState, detail: str = "") -> None:
        job.kept = replace(job.kept, state=state, detail=detail)
        await self.ledger.keep(job.kept)

    async def submit(self, job: Job, path: str, lines: bytes | bytearray) -> None:
        """Noted before anything is sent, and again with all that names it at the endpoint.

        Raises:
            QueueFullError: it is to be submitted later, or in parts. ModelError: it cannot be.
        """
        await self.ledger.keep(job.kept)
        name = f"textevolve-{job.kept.mark}.jsonl"
        try:
            file = await self.persist(lambda: self.service.upload(name, lines), TRIES)
            job.kept = replace(job.kept, file=file)
            await self.ledger.keep(job.kept)
            remote = await self._create(job, path)
        except (AccessError, RejectedError) as error:  # a plain no: it is not there
            await self.close(job, "void")
            raise error
        job.kept = replace(job.kept, id=remote.id)
        await self.note(job, "submitted")

    async def find_again(self, job: Job) -> bool:
        """Whether a job of an earlier process is at the endpoint."""
        if not job.kept.id:
            found = await self.look_for(job)
            if found is None:
                return False
            job.kept = replace(job.kept, id=found.id)
            await self.note(job, "submitted")
        return True

    async def cancel(self, job: Job) -> str:
        """End a job at its endpoint, and say what became of it."""
        if not await self.find_again(job):
            await self.close(job, "void")
            return "was never submitted"
        remote = await self.persist(lambda: self._look(job), TRIES)
        if remote.state != "running":
            return f"is over ({remote.status}); its answers are collected when the run goes on"
        await self.persist(lambda: self.service.cancel(job.kept.id), TRIES)
        await self.note(job, "cancelled")
        return "is cancelled; what it has answered is collected when the run goes on"

    def tell_retry(self, reason: str, attempt: int, wait: float) -> None:
        self.listener(CallRetried(self.name, reason, attempt, wait))

    async def _create(self, job: Job, path: str) -> RemoteBatch:
        """The job that was made; where that is not known, it is looked for before the next try."""
        new = NewJob(job.kept.file, job.kept.mark, self.model, path, self.options.window)

        async def create() -> RemoteBatch:
            try:
                return await self.service.create(new)
            except (UnavailableError, RejectedError) as error:
                failed = error
            if is_full(str(failed)):
                raise QueueFullError(str(failed))
            if isinstance(failed, UnavailableError) and failed.status != 429:
                found = await self.look_for(job)
                if found is not None:
                    return found
            raise failed

        return await self.persist(create, TRIES)

    async def look_for(self, job: Job) -> RemoteBatch | None:
        """The job at the endpoint whose submission was begun; None where it did not get there."""
        if not job.kept.file:
            return None
        since = job.kept.created - CLOCKS_DIFFER

        async def find() -> RemoteBatch | None:
            return await self.service.find(job.kept.mark, job.kept.file, since)

        for look in range(LOOKS):
            if look:
                await asyncio.sleep(self.options.poll[0])
            found = await self.persist(find, TRIES)
            if found is not None:
                return found
        return None

    async def poll(self, job: Job) -> RemoteBatch:
        """The job once it has come to an end.

        Raises:
            UnavailableError: it does not, long after its window. ModelError: it cannot be seen.
        """
        wait, most = self.options.poll
        ends = job.kept.created + self.options.window * 3600.0 + PATIENCE
        while True:
            remote = await self.persist(lambda: self._look(job), None)
            over = remote.state != "running"
            total = remote.total or len(job.kept.keys)
            status = "" if over else remote.status
            self.listener(BatchPolled(self.name, job.kept.id, status, remote.done, total, wait))
            if over:
                return remote
            job.watched = True
            if time.time() > ends:
                raise UnavailableError(
                    f"{self.name}: batch job {job.kept.id} is still {remote.status}, long after the"
                    " time that it may take"
                )
            await asyncio.sleep(wait)
            wait = min(most, 1.5 * wait)

    async def _look(self, job: Job) -> RemoteBatch:
        try:
            return await self.service.get(job.kept.id)
        except (AccessError, RejectedError) as error:
            said = str(error)
        raise AccessError(
            f"{said}. Batch job {job.kept.id} cannot be seen: check that the key is of the account"
            " that submitted it, or give it up with: textevolve runs cancel-batch"
        )

    async def close(self, job: Job, state: JobState, remote: RemoteBatch | None = None) -> None:
        """Note that nothing more is to come of a job, and delete its files at the endpoint."""
        await self.note(job, state, "" if remote is None else remote.status)
        if not self.options.delete_files or not job.kept.file:
            return
        outputs = () if remote is None else remote.outputs
        for file in (job.kept.file, *outputs):
            with suppress(ModelError):  # what is left over there is deleted by the endpoint in time
                await self.service.delete_file(file)

    async def persist(self, action: Callable[[], Awaitable[T]], tries: int | None) -> T:
        """What an action gives that is tried again while it is worth it; None: for ever."""
        wait, most = self.options.poll
        attempt = 0
        while True:
            attempt += 1
            try:
                return await action()
            except UnavailableError as error:
                failed = error
            if attempt == tries:
                raise failed
            wait = max(wait, failed.retry_after or 0.0)
            self.tell_retry(str(failed), attempt, wait)
            await asyncio.sleep(wait)
            wait = min(most, 1.5 * wait)
