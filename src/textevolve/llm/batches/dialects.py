"""How the batch APIs of providers differ: paths, what a job is made of, and what is read of it.

All of them take a JSONL file, a job over it, and give files with a line for each request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from textevolve.settings import BatchWire

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
