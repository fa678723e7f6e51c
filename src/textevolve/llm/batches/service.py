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
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from yarl import URL

from textevolve.errors import AccessError, AnswerError, UnavailableError
from textevolve.llm.connections import Http
from textevolve.llm.refusals import read_refusal
from textevolve.llm.wire import encode

LONGEST_LINE = 64 * 2**20
"""Bytes of one line of results."""
MOST_PAGES = 50
"""Of the list of jobs, a hundred each."""
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
    created: float
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

    async def find(self, mark: str, file: str, since: float) -> RemoteBatch | None:
        """The job that has this mark, or was made of this file, of those created after `since`."""
        after = ""
        for _ in range(MOST_PAGES):
            page = f"/batches?limit=100{after and '&after='}{after}"
            listed = _mapping(await self._exchange("GET", page)).get("data")
            jobs = [job for job in map(read_remote, _sequence(listed)) if job]
            for job in jobs:
                if job.mark == mark or job.input == file:
                    return job
            if not jobs or jobs[-1].id == after or any(job.created < since for job in jobs):
                return None
            after = jobs[-1].id
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
    counts, created = _mapping(said.get("request_counts")), said.get("created_at")
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
        created=created if isinstance(created, int | float) else float("inf"),
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
