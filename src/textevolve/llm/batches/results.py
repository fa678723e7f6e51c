"""What comes of batch jobs: each line of the results goes to the call that waits for it.

A line that nobody waits for yet is held until it is asked for. A job is over when every outcome in
it is durable in the journal, or is known never to come.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from textevolve.errors import (
    AccessError,
    BudgetError,
    CapabilityError,
    ModelError,
    RejectedError,
    UnavailableError,
)
from textevolve.llm.batches.dialects import RemoteBatch
from textevolve.llm.batches.service import AnsweredLine
from textevolve.llm.batches.submission import Job, QueueFullError, Submissions, is_full
from textevolve.llm.client import OpenAIClient
from textevolve.llm.journal import Journal
from textevolve.llm.model import Request, Response
from textevolve.llm.refusals import one_line

FOUND_AT_ONCE = 500
"""Keys that are looked for in the journal together."""

log = logging.getLogger("textevolve")


@dataclass(eq=False)
class WaitingCall:
    """A call until it is answered. `attempts`: jobs it was in without an answer; `last`: why."""

    key: str
    request: Request
    answer: asyncio.Future[Response]
    attempts: int = 0
    last: str = "its line was missing"

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(copy.copy(error))


@dataclass
class _Reading:
    """What was read of a job's results so far. `again`: calls that are to be asked again."""

    answered: set[str] = field(default_factory=set[str])
    again: list[WaitingCall] = field(default_factory=list[WaitingCall])
    unreadable: int = 0


class Results:
    """`calls` that wait, by their keys; `jobs` by the keys whose outcome in them is not kept."""

    def __init__(self, client: OpenAIClient, submissions: Submissions, journal: Journal) -> None:
        self.calls: dict[str, WaitingCall] = {}
        self.jobs: dict[str, Job] = {}
        self._client, self._submissions, self._journal = client, submissions, journal
        self._held: dict[str, AnsweredLine] = {}

    def release(self, key: str) -> None:
        """There is nothing more to wait for under this key."""
        self._held.pop(key, None)
        if (job := self.jobs.pop(key, None)) is not None:
            job.left.discard(key)
            if not job.left:
                job.done.set()

    def withdraw(self, job: Job, keys: Iterable[str]) -> list[WaitingCall]:
        """The calls among these keys of a job that wait; the job will not answer them."""
        waiting: list[WaitingCall] = []
        for key in keys:
            if self.jobs.get(key) is job:
                self.release(key)
                if (call := self.calls.get(key)) is not None:
                    waiting.append(call)
        if not job.left:
            job.done.set()
        return waiting

    def fail(self, job: Job, error: Exception) -> None:
        """Nothing can be learnt of a job now: whoever asks for its answers is told why."""
        job.failure = error
        for key in job.kept.keys:
            if self.jobs.get(key) is job and (call := self.calls.get(key)) is not None:
                call.fail(error)

    def give_held(self, call: WaitingCall) -> bool:
        """Answer a call by a line that has come already; whether it has to be asked again."""
        line = self._held.get(call.key)
        return line is not None and self._give(call, line)

    def _give(self, call: WaitingCall, line: AnsweredLine) -> bool:
        """Answer a call; whether it has to be asked again."""
        job = self.jobs[call.key]
        try:
            seconds = time.time() - job.kept.created
            response = self._client.read_batched(line.status, line.body, call.request, seconds)
        except UnavailableError as error:
            call.last = str(error)
        except ModelError as error:
            call.fail(error)
            return False
        else:
            if response is not None:
                if not call.answer.done():
                    call.answer.set_result(response)
                return False
            call.last = "the endpoint refuses a part of the request, which is left out from now on"
        self.release(call.key)
        return True

    async def collect(self, job: Job, remote: RemoteBatch) -> list[WaitingCall]:
        """Hand out what a job answered; the calls that are to be asked again.

        Raises:
            QueueFullError: it was never begun, and is to be submitted later.
        """
        if remote.state == "failed" and is_full(said := self._said(remote)):
            raise QueueFullError(said)
        reading = _Reading()
        for file in remote.outputs:
            await self._read(job, file, reading)
        await self._drop_known(job)
        missing = [key for key in job.kept.keys if key not in reading.answered]
        waiting = self.withdraw(job, missing)
        if missing:
            log.info(
                "batch job %s (%s): %d of %d requests have no answer, %d lines cannot be read",
                *(job.kept.id, remote.status, len(missing), len(job.kept.keys)),
                reading.unreadable,
            )
        return reading.again + self._judge(job, remote, waiting)

    async def _read(self, job: Job, file: str, reading: _Reading) -> None:
        async def read() -> None:
            async with aclosing(self._submissions.service.lines(file)) as lines:
                async for line in lines:
                    self._take(job, line, reading)

        try:
            await self._submissions.persist(read, None)
        except (AccessError, RejectedError) as error:
            log.warning("batch job %s: its results in %s are gone: %s", job.kept.id, file, error)

    def _take(self, job: Job, line: AnsweredLine | None, reading: _Reading) -> None:
        """One line; what was answered before, or is of no call of this job, is left aside."""
        if line is None:
            reading.unreadable += 1
        elif line.status and line.key not in reading.answered and self.jobs.get(line.key) is job:
            reading.answered.add(line.key)
            self._held[line.key] = line  # until the answer is kept: who asks may have to ask again
            if (call := self.calls.get(line.key)) is not None and self._give(call, line):
                reading.again.append(call)

    async def _drop_known(self, job: Job) -> None:
        """An earlier process may have kept some answers: these are not asked for again."""
        unasked = [key for key in job.left if key not in self.calls] if job.resumed else []
        for start in range(0, len(unasked), FOUND_AT_ONCE):
            some = unasked[start : start + FOUND_AT_ONCE]
            found = await asyncio.gather(*map(self._journal.find, some))
            for key, response in zip(some, found, strict=True):
                if response is not None:
                    self.release(key)

    def _said(self, remote: RemoteBatch) -> str:
        """Why a job was refused, in one line without keys."""
        told = "; ".join(f"{error.code} {error.message}".strip() for error in remote.errors)
        return one_line(told, self._client.http.secrets) or "no reason given"

    def _judge(
        self, job: Job, remote: RemoteBatch, waiting: list[WaitingCall]
    ) -> list[WaitingCall]:
        """Which of the calls without an answer are to be asked again; the others fail."""
        ours = job.kept.state == "cancelled" or (job.resumed and not job.watched)
        if remote.state == "cancelled" and not ours:
            why = f"batch job {job.kept.id} was cancelled at the provider; go on to ask the rest"
            return _fail(waiting, BudgetError(why))
        if remote.state == "failed":
            lines = {error.line: error.message for error in remote.errors if error.line}
            if not lines:
                hint = "mend that, or run it without --batch"
                why = f"the endpoint refuses the batch job ({self._said(remote)}); {hint}"
                told = f"{job.kept.model}: {why}"
                return _fail(waiting, CapabilityError(told))
            places = {key: number for number, key in enumerate(job.kept.keys, 1)}
            wrong = [call for call in waiting if places[call.key] in lines]
            for call in wrong:
                said = one_line(lines[places[call.key]], self._client.http.secrets)
                call.fail(RejectedError(f"{job.kept.model}: rejected in a batch job: {said}"))
            waiting = [call for call in waiting if places[call.key] not in lines]
        for call in waiting:
            call.last = f"batch job {job.kept.id} ended without it ({remote.status})"
        return waiting


def _fail(calls: list[WaitingCall], error: Exception) -> list[WaitingCall]:
    for call in calls:
        call.fail(error)
    return []
