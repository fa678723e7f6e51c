"""The batch APIs of providers: files, jobs, and the lines of results. One call is one attempt.

All of them take a JSONL file and a job over it, and give files with a line for each request; how
they differ is a `BatchDialect`.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from yarl import URL

from textevolve.errors import AccessError, AnswerError, UnavailableError
from textevolve.llm.connections import Http
from textevolve.llm.refusals import failure, read_refusal, retry_after
from textevolve.llm.wire import encode
from textevolve.settings import BatchWire

LONGEST_LINE = 64 * 2**20
"""Bytes of one line of results."""
MOST_PAGES = 50
"""Of the list of jobs, a hundred each."""
SLOWEST = 50_000.0
"""Bytes a second, below which an upload counts as stuck."""


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """What came for one request: the status and body of its answer. Status 0: the job ended before
    it was asked."""

    key: str
    status: int
    body: bytes


class BatchService:
    """Each call raises what a call of a model raises: `UnavailableError` is worth another try."""

    def __init__(self, name: str, base_url: str, http: Http, dialect: BatchDialect) -> None:
        self.name = name
        self._base_url, self._http, self._dialect = base_url, http, dialect

    async def upload(self, file: str, lines: bytes | bytearray) -> str:
        """The name that the endpoint gives to the file."""
        boundary = secrets.token_hex(16)
        body = _multipart(boundary, self._dialect.fields(file), file, lines)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        url = URL(self._base_url + self._dialect.upload)
        try:
            async with asyncio.timeout(300.0 + len(body) / SLOWEST):
                found = await self._exchange("POST", url, body, headers, unbounded=True)
        except TimeoutError:
            found = None
        if (name := read_name(found)) is None:
            raise UnavailableError(f"{self.name}: the file was not taken in time, or has no name")
        return name

    async def create(self, job: NewJob) -> RemoteBatch:
        headers = {"Idempotency-Key": job.mark}
        body = encode(self._dialect.body(job))
        return self._job(await self._exchange("POST", self._jobs(), body, headers))

    async def get(self, id: str) -> RemoteBatch:
        return self._job(await self._exchange("GET", self._jobs(id)))

    async def cancel(self, id: str) -> None:
        await self._exchange("POST", self._jobs(f"{id}/cancel"), b"{}")

    async def delete_file(self, file: str) -> None:
        await self._exchange("DELETE", URL(f"{self._base_url}/files/{file}"))

    async def find(self, mark: str, file: str, since: float) -> RemoteBatch | None:
        """The job that has this mark, or was made of this file, of those created after `since`."""
        last = ""
        for page in range(MOST_PAGES):
            url = self._jobs().with_query(self._dialect.pages(page, last))
            found = await self._exchange("GET", url)
            jobs = read_page(found)
            for job in jobs:
                if job.mark == mark or file in job.inputs:
                    return job
            more: Mapping[str, Any] = {}
            if isinstance(found, dict):
                more = cast("Mapping[str, Any]", found)
            old = [job for job in jobs if job.created is not None and job.created < since]
            if not jobs or old or jobs[-1].id == last or more.get("has_more") is False:
                return None
            last = jobs[-1].id
        return None

    async def lines(self, file: str) -> AsyncGenerator[AnsweredLine | None]:
        """The results in a file as they come; None for a line that cannot be read."""
        url = URL(f"{self._base_url}/files/{file}/content")
        rest, refused, status = bytearray(), bytearray(), 200
        async with aclosing(self._http.stream("GET", url, {}, 300.0)) as parts:
            async for status, part in parts:
                if status != 200:
                    refused += part[:100_000]
                    continue
                rest += part
                *whole, tail = rest.split(b"\n") if b"\n" in part else (rest,)
                rest = bytearray(tail)
                if len(rest) > LONGEST_LINE:
                    raise AnswerError(f"{self.name}: a line of {file} has no end")
                for line in whole:
                    if line.strip():
                        yield self._line(line)
        if status != 200:
            refusal = read_refusal(bytes(refused))
            raise failure(self.name, status, refusal, secrets=self._http.secrets)
        if rest.strip():
            yield self._line(rest)

    def _line(self, line: bytearray) -> AnsweredLine | None:
        return read_line(self._http.without_key(bytes(line)))

    def _jobs(self, path: str = "") -> URL:
        return URL(f"{self._base_url}{self._dialect.jobs}" + (f"/{path}" if path else ""))

    def _job(self, found: Any) -> RemoteBatch:
        if (job := read_remote(found)) is None:
            raise UnavailableError(f"{self.name}: the endpoint says nothing of a batch job")
        return job

    async def _exchange(
        self,
        method: str,
        url: URL,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        unbounded: bool = False,
    ) -> Any:
        status, said, raw = await self._http.exchange(method, url, body, headers, unbounded)
        if not 200 <= status < 300:
            if status in (404, 405, 501) and method == "POST":
                raise AccessError(
                    f"{self.name}: the endpoint takes no batch jobs ({status} for {url.path}); run"
                    " it without --batch"
                )
            refusal, wait = read_refusal(raw), retry_after(said)
            raise failure(self.name, status, refusal, wait=wait, secrets=self._http.secrets)
        try:
            return json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            pass  # raised below, so that no error of ours refers to one that holds the answer
        raise UnavailableError(f"{self.name}: {url.path} answered no JSON: {self._http.say(raw)}")


def write_asked(key: str, path: str, body: Mapping[str, Any]) -> bytes:
    """A line of the file that a job is made of; `key` comes back with the answer."""
    line = {"custom_id": key, "method": "POST", "url": f"/v1{path}", "body": body}
    return encode(line) + b"\n"


def read_line(line: bytes) -> AnsweredLine | None:
    """A line of results; None where it cannot be read. A request that failed without an answer has
    the status that its error names."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    said = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    key: Any = said.get("custom_id")
    if not isinstance(key, str):
        return None
    response: Any = said.get("response")
    if isinstance(response, dict) and cast("dict[str, Any]", response).get("body") is not None:
        answered = cast("dict[str, Any]", response)
        status = answered.get("status_code")
        body = answered["body"]
        return AnsweredLine(
            key, status if isinstance(status, int) else 200, json.dumps(body).encode()
        )
    error: Any = said.get("error") or "no answer"
    return AnsweredLine(key, _status(error), json.dumps({"error": error}).encode())


def _status(error: Any) -> int:
    said = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    code = f"{said.get('code')} {said.get('type')}"
    if _UNASKED.search(code):
        return 0
    if found := _STATUS.search(code):
        return int(found[0])
    return 400 if "invalid" in code else 500


_UNASKED = re.compile(r"batch_(expired|cancell?ed)")
_STATUS = re.compile(r"\b[45]\d\d\b")


def _multipart(
    boundary: str, fields: Mapping[str, str], name: str, content: bytes | bytearray
) -> bytes:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in fields.items()
    ]
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return b"".join(("".join(parts).encode(), content, f"\r\n--{boundary}--\r\n".encode()))


RemoteState: TypeAlias = Literal["running", "completed", "failed", "expired", "cancelled"]

_STATES: Mapping[str, RemoteState] = {
    "completed": "completed",
    "success": "completed",
    "failed": "failed",
    "expired": "expired",
    "timeout_exceeded": "expired",
    "cancelled": "cancelled",
}
"""Of other words (validating, queued, in_progress, cancelling, ...) the job is still under way."""

_ID = re.compile(r"[\w.:-]{1,200}")


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job was refused as a whole. `line`: from 1, where one line is the reason."""

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A job as the endpoint tells it. `status` is its own word for `state`. `inputs`, `outputs`:
    names of files. `done`: requests that have an outcome, of `total`. `mark`: that of `KeptBatch`.
    """

    id: str
    status: str
    state: RemoteState
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    done: int = 0
    total: int = 0
    mark: str = ""
    created: float | None = None
    errors: tuple[JobError, ...] = ()


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job is made from. `path`: what its lines ask, such as /chat/completions; `hours`: the
    most that it may take."""

    file: str
    mark: str
    model: str
    path: str
    hours: int


@dataclass(frozen=True, slots=True)
class BatchDialect:
    """`upload`: the path for files; `fields`: what goes with one, by its name. `jobs`: the path of
    jobs; `body`: what one is created with. `pages`: the query of a page of the list, by its number
    and the last id of the page before."""

    upload: str
    fields: Callable[[str], Mapping[str, str]]
    jobs: str
    body: Callable[[NewJob], dict[str, Any]]
    pages: Callable[[int, str], Mapping[str, str]]


def _window(hours: int) -> str:
    return f"{hours // 24}d" if hours > 24 and hours % 24 == 0 else f"{hours}h"


def _openai(job: NewJob) -> dict[str, Any]:
    return _together(job) | {"metadata": {"textevolve": job.mark}}


def _together(job: NewJob) -> dict[str, Any]:
    return {
        "input_file_id": job.file,
        "endpoint": f"/v1{job.path}",
        "completion_window": _window(job.hours),
    }


def _mistral(job: NewJob) -> dict[str, Any]:
    return {
        "input_files": [job.file],
        "endpoint": f"/v1{job.path}",
        "model": job.model,
        "timeout_hours": job.hours,
        "metadata": {"textevolve": job.mark},
    }


def _after(_page: int, last: str) -> Mapping[str, str]:
    return {"limit": "100"} | ({"after": last} if last else {})


DIALECTS: Mapping[BatchWire, BatchDialect] = {
    "openai": BatchDialect("/files", lambda _: {"purpose": "batch"}, "/batches", _openai, _after),
    "together": BatchDialect(
        "/files/upload",
        lambda name: {"purpose": "batch-api", "file_name": name, "file_type": "jsonl"},
        "/batches",
        _together,
        _after,
    ),
    "mistral": BatchDialect(
        "/files",
        lambda _: {"purpose": "batch"},
        "/batch/jobs",
        _mistral,
        lambda page, _: {"page": str(page), "page_size": "100"},
    ),
}


def read_remote(found: Any) -> RemoteBatch | None:
    """A job out of what an endpoint says of it; None where it cannot be read."""
    said = _object(found)
    said = _object(said.get("job")) or said
    names = _names(said.get("id"))
    if not names or not isinstance(said.get("status"), str):
        return None
    status = str(said["status"]).lower()
    counts = _object(said.get("request_counts"))
    failed = _count(counts.get("failed"))
    done = _count(counts.get("completed")) + failed or _count(said.get("completed_requests"))
    mark = _object(said.get("metadata")).get("textevolve")
    return RemoteBatch(
        id=names[0],
        status=status,
        state=_STATES.get(status, "running"),
        inputs=_names(said.get("input_file_id"), said.get("input_files")),
        outputs=_names(
            *(said.get(name) for name in ("output_file_id", "output_file")),
            *(said.get(name) for name in ("error_file_id", "error_file")),
        ),
        done=done,
        total=_count(counts.get("total")) or _count(said.get("total_requests")),
        mark=mark if isinstance(mark, str) else "",
        created=_time(said.get("created_at")),
        errors=_errors(said.get("errors") or said.get("error")),
    )


def read_name(found: Any) -> str | None:
    """The name of an uploaded file."""
    said = _object(found)
    names = _names(said.get("id")) or _names(_object(said.get("data")).get("id"))
    return names[0] if names else None


def read_page(found: Any) -> list[RemoteBatch]:
    """The jobs of one page of a list; those that cannot be read are left out."""
    jobs = _list(found) or _list(_object(found).get("data"))
    return [job for job in map(read_remote, jobs) if job is not None]


def _errors(found: Any) -> tuple[JobError, ...]:
    if isinstance(found, str):
        return (JobError("", found),) if found else ()
    said = _object(found)
    errors: list[JobError] = []
    for one in _list(found) or _list(said.get("data")) or ([said] if "message" in said else []):
        error = _object(one)
        line = error.get("line")
        number = line if isinstance(line, int) and line > 0 else None
        errors.append(
            JobError(str(error.get("code") or ""), str(error.get("message") or one), number)
        )
    return tuple(errors)


def _object(found: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return cast("list[Any]", found) if isinstance(found, list) else []


def _names(*found: Any) -> tuple[str, ...]:
    """The names among these, which are safe in a path."""
    flat = [one for part in found for one in (_list(part) or [part])]
    return tuple(one for one in flat if isinstance(one, str) and _ID.fullmatch(one))


def _count(found: Any) -> int:
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _time(found: Any) -> float | None:
    return float(found) if isinstance(found, int | float) else None
