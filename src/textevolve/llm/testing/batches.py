"""The batch API of the scripted server: files, jobs that take a while, and how they go wrong.

The lines of a job are answered when it is created, by the server's script like any request, so
that whatever is submitted twice is counted twice; the results can be had once it is over.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic_core import to_json

from textevolve.llm.testing.answers import Answer


class BatchFault(StrEnum):
    """How a job goes wrong. Those that concern lines concern each third one, from the first."""

    INVALID = "invalid"
    QUEUE_FULL = "queue full"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ERROR_LINES = "error lines"
    REFUSED_LINES = "refused lines"
    LOST_LINES = "lost lines"
    POLLS_FAIL = "polls fail"
    CREATED_UNSAID = "created unsaid"
    RESULTS_GONE = "results gone"


REFUSALS: Mapping[BatchFault | None, dict[str, Any]] = {
    BatchFault.INVALID: {"code": "invalid_model", "message": "no batches of this"},
    BatchFault.QUEUE_FULL: {"code": "token_limit_exceeded", "message": "Enqueued token limit"},
}
"""Errors of jobs that are refused as a whole."""
WRONG_LINES: Mapping[BatchFault | None, int] = {
    BatchFault.ERROR_LINES: 500,
    BatchFault.REFUSED_LINES: 400,
}
HALVES = (BatchFault.EXPIRED, BatchFault.CANCELLED)
Faults = Callable[[int], BatchFault | None]
"""From the number of a job (from 1) to how it goes wrong."""


@dataclass
class ScriptedJob:
    """A job with its outcome, which shows from `ends` on. `said`: what created it."""

    id: str
    input: str
    said: Mapping[str, Any]
    created: float
    ends: float
    fault: BatchFault | None
    status: str = "completed"
    output: str = ""
    failed: str = ""
    total: int = 0
    done: int = 0
    wrong: int = 0
    polls: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass
class ScriptedBatches:
    """`seconds`: for which a job is under way. `faults`: as a function of the job's number.
    `most`: requests that may wait at once; more are a full queue."""

    seconds: float = 0.05
    faults: Faults = lambda _: None
    most: int | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    jobs: dict[str, ScriptedJob] = field(default_factory=dict[str, ScriptedJob])
    uploads: int = 0
    submissions: int = 0

    def answer(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        ask: Callable[[dict[str, Any], bytes], Answer],
    ) -> Answer | None:
        """None where the path is none of this API. `ask`: what answers one line."""
        path = path.partition("?")[0]
        path = path.removeprefix("/v1")
        if path == "/files":
            return self._upload(headers, body) if method == "POST" else None
        if path.startswith("/files/"):
            return self._file(method, path.removeprefix("/files/"))
        if path == "/batches":
            if method == "GET":
                return self._list()
            return self._create(json.loads(body), ask)
        if path.startswith("/batches/"):
            return self._job(method, path.removeprefix("/batches/"))
        return None

    def _upload(self, headers: Mapping[str, str], body: bytes) -> Answer:
        self.uploads += 1
        found = re.search("boundary=(.+)", headers.get("content-type", ""))
        content = None
        for part in body.split(b"--" + (found[1] if found else "-").encode()):
            if b'name="file"' in part:
                content = part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        if content is None:
            return _error("there is no file", 400)
        return _said({"id": self._keep(content), "object": "file", "purpose": "batch"})

    def _keep(self, content: bytes) -> str:
        name = f"file-{len(self.files) + self.submissions}-{time.time_ns()}"
        self.files[name] = content
        return name

    def _file(self, method: str, path: str) -> Answer:
        name, _, content = path.partition("/")
        kept = self.files.get(name)
        if kept is None:
            return _error(f"no such file: {name}", 404)
        if method == "DELETE":
            del self.files[name]
            return _said({"id": name, "deleted": True})
        if not content:
            return _said({"id": name, "object": "file"})
        job = next((job for job in self.jobs.values() if name in (job.output, job.failed)), None)
        if job is not None and job.fault is BatchFault.RESULTS_GONE:
            return _error(f"no such file: {name}", 404)
        return Answer(body=kept)

    def _create(
        self, said: dict[str, Any], ask: Callable[[dict[str, Any], bytes], Answer]
    ) -> Answer:
        self.submissions += 1
        fault = self.faults(self.submissions)
        name = said.get("input_file_id") or ""
        content = self.files.get(name)
        if content is None:
            return _error(f"no such file: {name}", 400)
        now = time.time()
        job = ScriptedJob(
            id=f"batch_{self.submissions}_{time.time_ns()}",
            input=name,
            said=said,
            created=now,
            ends=now + self.seconds,
            fault=fault,
        )
        self.jobs[job.id] = job
        lines = content.splitlines()
        job.total = len(lines)
        if self.most is not None and len(lines) > self.most:
            job.fault = fault = BatchFault.QUEUE_FULL
        if fault in REFUSALS:
            job.status, job.errors = "failed", [REFUSALS[fault]]
        else:
            self._answer_lines(job, lines, ask)
        if fault is BatchFault.CREATED_UNSAID:
            return _error("something broke", 500)
        return _said(self._tell(job))

    def _answer_lines(
        self,
        job: ScriptedJob,
        lines: list[bytes],
        ask: Callable[[dict[str, Any], bytes], Answer],
    ) -> None:
        fault = job.fault
        good, bad = list[bytes](), list[bytes]()
        if fault in HALVES:
            job.status = str(fault)
        for number, line in enumerate(lines):
            asked = json.loads(line)
            key, third = asked["custom_id"], number % 3 == 0
            if fault in HALVES and number >= len(lines) / 2:
                code = {"code": f"batch_{job.status}", "message": "not asked"}
                bad.append(to_json({"custom_id": key, "response": None, "error": code}))
                continue
            if third and fault is BatchFault.LOST_LINES:
                continue
            if third and fault in WRONG_LINES:
                wrong = {"error": {"message": "it went wrong"}}
                bad.append(_result(key, WRONG_LINES[fault], wrong))
                continue
            answer = ask(asked["body"], to_json(asked["body"]))
            made = _result(key, answer.status, _body(answer))
            (good if answer.status == 200 else bad).append(made)
        job.done, job.wrong = len(good), len(bad)
        job.output = self._keep(b"\n".join(good) + b"\n") if good else ""
        job.failed = self._keep(b"\n".join(bad)) if bad else ""

    def _job(self, method: str, path: str) -> Answer:
        id, _, action = path.partition("/")
        job = self.jobs.get(id)
        if job is None:
            return _error(f"no such job: {id}", 404)
        if method == "POST" and action == "cancel":
            if time.time() < job.ends:
                job.status, job.ends = "cancelled", time.time()
            return _said(self._tell(job))
        job.polls += 1
        if job.fault is BatchFault.POLLS_FAIL and job.polls <= 3:
            return _error("try again", 500)
        return _said(self._tell(job))

    def _list(self) -> Answer:
        jobs = list(self.jobs.values())[::-1]
        return _said({"data": [self._tell(job) for job in jobs[:100]], "has_more": len(jobs) > 100})

    def _tell(self, job: ScriptedJob) -> dict[str, Any]:
        over = time.time() >= job.ends
        part = min(1.0, (time.time() - job.created) / self.seconds) if self.seconds else 1.0
        status = job.status if over else "in_progress"
        told: dict[str, Any] = {
            "id": job.id,
            "object": "batch",
            "status": status,
            "created_at": int(job.created),
        }
        told |= {"metadata": job.said["metadata"]} if "metadata" in job.said else {}
        done = job.done if over else int(part * job.total)
        output, failed = (job.output or None, job.failed or None) if over else (None, None)
        counts = {"total": job.total, "completed": done, "failed": job.wrong if over else 0}
        files = {"input_file_id": job.input, "output_file_id": output, "error_file_id": failed}
        return {**told, **files, "request_counts": counts, "errors": {"data": job.errors}}


def _result(key: str, status: int, body: Any) -> bytes:
    response = {"status_code": status, "request_id": "r", "body": body}
    return to_json({"id": "l", "custom_id": key, "response": response, "error": None})


def _body(answer: Answer) -> Any:
    try:
        return json.loads(answer.body or b"")
    except ValueError:
        return {"text": (answer.body or b"").decode("utf-8", "replace")}


def _said(value: Any) -> Answer:
    return Answer(body=to_json(value))


def _error(message: str, status: int) -> Answer:
    return Answer(status=status, body=to_json({"error": {"message": message}}))
