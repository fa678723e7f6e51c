"""A model whose calls wait until all that can be asked now is there, and are asked as a batch job.

A call comes back when its line in the results has come. What depends on it is asked then, so a
study goes on in waves, each of them a job. What the ledger has of earlier jobs is taken up again
with the first call. What becomes of a job's results is in `results`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from textevolve.errors import BudgetError, ModelError, UnavailableError
from textevolve.llm.batches.ledger import KeptBatch, NotBatchedError
from textevolve.llm.batches.results import Results, WaitingCall
from textevolve.llm.batches.service import write_asked
from textevolve.llm.batches.submission import Job, QueueFullError, Submissions
from textevolve.llm.client import OpenAIClient
from textevolve.llm.journal import Journal
from textevolve.llm.model import Request, Response, request_key

LOOKS = 4
"""Within the quiet time, so that a busy machine is not taken for one at rest."""
CLOSING = 10.0
"""Seconds for which jobs that are answered are closed at the end."""
MOST_FULL = 100
"""Times in a row that the endpoint takes nothing, until calls fail."""


class Gatherer:
    """A `Model` that asks in batch jobs; `aclose` leaves them running at the endpoint.

    `journal`: where answers are found that were kept before. `gathers`: False where only the jobs
    that are open are waited for; all other calls raise `NotBatchedError`. `deadline`: when
    calls wait no longer, as `time.monotonic` counts: they raise `BudgetError`, and jobs go on.
    """

    def __init__(
        self,
        client: OpenAIClient,
        submissions: Submissions,
        journal: Journal,
        *,
        gathers: bool = True,
        deadline: float | None = None,
    ) -> None:
        self._client = client
        self._submissions, self._options = submissions, submissions.options
        self._gathers, self._deadline = gathers, deadline
        self._results = Results(client, submissions, journal)
        self._pending: dict[str, WaitingCall] = {}
        self._most = self._options.requests
        self._full = 0
        self._not_before = 0.0
        self._arrived = 0
        self._tasks: dict[asyncio.Task[None], Job] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._loading: asyncio.Future[None] | None = None

    @property
    def name(self) -> str:
        return self._client.name

    async def __call__(self, request: Request, /) -> Response:
        await self._load()
        key, results = request_key(self.name, request), self._results
        job = results.jobs.get(key)
        if job is None and not self._gathers:
            raise NotBatchedError
        if job is not None and job.failure is not None:
            raise job.failure
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        call = results.calls[key] = WaitingCall(key, request, answer)
        try:
            if job is None:
                self._enqueue(call)
            elif results.give_held(call):
                self._ask_again([call])
            return await self._wait_for(answer)
        finally:
            results.calls.pop(key, None)
            self._pending.pop(key, None)

    async def _wait_for(self, answer: asyncio.Future[Response]) -> Response:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            async with asyncio.timeout(left):
                return await answer
        except TimeoutError:
            pass
        raise BudgetError("the time limit is reached; batch jobs that are submitted go on")

    def confirm(self, key: str) -> None:
        """The outcome under this key is durable."""
        self._results.release(key)

    async def aclose(self) -> None:
        closing = [task for task, job in self._tasks.items() if job.done.is_set()]
        if closing:
            await asyncio.wait(closing, timeout=CLOSING)
        own = (self._gathering, self._loading)
        left = [*self._tasks, *(task for task in own if task is not None)]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _load(self) -> None:
        """Take up the jobs that are open, once."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._take_up())
        await asyncio.shield(self._loading)

    async def _take_up(self) -> None:
        for kept in await self._submissions.ledger.find_open(self.name):
            job = Job(kept, set(kept.keys), resumed=True)
            self._results.jobs.update(dict.fromkeys(kept.keys, job))
            self._start(job, self._work(job))

    def _start(self, job: Job, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = job
        task.add_done_callback(self._tasks.pop)

    # Gathering

    def _enqueue(self, call: WaitingCall) -> None:
        self._pending[call.key] = call
        self._arrived += 1
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        try:
            while self._pending:
                await self._wait_for_all()
                self._submit(*self._take())
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            for call in list(self._pending.values()):
                call.fail(error)

    async def _wait_for_all(self) -> None:
        """Until no call has come for a while, there are enough, or it takes too long."""
        loop, options = asyncio.get_running_loop(), self._options
        due, looks, seen = loop.time() + options.gather, 0, -1
        while True:
            enough = len(self._pending) >= self._most or looks >= LOOKS or loop.time() > due
            if enough and loop.time() >= self._not_before:
                return
            await asyncio.sleep(options.quiet / LOOKS)
            looks = looks + 1 if seen == self._arrived else 0
            seen = self._arrived

    def _take(self) -> tuple[list[WaitingCall], str, bytearray]:
        """The calls of one job, all of which ask the same path, and its file."""
        calls, lines, path = list[WaitingCall](), bytearray(), ""
        for call in list(self._pending.values()):
            asked, body = self._client.batch_line(call.request)
            line = write_asked(call.key, asked, body)
            if calls and asked != path:
                continue
            if calls and len(lines) + len(line) > self._options.megabytes * 1e6:
                break
            path = asked
            lines += line
            calls.append(self._pending.pop(call.key))
            if len(calls) >= self._most:
                break
        return calls, path, lines

    def _submit(self, calls: Sequence[WaitingCall], path: str, lines: bytearray) -> None:
        if not calls:  # those who asked have gone
            return
        keys = tuple(call.key for call in calls)
        kept = KeptBatch(secrets.token_hex(16), self.name, time.time(), keys)
        job = Job(kept, set(keys))
        self._results.jobs.update(dict.fromkeys(keys, job))
        self._start(job, self._work(job, path, lines))

    # Jobs

    async def _work(self, job: Job, path: str = "", lines: bytearray | None = None) -> None:
        """A job from its submission, or from where an earlier process left it, to its end."""
        try:
            try:
                await self._go_through(job, path, lines)
            except QueueFullError as error:
                self._wait_for_room(job, error)
                await self._forget(job)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            self._results.fail(job, error)

    async def _go_through(self, job: Job, path: str, lines: bytearray | None) -> None:
        if lines is not None:
            await self._submissions.submit(job, path, lines)
            lines.clear()  # it would be held until the job ends
            self._full = 0
        elif not await self._submissions.find_again(job):
            await self._forget(job)
            return
        remote = await self._submissions.poll(job)
        self._ask_again(await self._results.collect(job, remote))
        await job.done.wait()
        state = "void" if remote.state == "failed" and not remote.outputs else "collected"
        await self._submissions.close(job, state, remote)

    async def _forget(self, job: Job) -> None:
        """Nothing was asked in this job: its calls are gathered anew."""
        waiting = self._results.withdraw(job, job.kept.keys)
        if self._gathers:
            for call in waiting:
                self._enqueue(call)
        else:
            self._leave(waiting)
        with suppress(ModelError):
            await self._submissions.close(job, "void")

    def _wait_for_room(self, job: Job, full: QueueFullError) -> None:
        """Later, and in parts: the endpoint has too much already."""
        self._full += 1
        first, most = self._options.poll
        self._most = max(1, min(self._most, len(job.kept.keys)) // 2)
        wait = min(10 * most, first * 2.0 ** min(self._full, 20))
        self._not_before = asyncio.get_running_loop().time() + wait
        self._submissions.tell_retry(str(full), self._full, wait)
        if self._full >= MOST_FULL:
            self._results.fail(job, UnavailableError(f"{self.name}: no batch job is taken: {full}"))

    def _ask_again(self, calls: Iterable[WaitingCall]) -> None:
        """In the next job, or at once, as the settings say; not for ever."""
        for call in calls:
            call.attempts += 1
            if call.attempts >= self._options.attempts:
                jobs = "1 batch job" if call.attempts == 1 else f"{call.attempts} batch jobs"
                said = f"{self.name}: no answer after {jobs}; the last: {call.last}"
                call.fail(UnavailableError(said))
            elif not self._gathers or self._options.again == "call":
                self._leave([call])
            else:
                self._enqueue(call)

    def _leave(self, calls: Iterable[WaitingCall]) -> None:
        for call in calls:
            call.fail(NotBatchedError())
