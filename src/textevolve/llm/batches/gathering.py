"""A model whose calls wait until all that can be asked now is there, and are asked as a batch job.

A call comes back when its line in the results has come. Calls that depend on it are asked then, so
a study goes on in waves, each of them a job. A job is submitted so that it is never lost, found
again, and polled; open jobs of earlier processes are taken up with the first call. A job is over
when every outcome in it is durable in the journal, or is known never to come.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from yarl import URL

from textevolve.errors import (
    AccessError,
    AnswerError,
    BudgetError,
    CapabilityError,
    ModelError,
    RejectedError,
    UnavailableError,
)
from textevolve.events import BatchPolled, CallRetried
from textevolve.llm.batches.ledger import (
    BatchMeans,
    JobState,
    KeptBatch,
    NotBatchedError,
    batch_price,
)
from textevolve.llm.client import OpenAIClient, connect
from textevolve.llm.connections import Http
from textevolve.llm.model import Request, Response, request_key
from textevolve.llm.providers import resolve
from textevolve.llm.refusals import one_line, read_refusal
from textevolve.llm.wire import encode

LONGEST_LINE = 64 * 2**20
"""Bytes of one line of results."""
QUIET = 300.0
"""Seconds without a byte after which results count as broken off."""
SLOWEST = 50_000.0
"""Bytes a second, below which an upload counts as stuck."""
ENDED = ("completed", "failed", "expired", "cancelled")
"""With other words (validating, in_progress, finalizing, ...) a job is still running."""
_ID = re.compile(r"[\w.:-]{1,200}")
_UNASKED = re.compile(r"batch_(expired|cancell?ed)")
_STATUS = re.compile(r"\b[45]\d\d\b")


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """The answer to one request: its status and body. Status 0: the job ended before
    it was asked."""

    key: str
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A job as the endpoint reports it. `done`: requests that have an outcome, of `total`. `mark`:
    that of `KeptBatch`. `errors`: why it was refused as a whole."""

    id: str
    status: str
    mark: str
    input: str
    outputs: tuple[str, ...]
    done: int
    total: int
    errors: str

    @property
    def is_running(self) -> bool:
        return self.status not in ENDED


class BatchService:
    """Each call raises what a call of a model raises: `UnavailableError` is worth another try."""

    def __init__(self, name: str, base_url: str, http: Http) -> None:
        self.name = name
        self._base_url, self._http = base_url, http

    async def upload(self, file: str, lines: bytes | bytearray) -> str:
        """The name that the endpoint gives to the file."""
        boundary = secrets.token_hex(16)
        body = _multipart(boundary, file, lines)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        answer: Any = None
        try:
            async with asyncio.timeout(300.0 + len(body) / SLOWEST):
                answer = await self._exchange("POST", "/files", body, headers, unbounded=True)
        except TimeoutError:
            pass  # raised below, so that no error of ours refers to one of the transport
        if not (name := _name(_mapping(answer).get("id"))):
            raise UnavailableError(f"{self.name}: the file was not taken in time, or has no name")
        return name

    async def create(self, file: str, mark: str, path: str, hours: int) -> RemoteBatch:
        """Create a job over a file whose lines ask a path, and may take so many hours."""
        window = f"{hours // 24}d" if hours > 24 and hours % 24 == 0 else f"{hours}h"
        body = {
            "endpoint": f"/v1{path}",
            "input_file_id": file,
            "completion_window": window,
            "metadata": {"textevolve": mark},
        }
        headers = {"Idempotency-Key": mark}
        return self._job(await self._exchange("POST", "/batches", encode(body), headers))

    async def get(self, id: str) -> RemoteBatch:
        return self._job(await self._exchange("GET", f"/batches/{id}"))

    async def cancel(self, id: str) -> None:
        await self._exchange("POST", f"/batches/{id}/cancel", b"{}")

    async def delete_file(self, file: str) -> None:
        await self._exchange("DELETE", f"/files/{file}")

    async def find(self, mark: str, file: str) -> RemoteBatch | None:
        """The job that has this mark, or was made of this file, among the latest hundred."""
        listed = _mapping(await self._exchange("GET", "/batches?limit=100")).get("data")
        for job in map(read_remote, _sequence(listed)):
            if job is not None and (job.mark == mark or job.input == file):
                return job
        return None

    async def lines(self, file: str) -> AsyncGenerator[AnsweredLine | None]:
        """The results in a file as they come; None for a line that cannot be read."""
        url = URL(f"{self._base_url}/files/{file}/content")
        answer = await self._http.begin("GET", url, quiet=QUIET)
        if answer.status != 200:
            raise self._http.failure(answer.status, read_refusal(await answer.whole()))
        rest = bytearray()
        async with aclosing(answer.parts()) as parts:
            async for part in parts:
                rest += part
                *whole, tail = rest.split(b"\n") if b"\n" in part else (rest,)
                rest = bytearray(tail)
                if len(rest) > LONGEST_LINE:
                    raise AnswerError(f"{self.name}: a line of {file} has no end")
                for line in whole:
                    if line.strip():
                        yield read_line(self._http.without_key(bytes(line)))
        if rest.strip():
            yield read_line(self._http.without_key(bytes(rest)))

    def _job(self, answer: Any) -> RemoteBatch:
        if (job := read_remote(answer)) is None:
            raise UnavailableError(f"{self.name}: the endpoint says nothing of a batch job")
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
        if not 200 <= status < 300:
            if status in (404, 405, 501) and method == "POST":
                raise AccessError(
                    f"{self.name}: the endpoint takes no batch jobs ({status} for {url.path}); run"
                    " it without --batch"
                )
            raise self._http.failure(status, read_refusal(raw), answered)
        return self._http.read_json(url.path, raw) if raw else None


def write_asked(key: str, path: str, body: Mapping[str, Any]) -> bytes:
    """A line of the file that a job is made of; `key` comes back with the answer."""
    line = {"custom_id": key, "method": "POST", "url": f"/v1{path}", "body": body}
    return encode(line) + b"\n"


def read_line(line: bytes) -> AnsweredLine | None:
    """A line of results; None where it cannot be read. A request that failed without an answer has
    the status that its error names."""
    try:
        result = _mapping(json.loads(line))
    except (ValueError, RecursionError):
        return None
    key, answer = result.get("custom_id"), _mapping(result.get("response"))
    if not isinstance(key, str):
        return None
    if answer.get("body") is not None:
        status = _count(answer.get("status_code")) or 200
        return AnsweredLine(key, status, json.dumps(answer["body"]).encode())
    error = result.get("error") or "no answer"
    return AnsweredLine(key, _status(error), json.dumps({"error": error}).encode())


def _status(error: Any) -> int:
    code = f"{_mapping(error).get('code')} {_mapping(error).get('type')}"
    if _UNASKED.search(code):
        return 0
    if status := _STATUS.search(code):
        return int(status[0])
    return 400 if "invalid" in code else 500


def _multipart(boundary: str, name: str, content: bytes | bytearray) -> bytes:
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))


def read_remote(value: Any) -> RemoteBatch | None:
    """A job out of what an endpoint says of it; None where it names none."""
    said = _mapping(value)
    counts = _mapping(said.get("request_counts"))
    outputs = (_name(said.get(field)) for field in ("output_file_id", "error_file_id"))
    errors = map(_mapping, _sequence(_mapping(said.get("errors")).get("data")))
    if not (id := _name(said.get("id"))):
        return None
    return RemoteBatch(
        id=id,
        status=str(said.get("status")).lower(),
        mark=str(_mapping(said.get("metadata")).get("textevolve")),
        input=_name(said.get("input_file_id")),
        outputs=tuple(filter(None, outputs)),
        done=_count(counts.get("completed")) + _count(counts.get("failed")),
        total=_count(counts.get("total")),
        errors="; ".join(f"{one.get('code')} {one.get('message')}" for one in errors),
    )


def _name(value: object) -> str:
    """A name that is safe in a path; empty where it is none."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _sequence(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


QUIET_LOOKS = 4
"""Within the quiet time, so that a busy machine is not taken for one at rest."""
CLOSING = 10.0
"""Seconds for which jobs that are answered are closed at the end."""
MOST_FULL = 100
"""Times in a row that the endpoint takes nothing, until calls fail."""
TRIES = 12
"""Of what is done before a job is submitted: about a quarter of an hour."""

T = TypeVar("T")
log = logging.getLogger("textevolve")
_FULL = re.compile(r"enqueued|token_limit_exceeded|queue (is )?full", re.IGNORECASE)


class QueueFullError(Exception):
    """The endpoint takes no more now, or not so much at once."""


@dataclass(eq=False)
class WaitingCall:
    """A call until it is answered. `jobs`: those it was in without an answer; `reason`: why."""

    key: str
    request: Request
    answer: asyncio.Future[Response]
    jobs: int = 0
    reason: str = "its line was missing"

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(copy.copy(error))


@dataclass(eq=False)
class Job:
    """A batch job. `left`: the keys whose outcome is not durable yet; `done` is set once there are
    none. `resumed`: an earlier process submitted it. `failure`: why nothing more is to be learnt of
    it now."""

    kept: KeptBatch
    left: set[str]
    resumed: bool = False
    failure: Exception | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Submissions:
    """The jobs of one model at its endpoint: submitted, found again, polled, cancelled, closed."""

    def __init__(self, client: OpenAIClient, means: BatchMeans) -> None:
        self.name, self.options = client.name, means.settings.batches
        self.service = BatchService(client.name, client.base_url, client.http)
        self.ledger, self.listener = means.ledger, means.listener

    async def note(self, job: Job, **changes: Any) -> None:
        job.kept = replace(job.kept, **changes)
        await self.ledger.keep(job.kept)

    async def submit(self, job: Job, path: str, lines: bytes | bytearray) -> None:
        """Noted before anything is sent, and again with all that names it at the endpoint.

        Raises:
            QueueFullError: it is to be submitted later, or in parts. ModelError: it cannot be.
        """
        await self.note(job)
        name = f"textevolve-{job.kept.mark}.jsonl"
        try:
            file = await self.persist(lambda: self.service.upload(name, lines), TRIES)
            await self.note(job, file=file)
            remote = await self.persist(partial(self._create, job, path), TRIES)
        except (AccessError, RejectedError) as error:  # a plain no: it is not there
            await self.close(job, "void")
            raise error
        await self.note(job, id=remote.id, state="submitted")

    async def _create(self, job: Job, path: str) -> RemoteBatch:
        """The job that was made; where that is not known, it is looked for before the next try."""
        kept, window = job.kept, self.options.window
        try:
            return await self.service.create(kept.file, kept.mark, path, window)
        except (UnavailableError, RejectedError) as error:
            failed = error
        if _FULL.search(str(failed)):
            raise QueueFullError(str(failed))
        if isinstance(failed, UnavailableError) and failed.status != 429:
            remote = await self._look_for(job)
            if remote is not None:
                return remote
        raise failed

    async def find_again(self, job: Job) -> bool:
        """Tell whether a job of an earlier process is at the endpoint."""
        if not job.kept.id:
            remote = await self._look_for(job)
            if remote is None:
                return False
            await self.note(job, id=remote.id, state="submitted")
        return True

    async def _look_for(self, job: Job) -> RemoteBatch | None:
        """The job at the endpoint whose submission was begun; None where it did not get there."""
        kept = job.kept
        if not kept.file:
            return None
        return await self.persist(lambda: self.service.find(kept.mark, kept.file), TRIES)

    async def poll(self, job: Job) -> RemoteBatch:
        """The job once it has come to an end; ModelError if it cannot be seen."""
        wait, most = self.options.poll
        while True:
            remote = await self.persist(lambda: self._look(job), None)
            status = remote.status if remote.is_running else ""
            total = remote.total or len(job.kept.keys)
            self.listener(BatchPolled(self.name, job.kept.id, status, remote.done, total, wait))
            if not remote.is_running:
                return remote
            await asyncio.sleep(wait)
            wait = min(most, 1.5 * wait)

    async def _look(self, job: Job) -> RemoteBatch:
        try:
            return await self.service.get(job.kept.id)
        except (AccessError, RejectedError) as error:
            reason = str(error)
        raise AccessError(
            f"{reason}. Batch job {job.kept.id} cannot be seen: check that the key is of the"
            " account that submitted it, or give it up with: textevolve runs cancel-batch"
        )

    async def cancel(self, job: Job) -> str:
        """End a job at its endpoint, and say what became of it."""
        if not await self.find_again(job):
            await self.close(job, "void")
            return "was never submitted"
        remote = await self.persist(lambda: self._look(job), TRIES)
        if not remote.is_running:
            return f"is over ({remote.status}); its answers are collected when the run goes on"
        await self.persist(lambda: self.service.cancel(job.kept.id), TRIES)
        await self.note(job, state="cancelled")
        return "is cancelled; what it has answered is collected when the run goes on"

    async def close(self, job: Job, state: JobState, remote: RemoteBatch | None = None) -> None:
        """Note that nothing more is to come of a job, and delete its files at the endpoint."""
        await self.note(job, state=state, detail="" if remote is None else remote.status)
        outputs = () if remote is None else remote.outputs
        for file in filter(None, (job.kept.file, *outputs)):
            with suppress(ModelError):  # what is left over there is deleted by the endpoint in time
                await self.service.delete_file(file)

    async def persist(self, action: Callable[[], Awaitable[T]], tries: int | None) -> T:
        """Repeat an action while it is worth another try; `tries` None: for ever."""
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
            self.listener(CallRetried(self.name, str(failed), attempt, wait))
            await asyncio.sleep(wait)
            wait = min(most, 1.5 * wait)


class Gatherer:
    """A `Model` that asks in batch jobs; `aclose` leaves them running at the endpoint. Where the
    settings say no batch, it only waits for the jobs that are open, and other calls raise
    `NotBatchedError`.

    `_calls` wait, by their keys, of which `_pending` are in no job yet; `_jobs` are by the keys
    whose outcome in them is not kept; `_held` are lines that came before anybody asked for them, or
    whose answers are not kept yet.
    """

    def __init__(self, client: OpenAIClient, means: BatchMeans) -> None:
        self._client, self.name = client, client.name
        self._submissions, self._options = Submissions(client, means), means.settings.batches
        self._gathers, self._deadline = means.settings.batch, means.deadline
        self._journal = means.journal
        self._calls: dict[str, WaitingCall] = {}
        self._pending: dict[str, WaitingCall] = {}
        self._jobs: dict[str, Job] = {}
        self._held: dict[str, AnsweredLine] = {}
        self._most = self._options.requests
        self._full, self._not_before, self._arrived = 0, 0.0, 0
        self._tasks: dict[asyncio.Task[None], Job] = {}
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
                self._enqueue([call])
            elif (line := self._held.get(key)) is not None and self._give(call, line):
                self._ask_again([call])
            async with asyncio.timeout_at(self._deadline):
                return await answer
        except TimeoutError:
            raise BudgetError(
                "the time limit is reached; batch jobs that are submitted go on"
            ) from None
        finally:
            self._calls.pop(key, None)
            self._pending.pop(key, None)

    def confirm(self, key: str) -> None:
        """Forget a key: its outcome is durable, or will not come from its job."""
        self._held.pop(key, None)
        if (job := self._jobs.pop(key, None)) is not None:
            job.left.discard(key)
            if not job.left:
                job.done.set()

    async def aclose(self) -> None:
        closing = [task for task, job in self._tasks.items() if job.done.is_set()]
        if closing:
            await asyncio.wait(closing, timeout=CLOSING)
        left = [*self._tasks, *filter(None, (self._gathering, self._loading))]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _take_up(self) -> None:
        """Take up the jobs that are open."""
        for kept in await self._submissions.ledger.find_open(self.name):
            self._begin(Job(kept, set(kept.keys), resumed=True))

    def _begin(self, job: Job, path: str = "", lines: bytearray | None = None) -> None:
        self._jobs.update(dict.fromkeys(job.kept.keys, job))
        task = asyncio.create_task(self._work(job, path, lines))
        self._tasks[task] = job
        task.add_done_callback(self._tasks.pop)

    def _enqueue(self, calls: Iterable[WaitingCall]) -> None:
        """Put calls into the next job; without jobs they are asked at once."""
        for call in calls:
            if not self._gathers:
                call.fail(NotBatchedError())
                continue
            self._pending[call.key] = call
            self._arrived += 1
            if self._gathering is None or self._gathering.done():
                self._gathering = asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        try:
            while self._pending:
                await self._wait_for_all()
                path, lines, keys = self._take()
                if keys:  # else those who asked have gone
                    kept = KeptBatch(secrets.token_hex(16), self.name, time.time(), tuple(keys))
                    self._begin(Job(kept, set(keys)), path, lines)
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            for call in list(self._pending.values()):
                call.fail(error)

    async def _wait_for_all(self) -> None:
        """Until no call has come for a while, there are enough, or it takes too long."""
        loop, options = asyncio.get_running_loop(), self._options
        due, looks, seen = loop.time() + options.gather, 0, -1
        while True:
            enough = len(self._pending) >= self._most or looks >= QUIET_LOOKS or loop.time() > due
            if enough and loop.time() >= self._not_before:
                return
            await asyncio.sleep(options.quiet / QUIET_LOOKS)
            looks = looks + 1 if seen == self._arrived else 0
            seen = self._arrived

    def _take(self) -> tuple[str, bytearray, list[str]]:
        """The path that the calls of one job ask, its file, and their keys."""
        path, lines, keys = "", bytearray(), list[str]()
        for key, call in list(self._pending.items()):
            path, body = self._client.batch_line(call.request)
            line = write_asked(key, path, body)
            is_full = len(lines) + len(line) > self._options.megabytes * 1e6
            if keys and (is_full or len(keys) >= self._most):
                break
            lines += line
            keys.append(key)
            del self._pending[key]
        return path, lines, keys

    async def _work(self, job: Job, path: str, lines: bytearray | None) -> None:
        """A job from its submission, or from where an earlier process left it, to its end."""
        subs = self._submissions
        try:
            if lines is not None:
                await subs.submit(job, path, lines)
                lines.clear()  # it would be held until the job ends
                self._full = 0
            elif not await subs.find_again(job):
                await self._forget(job)
                return
            remote = await subs.poll(job)
            self._ask_again(await self._collect(job, remote))
            await job.done.wait()
            is_void = remote.status == "failed" and not remote.outputs
            await subs.close(job, "void" if is_void else "collected", remote)
        except QueueFullError as error:
            self._wait_for_room(job, error)
            await self._forget(job)
        except Exception as error:  # noqa: BLE001  it belongs to those who wait
            self._fail_job(job, error)

    async def _forget(self, job: Job) -> None:
        """Nothing was asked in this job: its calls are gathered anew."""
        self._enqueue(self._withdraw(job, job.kept.keys))
        with suppress(ModelError):
            await self._submissions.close(job, "void")

    def _wait_for_room(self, job: Job, full: QueueFullError) -> None:
        """Later, and in parts: the endpoint has too much already."""
        self._full += 1
        first, most = self._options.poll
        self._most = max(1, min(self._most, len(job.kept.keys)) // 2)
        wait = min(10 * most, first * 2.0 ** min(self._full, 20))
        self._not_before = asyncio.get_running_loop().time() + wait
        self._submissions.listener(CallRetried(self.name, str(full), self._full, wait))
        if self._full >= MOST_FULL:
            self._fail_job(job, UnavailableError(f"{self.name}: no batch job is taken: {full}"))

    def _ask_again(self, calls: Iterable[WaitingCall]) -> None:
        """In the next job, but not for ever."""
        for call in calls:
            call.jobs += 1
            if call.jobs < self._options.attempts:
                self._enqueue([call])
                continue
            jobs = "1 batch job" if call.jobs == 1 else f"{call.jobs} batch jobs"
            reason = f"{self.name}: no answer after {jobs}; the last: {call.reason}"
            call.fail(UnavailableError(reason))

    def _withdraw(self, job: Job, keys: Iterable[str]) -> list[WaitingCall]:
        """The calls among these keys of a job that wait; the job will not answer them."""
        own = [key for key in keys if self._jobs.get(key) is job]
        waiting = [self._calls[key] for key in own if key in self._calls]
        for key in own:
            self.confirm(key)
        if not job.left:
            job.done.set()
        return waiting

    def _fail_job(self, job: Job, error: Exception) -> None:
        """Nothing can be learnt of a job now: whoever asks for its answers is told why."""
        job.failure = error
        for key in job.kept.keys:
            if self._jobs.get(key) is job and (call := self._calls.get(key)) is not None:
                call.fail(error)

    def _give(self, call: WaitingCall, line: AnsweredLine) -> bool:
        """Answer a call; whether it has to be asked again."""
        call.reason = "the endpoint refuses a part of the request, which is left out from now on"
        try:
            seconds = time.time() - self._jobs[call.key].kept.created
            response = self._client.read_batched(line.status, line.body, call.request, seconds)
            if response is not None:
                if not call.answer.done():
                    call.answer.set_result(response)
                return False
        except UnavailableError as error:
            call.reason = str(error)
        except ModelError as error:
            call.fail(error)
            return False
        self.confirm(call.key)
        return True

    async def _collect(self, job: Job, remote: RemoteBatch) -> list[WaitingCall]:
        """Hand out what a job answered; the calls that are to be asked again.

        Raises:
            QueueFullError: it was never begun, and is to be submitted later.
        """
        kept = job.kept
        if remote.status == "failed" and not remote.outputs:
            reason = one_line(remote.errors, self._client.http.secrets) or "no reason given"
            if _FULL.search(reason):
                raise QueueFullError(reason)
            hint = "mend that, or run it without --batch"
            message = f"{kept.model}: the endpoint refuses the batch job ({reason}); {hint}"
            self._refuse(job, CapabilityError(message), kept.keys)
            return []
        answered, again = set[str](), list[WaitingCall]()
        for file in remote.outputs:
            try:
                await self._submissions.persist(
                    partial(self._read_file, job, file, answered, again), None
                )
            except (AccessError, RejectedError) as error:
                log.warning("batch job %s: results in %s are gone: %s", kept.id, file, error)
        if job.resumed:  # an earlier process may have kept some answers
            for key in [key for key in job.left if key not in self._calls]:
                if await self._journal.find(key) is not None:
                    self.confirm(key)
        missing = [key for key in kept.keys if key not in answered]
        if remote.status == "cancelled" and not job.resumed:
            reason = f"batch job {kept.id} was cancelled at the provider; go on to ask the rest"
            self._refuse(job, BudgetError(reason), missing)
            return again
        waiting = self._withdraw(job, missing)
        for call in waiting:
            call.reason = f"batch job {kept.id} ended without it ({remote.status})"
        return again + waiting

    async def _read_file(
        self, job: Job, file: str, answered: set[str], again: list[WaitingCall]
    ) -> None:
        """Take each line of results; those that were read before, or of no call of this job, are
        left."""
        async with aclosing(self._submissions.service.lines(file)) as lines:
            async for line in lines:
                if line is None or not line.status or line.key in answered:
                    continue
                if self._jobs.get(line.key) is job:
                    answered.add(line.key)
                    self._held[line.key] = line
                    call = self._calls.get(line.key)
                    if call is not None and self._give(call, line):
                        again.append(call)

    def _refuse(self, job: Job, error: Exception, keys: Iterable[str]) -> None:
        """Fail calls that a job will not answer, and that are not asked again."""
        for call in self._withdraw(job, keys):
            call.fail(error)


async def open_gatherer(spec: str, means: BatchMeans) -> Gatherer:
    """
    Raises:
        SettingsError: the endpoint cannot be had.
    """
    gatherer = Gatherer(await _connect(spec, means), means)
    means.journal.gatherers[spec] = gatherer.confirm
    means.stack.push_async_callback(gatherer.aclose)
    return gatherer


async def cancel_job(kept: KeptBatch, means: BatchMeans) -> str:
    """End a job at its endpoint, and say what became of it."""
    submissions = Submissions(await _connect(kept.model, means), means)
    return await submissions.cancel(Job(kept, set(kept.keys), resumed=True))


async def forget_job(kept: KeptBatch, means: BatchMeans) -> str:
    """Give up what a job may answer, so that it is asked anew."""
    await means.ledger.keep(replace(kept, state="void", detail="forgotten"))
    return "is forgotten"


async def _connect(spec: str, means: BatchMeans) -> OpenAIClient:
    settings = means.settings
    endpoint = replace(resolve(spec, settings), spec=spec)
    timeouts, largest = settings.timeouts, settings.largest_answer
    client = connect(endpoint, timeouts, largest, price_of=batch_price)
    return await means.stack.enter_async_context(client)
