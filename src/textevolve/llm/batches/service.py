"""The batch API of OpenAI and those who have it, too: files, jobs, and the lines of results. One
call is one attempt.

It takes a JSONL file and a job over it, and gives files with a line for each request.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    Strict,
    ValidationError,
)
from yarl import URL

from textevolve.errors import AccessError, AnswerError, UnavailableError
from textevolve.llm.connections import Http
from textevolve.llm.refusals import read_refusal
from textevolve.llm.reported_usage import READABLE, KnownCount, KnownText
from textevolve.llm.wire import encode

LONGEST_LINE = 64 * 2**20
"""Bytes of one line of results."""
MOST_PAGES = 50
"""Of the list of jobs, a hundred each."""
QUIET = 300.0
"""Seconds without a byte after which results count as broken off."""
SLOWEST = 50_000.0
"""Bytes a second, below which an upload counts as stuck."""


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """The answer to one request: its status and body. Status 0: the job ended before
    it was asked."""

    key: str
    status: int
    body: bytes


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
        url = URL(f"{self._base_url}/files")
        try:
            async with asyncio.timeout(300.0 + len(body) / SLOWEST):
                found = await self._exchange("POST", url, body, headers, unbounded=True)
        except TimeoutError:
            found = None
        names = _names(cast("dict[str, Any]", found).get("id") if isinstance(found, dict) else None)
        if not names:
            raise UnavailableError(f"{self.name}: the file was not taken in time, or has no name")
        return names[0]

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
        return self._job(await self._exchange("POST", self._jobs(), encode(body), headers))

    async def get(self, id: str) -> RemoteBatch:
        return self._job(await self._exchange("GET", self._jobs(id)))

    async def cancel(self, id: str) -> None:
        await self._exchange("POST", self._jobs(f"{id}/cancel"), b"{}")

    async def delete_file(self, file: str) -> None:
        await self._exchange("DELETE", URL(f"{self._base_url}/files/{file}"))

    async def find(self, mark: str, file: str, since: float) -> RemoteBatch | None:
        """The job that has this mark, or was made of this file, of those created after `since`."""
        last: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            url = self._jobs().with_query({"limit": "100", **last})
            found: Any = await self._exchange("GET", url)
            listed = found.get("data") if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            jobs = [job for job in map(read_remote, cast("list[Any]", listed or [])) if job]
            for job in jobs:
                if job.mark == mark or file in job.inputs:
                    return job
            old = [job for job in jobs if job.created is not None and job.created < since]
            if not jobs or old or jobs[-1].id == last.get("after"):
                return None
            last = {"after": jobs[-1].id}
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
                        yield self._line(line)
        if rest.strip():
            yield self._line(rest)

    def _line(self, line: bytearray) -> AnsweredLine | None:
        return read_line(self._http.without_key(bytes(line)))

    def _jobs(self, path: str = "") -> URL:
        return URL(f"{self._base_url}/batches" + (f"/{path}" if path else ""))

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
        result = _Line.model_validate(json.loads(line))
    except (ValueError, RecursionError):
        return None
    answer = result.response
    if answer is not None and answer.body is not None:
        return AnsweredLine(
            result.custom_id, answer.status_code or 200, json.dumps(answer.body).encode()
        )
    error = result.error or "no answer"
    return AnsweredLine(result.custom_id, _status(error), json.dumps({"error": error}).encode())


class _Answered(BaseModel):
    status_code: KnownCount = None
    body: Any = None


class _Line(BaseModel):
    custom_id: Annotated[str, Strict()]
    response: Annotated[_Answered | None, READABLE] = None
    error: Any = None


def _status(error: Any) -> int:
    said = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    code = f"{said.get('code')} {said.get('type')}"
    if _UNASKED.search(code):
        return 0
    if status := _STATUS.search(code):
        return int(status[0])
    return 400 if "invalid" in code else 500


_UNASKED = re.compile(r"batch_(expired|cancell?ed)")
_STATUS = re.compile(r"\b[45]\d\d\b")


def _multipart(boundary: str, name: str, content: bytes | bytearray) -> bytes:
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))


RemoteState: TypeAlias = Literal["running", "completed", "failed", "expired", "cancelled"]
"""Of other words (validating, in_progress, finalizing, ...) a job is still under way."""

_ID = re.compile(r"[\w.:-]{1,200}")


def _names(value: object) -> list[str]:
    """The names of files among these, which are safe in a path."""
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    return [name for name in names if isinstance(name, str) and _ID.fullmatch(name)]


def _errors(value: object) -> object:
    """The errors of a job: one text, one object, or a list, perhaps within an object."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value)
        value = value["data"] if isinstance(value.get("data"), list) else [value]
    errors = cast("list[object]", value) if isinstance(value, list) else [value] if value else []
    return [cast("object", one) if isinstance(one, dict) else {"message": one} for one in errors]


_Names = Annotated[list[str], BeforeValidator(_names)]
_Said = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]


class JobError(BaseModel):
    """Why a job was refused as a whole."""

    code: _Said = ""
    message: _Said = "no reason given"


class _Counts(BaseModel):
    completed: KnownCount = None
    failed: KnownCount = None
    total: KnownCount = None


class _Metadata(BaseModel):
    textevolve: KnownText = None


class RemoteBatch(BaseModel):
    """A job as the endpoint reports it. `status` is its own word for `state`. `done`: requests that
    have an outcome, of `total`. `mark`: that of `KeptBatch`."""

    id: Annotated[str, Field(pattern=rf"^{_ID.pattern}$")]
    status: Annotated[str, AfterValidator(str.lower)]
    inputs: _Names = Field([], validation_alias="input_file_id")
    output: _Names = Field([], validation_alias="output_file_id")
    failed: _Names = Field([], validation_alias="error_file_id")
    counts: Annotated[_Counts | None, READABLE] = Field(None, validation_alias="request_counts")
    metadata: Annotated[_Metadata | None, READABLE] = None
    created: Annotated[float | None, READABLE] = Field(None, validation_alias="created_at")
    errors: Annotated[list[JobError], BeforeValidator(_errors)] = []

    @property
    def state(self) -> RemoteState:
        known = self.status in ("completed", "failed", "expired", "cancelled")
        return cast(RemoteState, self.status) if known else "running"

    @property
    def outputs(self) -> list[str]:
        return self.output + self.failed

    @property
    def done(self) -> int:
        counts = self.counts or _Counts()
        return (counts.completed or 0) + (counts.failed or 0)

    @property
    def total(self) -> int:
        return (self.counts and self.counts.total) or 0

    @property
    def mark(self) -> str:
        return (self.metadata and self.metadata.textevolve) or ""


def read_remote(value: Any) -> RemoteBatch | None:
    """A job out of what an endpoint says of it; None where it cannot be read."""
    with suppress(ValidationError):
        return RemoteBatch.model_validate(value)
    return None
