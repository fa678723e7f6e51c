"""The batch API of an endpoint: files, jobs, and the lines of results. One call is one attempt."""

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
from textevolve.llm.batches.dialects import (
    BatchDialect,
    NewJob,
    RemoteBatch,
    read_name,
    read_page,
    read_remote,
)
from textevolve.llm.connections import Http
from textevolve.llm.refusals import failure, read_refusal, retry_after
from textevolve.llm.wire import encode

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
