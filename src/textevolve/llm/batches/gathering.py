"""A model that collects its calls and sends them as batch jobs.

A call returns when its answer has arrived in the results of a job. Calls that depend on it are sent
afterwards, so a study advances in waves of one job, or of several if one would be too large. A job
is stored before it is submitted, so that it is never lost, can be found again at the endpoint, and
is polled until it ends. The first call resumes the open jobs of earlier processes. A job is closed
once its successful answers are in the journal, or if the endpoint never took it.
"""

from __future__ import annotations

import asyncio
import copy
import re
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from yarl import URL

from textevolve.engine.local import cancel
from textevolve.errors import (
    AccessError,
    BudgetError,
    CapabilityError,
    ModelError,
    RejectedError,
    UnavailableError,
)
from textevolve.evaluation import empty_default
from textevolve.events import BatchPolled, CallRetried
from textevolve.json_texts import as_object
from textevolve.llm.batches.ledger import (
    BatchMeans,
    JobState,
    KeptBatch,
    NotBatchedError,
    batch_price,
)
from textevolve.llm.client import OpenAIClient, connect
from textevolve.llm.model import Request, Response, request_key
from textevolve.llm.providers import resolve
from textevolve.llm.refusals import one_line, read_refusal
from textevolve.protocol.batches import (
    AnsweredLine,
    RemoteBatch,
    RemoteBatches,
    RemoteFile,
    read_result_line,
    write_job,
    write_request_line,
    write_upload,
)
from textevolve.protocol.chat import encode

QUIET = 300.0
"""The seconds without data after which a download of results counts as broken off."""
SLOWEST = 50_000.0
"""The speed in bytes per second below which an upload counts as stuck."""
GATHER = 600.0
"""The most seconds for which calls are collected before their job is submitted."""
ATTEMPTS = 3
"""The number of jobs that may leave a call unanswered before the call fails."""
CLOSING = 10.0
"""The most seconds at the end of a process for closing jobs that are completely answered."""
LOOKED_UP = 500
"""The number of keys that are looked up in the journal at a time."""
TRIES = 12
"""The most attempts at each request that submits a job: about a quarter of an hour in total."""

T = TypeVar("T")
_FULL = re.compile(r"enqueued|token_limit_exceeded|queue (is )?full", re.IGNORECASE)


class QueueFullError(Exception):
    """The error that the endpoint's queue of batch jobs is full, or that a job is too large for
    it."""


@dataclass(eq=False)
class WaitingCall:
    """A call that waits for its answer.

    Attributes:
        key: The journal's key of the request.
        answer: The future that receives the answer.
        jobs: The number of jobs that contained the call and did not answer it.
        context: The context of the caller, who is charged for a line that is no answer.
    """

    key: str
    request: Request
    answer: asyncio.Future[Response]
    jobs: int = 0
    context: Context = field(default_factory=copy_context)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(copy.copy(error))


@dataclass(eq=False)
class Job:
    """A batch job as this process works on it.

    Attributes:
        batch: The stored form of the job.
        resumed: Whether an earlier process submitted the job.
        failure: The error that ended the polling; None if there was none.
        lines: The job's answers by key, until they are in the journal.
        outputs: The endpoint's names of the files of results that were read whole.
    """

    batch: KeptBatch
    resumed: bool = False
    failure: Exception | None = None
    lines: dict[str, AnsweredLine] = empty_default(dict)
    outputs: tuple[str, ...] = ()


class Submissions:
    """The batch jobs of one model at its endpoint. It submits, finds, polls, cancels and closes
    jobs."""

    def __init__(self, client: OpenAIClient, means: BatchMeans) -> None:
        self.name = client.name
        self.options = means.settings.batches
        self._base_url = client.base_url
        self._http = client.http
        self.ledger = means.ledger
        self.listener = means.listener

    async def note(self, job: Job, **changes: Any) -> None:
        job.batch = replace(job.batch, **changes)
        await self.ledger.keep(job.batch)

    async def submit(self, job: Job, lines: bytes | bytearray) -> None:
        """Submit a job. The job is stored before anything is sent, and again with each name that
        the endpoint gives to the job or its file.

        Raises:
            QueueFullError: the job must be submitted later, or in parts.
            ModelError: the job cannot be submitted.
        """
        await self.note(job)

        try:
            file = await self.persist(TRIES, self._upload, job.batch.mark, lines)
            await self.note(job, file=file)
            remote = await self.persist(TRIES, self._create, job.batch)
        except (AccessError, RejectedError, QueueFullError):  # a plain no: it is not there
            await self.close(job, "void")
            raise

        await self.note(job, id=remote.id, state="submitted")

    async def _upload(self, mark: str, lines: bytes | bytearray) -> str:
        """Upload the lines of a job; return the endpoint's name of the file."""
        boundary = secrets.token_hex(16)
        body = write_upload(boundary, f"textevolve-{mark}.jsonl", lines)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        answer: Any = None
        with suppress(TimeoutError):  # raised below: no error of ours refers to the transport's
            async with asyncio.timeout(300.0 + len(body) / SLOWEST):
                answer = await self._exchange("POST", "/files", body, headers, unbounded=True)
        if not (name := RemoteFile.model_validate(as_object(answer)).id):
            raise UnavailableError(
                f"{self.name}: the upload of a batch file took too long, or the endpoint's answer"
                " has no file id"
            )

        return name

    async def _create(self, batch: KeptBatch) -> RemoteBatch:
        """Create a job at the endpoint. If the endpoint's answer is lost, look for the job before
        trying again."""
        body = write_job(batch.file, batch.mark)
        headers = {"Idempotency-Key": batch.mark}
        try:
            return await self._job("POST", "/batches", encode(body), headers)
        except (UnavailableError, RejectedError) as error:
            failed = error

        if _FULL.search(str(failed)):
            raise QueueFullError(str(failed))
        if isinstance(failed, UnavailableError) and failed.status != 429:
            remote = await self._look_for(batch)
            if remote is not None:
                return remote

        raise failed

    async def find_again(self, job: Job) -> bool:
        """Find a job that was stored without an id at the endpoint, and store its id; return False
        if the endpoint has no such job. A job with an id counts as found."""
        if not job.batch.id:
            remote = await self.persist(TRIES, self._look_for, job.batch)
            if remote is None:
                return False
            await self.note(job, id=remote.id, state="submitted")

        return True

    async def _look_for(self, batch: KeptBatch) -> RemoteBatch | None:
        """Find the job with this mark or this input file among the endpoint's latest hundred jobs;
        None if it is not there, or if no file was uploaded for it."""
        if not batch.file:
            return None
        page = await self._exchange("GET", "/batches?limit=100")
        listed = RemoteBatches.model_validate(as_object(page))
        for job in filter(None, listed.data or ()):
            if job.id and (job.mark == batch.mark or job.input_file_id == batch.file):
                return job

        return None

    async def poll(self, job: Job) -> RemoteBatch:
        """Poll a job until it ends, and return its final state; raise a ModelError if the job
        cannot be read."""
        wait, most = self.options.poll
        while True:
            remote = await self.persist(None, self._look, job)
            status = str(remote.status) if remote.is_running else ""
            done = (remote.completed or 0) + (remote.failed or 0)
            total = remote.total or len(job.batch.keys)
            self.listener(BatchPolled(self.name, job.batch.id, status, done, total, wait))
            if not remote.is_running:
                return remote
            await asyncio.sleep(wait)
            wait = min(most, 1.5 * wait)

    async def _look(self, job: Job) -> RemoteBatch:
        try:
            return await self._job("GET", f"/batches/{job.batch.id}")
        except (AccessError, RejectedError) as error:
            reason = str(error)

        raise AccessError(
            f"{reason}. Batch job {job.batch.id} cannot be read: use a key of the account that"
            " submitted it, or give the job up with: textevolve runs cancel-batch"
        )

    async def cancel(self, job: Job) -> str:
        """Cancel a job at its endpoint; return a sentence that describes the outcome."""
        if not await self.find_again(job):
            await self.close(job, "void")
            return "was never submitted"
        remote = await self.persist(TRIES, self._look, job)
        if not remote.is_running:
            return f"is over ({remote.status}); its answers are collected when the run is resumed"
        await self.persist(TRIES, self._exchange, "POST", f"/batches/{job.batch.id}/cancel", b"{}")
        await self.note(job, state="cancelled")

        return "is cancelled; its answers so far are collected when the run is resumed"

    async def close(self, job: Job, state: JobState) -> None:
        """Record that a job is closed, and delete its files at the endpoint."""
        await self.note(job, state=state)
        for file in filter(None, (job.batch.file, *job.outputs)):
            with suppress(ModelError):  # what is left over there is deleted by the endpoint in time
                await self._exchange("DELETE", f"/files/{file}")

    async def lines(self, file: str) -> AsyncGenerator[bytes]:
        """Yield the lines of a file of results as they arrive."""
        url = URL(f"{self._base_url}/files/{file}/content")
        answer = await self._http.begin("GET", url, quiet=QUIET)
        if answer.status != 200:
            refusal = read_refusal(await answer.read_all())
            raise self._http.failure(answer.status, refusal, answer.headers)
        buffer = bytearray()

        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                buffer += part
                if b"\n" in part:
                    *complete_lines, buffer = buffer.split(b"\n")
                    for line in complete_lines:
                        yield self._http.without_key(bytes(line))

        yield self._http.without_key(bytes(buffer))

    async def _job(
        self, method: str, path: str, body: bytes | None = None, headers: Any = None
    ) -> RemoteBatch:
        answer = await self._exchange(method, path, body, headers)
        job = RemoteBatch.model_validate(as_object(answer))
        if not job.id:
            raise UnavailableError(f"{self.name}: the endpoint returned no batch job")
        return job

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        unbounded: bool = False,
    ) -> Any:
        url = URL(self._base_url + path)
        status, answered, raw = await self._http.exchange(method, url, body, headers, unbounded)
        if 200 <= status < 300:
            return self._http.read_json(url.path, raw) if raw else None
        if status in (404, 405, 501) and method == "POST":
            raise AccessError(
                f"{self.name}: the endpoint does not offer batch jobs ({status} for {url.path});"
                " leave out --batch"
            )

        raise self._http.failure(status, read_refusal(raw), answered)

    async def persist(
        self, tries: int | None, action: Callable[..., Awaitable[T]], *arguments: Any
    ) -> T:
        """Repeat an action while it raises `UnavailableError`; return its result. `tries`: the most
        attempts; None: no limit."""
        wait, most = self.options.poll
        attempt = 0

        while True:
            attempt += 1
            try:
                return await action(*arguments)
            except UnavailableError as error:
                failed = error

            if attempt == tries:
                raise failed
            wait = max(wait, failed.retry_after or 0.0)
            self.listener(CallRetried(self.name, str(failed), attempt, wait))
            await asyncio.sleep(wait)
            wait = min(most, 1.5 * wait)


class Gatherer:
    """A `Model` that collects calls and sends them as batch jobs. `aclose` leaves the jobs running
    at the endpoint. If the settings disable batches, it only waits for open jobs, and other calls
    raise `NotBatchedError`.

    `_calls`: waiting calls by key; `_pending`: calls that are in no job yet; `_jobs`: open jobs by
    the keys of their calls.
    """

    def __init__(self, client: OpenAIClient, means: BatchMeans) -> None:
        self._client = client
        self.name = client.name
        self._submissions = Submissions(client, means)
        self._options = means.settings.batches
        self._gathers = means.settings.batch
        self._deadline = means.deadline
        self._journal = means.journal
        self._calls: dict[str, WaitingCall] = {}
        self._pending: dict[str, WaitingCall] = {}
        self._jobs: dict[str, Job] = {}
        self._collected: list[Job] = []
        self._most = self._options.requests
        self._arrived = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathering: asyncio.Task[None] | None = None
        self._loading: asyncio.Future[None] | None = None

    async def __call__(self, request: Request, /) -> Response:
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._take_up())
        await asyncio.shield(self._loading)
        key = request_key(self.name, request)
        job = self._jobs.get(key)
        if job is None and not self._gathers:
            raise NotBatchedError
        if job is not None and job.failure is not None:
            raise job.failure
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        call = self._calls[key] = WaitingCall(key, request, answer)

        try:
            if job is None:
                self._enqueue(call)
            elif key in job.lines:
                self._give(call, job)

            async with asyncio.timeout_at(self._deadline):
                return await answer
        except TimeoutError:
            raise BudgetError(
                "the time limit is reached; submitted batch jobs continue at the provider"
            ) from None
        finally:
            self._calls.pop(key, None)
            self._pending.pop(key, None)

    async def aclose(self) -> None:
        with suppress(TimeoutError, ModelError):
            async with asyncio.timeout(CLOSING):
                await self._close_collected()
        tasks = [*self._tasks, *filter(None, (self._gathering, self._loading))]
        await cancel(tasks)

    async def _take_up(self) -> None:
        """Resume polling the open jobs of earlier processes."""
        for batch in await self._submissions.ledger.find_open(self.name):
            self._begin(Job(batch, resumed=True))

    def _begin(self, job: Job, lines: bytearray | None = None) -> None:
        self._jobs.update(dict.fromkeys(job.batch.keys, job))
        task = asyncio.create_task(self._work(job, lines))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _enqueue(self, call: WaitingCall) -> None:
        """Add a call to the next job. If batches are disabled, fail it with `NotBatchedError`, so
        that it is sent directly."""
        if not self._gathers:
            call.fail(NotBatchedError())
            return
        self._pending[call.key] = call
        self._arrived += 1
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        try:
            while self._pending:
                await self._wait_for_all()
                await self._close_collected()
                lines, keys = self._take()
                if keys:  # else those who asked have gone
                    batch = KeptBatch(secrets.token_hex(16), self.name, time.time(), tuple(keys))
                    self._begin(Job(batch), lines)
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            for call in list(self._pending.values()):
                call.fail(error)

    async def _wait_for_all(self) -> None:
        """Wait until no new call has come for a while, a job is full, or a time limit has
        passed."""
        loop = asyncio.get_running_loop()
        seen = -1
        due = loop.time() + GATHER
        while len(self._pending) < self._most and seen != self._arrived and loop.time() < due:
            seen = self._arrived
            await asyncio.sleep(self._options.quiet)

    def _take(self) -> tuple[bytearray, list[str]]:
        """Take the next job's calls from the waiting ones; return their input file and keys."""
        lines = bytearray()
        keys: list[str] = []
        for key, call in list(self._pending.items()):
            line = write_request_line(key, self._client.body(call.request))
            is_full = len(lines) + len(line) > self._options.megabytes * 1e6
            if keys and (is_full or len(keys) >= self._most):
                break
            lines += line
            keys.append(key)
            del self._pending[key]

        return lines, keys

    async def _work(self, job: Job, lines: bytearray | None) -> None:
        """Submit a job, or resume one of an earlier process, and deliver its answers."""
        submissions = self._submissions
        try:
            if lines is not None:
                await submissions.submit(job, lines)
                lines.clear()  # it would be held until the job ends
            elif not await submissions.find_again(job):
                self._release(job, job.batch.keys)
                await submissions.close(job, "void")
                return

            await self._collect(job, await submissions.poll(job))
        except QueueFullError as error:
            self._most = max(1, min(self._most, len(job.batch.keys)) // 2)
            wait = submissions.options.poll[1]
            submissions.listener(CallRetried(self.name, str(error), 1, wait))
            await asyncio.sleep(wait)
            self._release(job, job.batch.keys)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            job.failure = error  # the job can no longer be polled
            for key in job.batch.keys:
                if self._jobs.get(key) is job and (call := self._calls.get(key)) is not None:
                    call.fail(error)

    async def _collect(self, job: Job, remote: RemoteBatch) -> None:
        """Distribute the answers of a job. Calls without an answer go into the next job; if the job
        of this process was cancelled at the provider, they fail with `BudgetError`.

        Raises:
            QueueFullError: the job was never started, and is to be submitted later.
            CapabilityError: the endpoint rejects the job.
        """
        batch = job.batch

        if remote.status == "failed" and not remote.outputs and not remote.completed:
            errors = remote.errors or ()
            reasons = "; ".join(f"{error.get('code')} {error.get('message')}" for error in errors)
            reason = one_line(reasons, self._client.http.secrets) or "no reason given"
            await self._submissions.close(job, "void")
            if _FULL.search(reason):
                raise QueueFullError(reason)
            raise CapabilityError(
                f"{batch.model}: the endpoint refuses the batch job ({reason}); correct"
                " that, or leave out --batch"
            )

        remote = await self._read_results(job, remote)
        self._collected.append(job)
        missing = [key for key in batch.keys if key not in job.lines]

        if remote.status == "cancelled" and not job.resumed:
            reason = (
                f"batch job {batch.id} was cancelled at the provider; resume the run to make its"
                " missing calls"
            )
            for call in filter(None, map(self._calls.get, missing)):
                call.fail(BudgetError(reason))

        self._release(
            job,
            missing,
            f"batch job {batch.id} ended without an answer to this call ({remote.status})",
        )
        for key in list(job.lines):
            if (call := self._calls.get(key)) is not None:
                self._give(call, job)

    async def _read_results(self, job: Job, remote: RemoteBatch) -> RemoteBatch:
        """Read the results of a job until there is a line for each request that the job counts as
        answered; return its state then. The answers are paid, so their requests are not sent
        again.

        Raises:
            AccessError: the results cannot be read. The job stays open, and is read again when the
                run is resumed.
        """
        wait, most = self._submissions.options.poll
        reason = ""

        for attempt in range(1, TRIES + 1):
            reason = await self._read_files(job, remote)
            if not reason:
                return remote
            if attempt < TRIES:
                self._submissions.listener(CallRetried(self.name, reason, attempt, wait))
                await asyncio.sleep(wait)
                wait = min(most, 1.5 * wait)
                # A job may name its files only some time after it has ended.
                remote = await self._submissions.poll(job)

        raise AccessError(
            f"{self.name}: batch job {job.batch.id} is over ({remote.status}), but its results"
            f" cannot be read: {reason}. They are paid, and nothing was deleted: resume the run to"
            " read them again, or pay for its calls again after: textevolve runs cancel-batch RUN"
            " --forget"
        )

    async def _read_files(self, job: Job, remote: RemoteBatch) -> str:
        """Read the files of results; return why they are not complete, or an empty text."""
        lines: dict[str, AnsweredLine] = {}
        files: list[str] = []
        reason = ""

        for file in remote.outputs:
            try:
                await self._submissions.persist(None, self._read_file, job, file, lines)
                files.append(file)
            except (AccessError, RejectedError) as error:
                reason = f"file {file}: {error}"

        job.outputs = tuple(files)
        for key, line in lines.items():
            if line.status and self._jobs.get(key) is job:
                job.lines[key] = line

        # Some endpoints count requests that failed as completed, too.
        statuses = [line.status for line in lines.values()]
        good_lines = statuses.count(200)
        answered_lines = len(statuses) - statuses.count(0)
        completed, failed = _count_answers(job, remote)
        if good_lines >= completed or answered_lines >= completed + failed:
            return ""
        names = ", ".join(remote.outputs) or "it names no file"

        return reason or (
            f"{answered_lines} of {completed} answers can be read in its results ({names})"
        )

    async def _read_file(self, job: Job, file: str, lines: dict[str, AnsweredLine]) -> None:
        """Add the lines of a file of results. If several lines have the same key, an answer counts
        before an error, and otherwise the first."""
        keys = set(job.batch.keys)

        async with aclosing(self._submissions.lines(file)) as texts:
            async for text in texts:
                line = read_result_line(text)
                if line is None or line.key not in keys:
                    continue
                earlier = lines.get(line.key)
                if earlier is None or (earlier.status != 200 and line.status == 200):
                    lines[line.key] = line

    def _give(self, call: WaitingCall, job: Job) -> None:
        """Answer a waiting call from its line of the results, or put the call into the next job."""
        line = job.lines[call.key]
        seconds = time.time() - job.batch.created
        reason = "the endpoint refuses a field of the request, which is left out from now on"

        try:
            read_answer = self._client.read_batched
            response = call.context.run(read_answer, line.status, line.body, call.request, seconds)
            if response is not None:
                if not call.answer.done():
                    call.answer.set_result(response)
                return
        except UnavailableError as error:
            reason = str(error)
        except ModelError as error:
            call.fail(error)

        self._release(job, [call.key], reason)

    def _release(self, job: Job, keys: Iterable[str], reason: str = "") -> None:
        """Put the calls that a job did not answer into the next job, or fail a call that has been
        in too many jobs. Without a `reason` the endpoint never received them, and this job does not
        count."""
        for key in keys:
            if self._jobs.get(key) is not job:
                continue
            del self._jobs[key]
            job.lines.pop(key, None)
            call = self._calls.get(key)
            if call is None or call.answer.done():
                continue
            call.jobs += bool(reason)

            if call.jobs < ATTEMPTS:
                self._enqueue(call)
            else:
                call.fail(
                    UnavailableError(
                        f"{self.name}: no answer after {call.jobs} batch jobs; the last: {reason}"
                    )
                )

    async def _close_collected(self) -> None:
        """Close the jobs whose results were read and whose successful answers are all in the
        journal. Other jobs stay open, and their results are read again when the run is resumed."""
        for job in list(self._collected):
            answered = [key for key, line in job.lines.items() if line.status == 200]
            for start in range(0, len(answered), LOOKED_UP):
                part = answered[start : start + LOOKED_UP]
                if None in await asyncio.gather(*map(self._journal.find, part)):
                    break
            else:
                self._collected.remove(job)
                for key in job.batch.keys:
                    if self._jobs.get(key) is job:
                        del self._jobs[key]
                await self._submissions.close(job, "collected")


def _count_answers(job: Job, remote: RemoteBatch) -> tuple[int, int]:
    """Return how many requests of a job were answered, and how many failed. Where the endpoint
    counts none, a completed job has a line for each request."""
    if remote.completed or remote.failed:
        return remote.completed or 0, remote.failed or 0
    if remote.status == "completed":
        return len(job.batch.keys), 0

    return 0, 0


async def open_gatherer(spec: str, means: BatchMeans) -> Gatherer:
    """Connect to the endpoint of a model, and return a `Gatherer` for it, which `means.stack`
    closes.

    Raises:
        SettingsError: the endpoint is not available, for example without a key.
    """
    gatherer = Gatherer(await _connect(spec, means), means)
    means.stack.push_async_callback(gatherer.aclose)

    return gatherer


async def cancel_job(batch: KeptBatch, means: BatchMeans) -> str:
    """Cancel a job at its endpoint; return a sentence that describes the outcome."""
    submissions = Submissions(await _connect(batch.model, means), means)
    return await submissions.cancel(Job(batch, resumed=True))


async def _connect(spec: str, means: BatchMeans) -> OpenAIClient:
    settings = means.settings
    endpoint = replace(resolve(spec, settings), spec=spec)
    timeouts = settings.timeouts
    largest = settings.largest_answer
    client = connect(endpoint, timeouts, largest, price_of=batch_price)
    return await means.stack.enter_async_context(client)
