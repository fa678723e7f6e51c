"""Batch jobs of the OpenAI protocol: the file of requests, the job, the lines of its results.

Each is written by one function and read by one: our client writes requests and reads results, the
scripted server the other way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, Field, StringConstraints

from textevolve.protocol.chat import CHATS, encode
from textevolve.protocol.contents import READABLE, KnownCount, KnownText

BATCHED = f"/v1{CHATS}"
"""The path of the calls of batch jobs."""
ENDED = ("completed", "failed", "expired", "cancelled")
"""The states of a job that has ended; in any other state (validating, in_progress, finalizing, ...)
it is still running."""


# Requests and results


@dataclass(frozen=True, slots=True)
class AnsweredLine:
    """The answer to one request of a batch job.

    Attributes:
        key: The journal's key of the request.
        status: The HTTP status of the answer; 0: the job ended before the endpoint processed the
            request.
        body: The body of the answer.
    """

    key: str
    status: int
    body: bytes


def _at(*path: str) -> Any:
    return Field(validation_alias=AliasPath(*path))


class _Result(BaseModel):
    """A line of a job's results as the endpoint writes it. `code` and `type` are of the error."""

    key: Annotated[str, Field(validation_alias="custom_id")]
    body: Annotated[Any, _at("response", "body")] = None
    status: Annotated[KnownCount, _at("response", "status_code")] = None
    error: Any = None
    code: Annotated[Any, _at("error", "code")] = None
    type: Annotated[Any, _at("error", "type")] = None


def write_request_line(key: str, body: Mapping[str, Any]) -> bytes:
    """Return one request as a line of a batch job's input file; the endpoint repeats `key` with the
    answer."""
    return encode({"custom_id": key, "method": "POST", "url": BATCHED, "body": body}) + b"\n"


def read_request_line(line: bytes) -> tuple[str, Any]:
    """Return the key and the body of a request."""
    fields = json.loads(line)
    return fields["custom_id"], fields["body"]


def write_result_line(key: str, status: int, body: Any) -> bytes:
    """Return the answer to one request as a line of a job's results."""
    response = {"status_code": status, "request_id": "r", "body": body}
    return encode({"id": "l", "custom_id": key, "response": response, "error": None})


def write_error_line(key: str, code: str, message: str) -> bytes:
    """Return the line of a request that the endpoint did not process."""
    error = {"code": code, "message": message}
    return encode({"custom_id": key, "response": None, "error": error})


def read_result_line(line: bytes) -> AnsweredLine | None:
    """Read a line of a job's results; None if the line is invalid. A request that failed without an
    answer gets the HTTP status that its error names; otherwise 0 if the job expired or was
    cancelled before, 400 if the request was invalid, and 500 for other errors."""
    try:
        result = _Result.model_validate(json.loads(line))
    except (ValueError, RecursionError):
        return None

    if result.body is not None:
        return AnsweredLine(result.key, result.status or 200, json.dumps(result.body).encode())
    content = json.dumps({"error": result.error or "no answer"}).encode()

    return AnsweredLine(result.key, _status(f"{result.code} {result.type}"), content)


def _status(code: str) -> int:
    if re.search(r"batch_(expired|cancell?ed)", code):
        return 0
    if status := re.search(r"\b[45]\d\d\b", code):
        return int(status[0])
    return 400 if "invalid" in code else 500


# Files and jobs


# The length is not in the pattern: 200 repetitions of all letters take 20 ms to compile.
_Name = Annotated[Annotated[str, Field(pattern=r"^[\w.:-]+$", max_length=200)] | None, READABLE]
"""An identifier that is safe in a URL path; None for any other value."""


class RemoteFile(BaseModel):
    id: _Name = None


class RemoteBatch(BaseModel):
    """The state of a batch job as the endpoint reports it.

    Attributes:
        id: The endpoint's id of the job; None if it is missing or unusable.
        status: The state in the endpoint's words, such as "in_progress".
        mark: The mark of the job's `KeptBatch`, by which a lost job is found.
        input_file_id: The endpoint's name of the uploaded file of requests.
        errors: The reasons if the endpoint rejected the whole job.
    """

    id: _Name = None
    created_at: KnownCount = None
    status: Annotated[Annotated[str, StringConstraints(to_lower=True)] | None, READABLE] = None
    mark: Annotated[KnownText, _at("metadata", "textevolve")] = None
    input_file_id: _Name = None
    output_file_id: _Name = None
    error_file_id: _Name = None
    completed: Annotated[KnownCount, _at("request_counts", "completed")] = None
    failed: Annotated[KnownCount, _at("request_counts", "failed")] = None
    total: Annotated[KnownCount, _at("request_counts", "total")] = None
    errors: Annotated[list[dict[str, Any]] | None, READABLE, _at("errors", "data")] = None

    @property
    def is_running(self) -> bool:
        return self.status not in ENDED

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the endpoint's names of the files of results."""
        return tuple(filter(None, (self.output_file_id, self.error_file_id)))

    def write(self) -> dict[str, Any]:
        """Return the state as an endpoint reports it."""
        counts = {"total": self.total, "completed": self.completed, "failed": self.failed}
        return {
            "id": self.id,
            "object": "batch",
            "status": self.status,
            "created_at": self.created_at,
            "metadata": {"textevolve": self.mark},
            "input_file_id": self.input_file_id,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "request_counts": counts,
            "errors": {"data": self.errors or []},
        }


class RemoteBatches(BaseModel):
    """A page of an endpoint's list of jobs."""

    data: Annotated[list[Annotated[RemoteBatch | None, READABLE]] | None, READABLE] = None


def write_upload(boundary: str, name: str, content: bytes | bytearray) -> bytes:
    """Return the body that uploads a file of requests, with its parts between boundaries."""
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    return b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))


def read_upload(content_type: str, body: bytes) -> bytes | None:
    """Return the uploaded file in a body; None if there is none."""
    boundary = content_type.partition("boundary=")[2].encode()
    parts = [part for part in body.split(b"--" + boundary) if b'name="file"' in part]
    if not boundary or not parts:
        return None
    return parts[-1].partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


def write_job(file: str, mark: str) -> dict[str, Any]:
    """Return the body that creates a job for an uploaded file. `mark`: a name of ours by which the
    job is found again."""
    return {
        "endpoint": BATCHED,
        "input_file_id": file,
        "completion_window": "24h",
        "metadata": {"textevolve": mark},
    }
