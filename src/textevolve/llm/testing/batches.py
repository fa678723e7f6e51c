"""The batch API of the scripted server: files, jobs that take a while, and the ways in which they
fail.

The requests of a job are answered when the job is created, by the server's script like any other,
so a job that is submitted twice is counted twice. The results can be read once the job is over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic_core import to_json

from textevolve.evaluation import empty_default
from textevolve.json_texts import as_object
from textevolve.llm.testing.answers import Answer
from textevolve.protocol.batches import (
    RemoteBatch,
    read_request_line,
    read_upload,
    write_error_line,
    write_result_line,
)
from textevolve.protocol.chat import encode


class BatchFault(StrEnum):
    """A way in which a job fails. Faults of lines affect every third line, from the first;
    `EXPIRED` and `CANCELLED` leave the second half of the lines unanswered."""

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
    RESULTS_LATE = "results late"
    RESULTS_EMPTY = "results empty at first"
    RESULTS_A_PAGE = "results a page at first"
    RESULTS_CUT = "results cut at first"
    FILE_UNNAMED = "file unnamed at first"
    FAILED_FIRST = "failed lines before good ones"


REFUSALS: Mapping[BatchFault | None, dict[str, Any]] = {
    BatchFault.INVALID: {"code": "invalid_model", "message": "no batches of this"},
    BatchFault.QUEUE_FULL: {"code": "token_limit_exceeded", "message": "Enqueued token limit"},
}
"""The errors of jobs that are refused as a whole."""
WRONG_LINES: Mapping[BatchFault | None, int] = {
    BatchFault.ERROR_LINES: 500,
    BatchFault.REFUSED_LINES: 400,
}
LATE = 2
"""The number of requests for results that fail at first."""
HALVES = (BatchFault.EXPIRED, BatchFault.CANCELLED)
Faults = Callable[[int], BatchFault | None]
"""A function from the number of a job (from 1) to the fault that it shows; None: no fault."""
AnswerLine = Callable[[dict[str, Any], bytes], Answer]


@dataclass
class ScriptedJob:
    """A batch job of the scripted server.

    Attributes:
        outcome: The final state, which is reported from the time `ends` on.
        ends: The time at which the job is over.
        polls: How often the job's state was requested.
        reads: How often its results were requested.
    """

    outcome: RemoteBatch
    ends: float
    fault: BatchFault | None
    polls: int = 0
    reads: int = 0

    @property
    def total(self) -> int:
        return self.outcome.total or 0

    def report(self) -> dict[str, Any]:
        if (
            time.time() >= self.ends
            and self.fault is BatchFault.FILE_UNNAMED
            and self.polls <= LATE
        ):
            return self.outcome.model_copy(update={"output_file_id": None}).write()
        if time.time() >= self.ends:
            return self.outcome.write()
        unfinished = dict.fromkeys(("output_file_id", "error_file_id")) | {
            "status": "in_progress",
            "completed": 0,
            "failed": 0,
        }
        return self.outcome.model_copy(update=unfinished).write()


@dataclass
class ScriptedBatches:
    """The batch jobs of the scripted server.

    Attributes:
        seconds: The duration of a job.
        faults: Returns the fault for a job's number.
        most: The most requests that one job may have; a job with more is rejected as if the queue
            were full; None: no limit.
        files: The content of each file by its id.
        uploads: The number of uploaded files.
        submissions: The number of created jobs.
    """

    seconds: float = 0.05
    faults: Faults = lambda _: None
    most: int | None = None
    files: dict[str, bytes] = empty_default(dict)
    jobs: dict[str, ScriptedJob] = empty_default(dict)
    uploads: int = 0
    submissions: int = 0

    def answer(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        ask: AnswerLine,
    ) -> Answer | None:
        """Answer a request; None if its path is not of this API. `ask`: answers one line."""
        root, _, remainder = path.partition("?")[0].removeprefix("/v1/").partition("/")
        name, _, action = remainder.partition("/")
        if root == "files":
            return self._file(method, name, action) if name else self._upload(headers, body)
        if root != "batches":
            return None
        if name:
            return self._job(name, action)
        if method == "POST":
            return self._create(json.loads(body), ask)
        jobs = list(self.jobs.values())[::-1]

        return _said({"data": [job.report() for job in jobs[:100]], "has_more": len(jobs) > 100})

    def _upload(self, headers: Mapping[str, str], body: bytes) -> Answer:
        self.uploads += 1
        content = read_upload(headers.get("content-type", ""), body)
        if content is None:
            return _error("there is no file", 400)
        return _said({"id": self._keep(content), "object": "file", "purpose": "batch"})

    def _keep(self, content: bytes) -> str | None:
        if not content:
            return None
        name = f"file-{len(self.files) + self.submissions}-{time.time_ns()}"
        self.files[name] = content
        return name

    def _file(self, method: str, name: str, action: str) -> Answer:
        if name not in self.files:
            return _error(f"no such file: {name}", 404)
        if method == "DELETE":
            del self.files[name]
            return _said({"id": name, "deleted": True})
        if not action:
            return _said({"id": name, "object": "file"})
        content = self.files[name]
        for job in self.jobs.values():
            if name in job.outcome.outputs:
                job.reads += 1
                return _read_results(job, name, content)

        return Answer(body=content)

    def _create(self, body: dict[str, Any], ask: AnswerLine) -> Answer:
        self.submissions += 1
        fault = self.faults(self.submissions)
        name = body.get("input_file_id") or ""
        if name not in self.files:
            return _error(f"no such file: {name}", 400)
        lines = list(map(read_request_line, self.files[name].splitlines()))
        if self.most is not None and len(lines) > self.most:
            fault = BatchFault.QUEUE_FULL
        refusal = REFUSALS.get(fault)
        good, bad = ([], []) if refusal else _answer_lines(lines, fault, ask)
        status = "completed"
        if refusal is not None:
            status = "failed"
        elif fault in HALVES:
            status = str(fault)
        job_id = f"batch_{self.submissions}_{time.time_ns()}"
        outcome = RemoteBatch.model_construct(
            id=job_id,
            status=status,
            created_at=int(time.time()),
            mark=as_object(body.get("metadata")).get("textevolve"),
            input_file_id=name,
            output_file_id=self._keep(b"\n".join(good)),
            error_file_id=self._keep(b"\n".join(bad)),
            total=len(lines),
            completed=len(lines) - len(bad) if fault is BatchFault.FAILED_FIRST else len(good),
            failed=len(bad),
            errors=[] if refusal is None else [refusal],
        )
        job = ScriptedJob(outcome, time.time() + self.seconds, fault)
        self.jobs[job_id] = job
        if fault is BatchFault.CREATED_UNSAID:
            return _error("something broke", 500)

        return _said(job.report())

    def _job(self, id: str, action: str) -> Answer:
        job = self.jobs.get(id)
        if job is None:
            return _error(f"no such job: {id}", 404)
        if action == "cancel":
            if time.time() < job.ends:
                job.outcome.status = "cancelled"
                job.ends = time.time()
            return _said(job.report())

        job.polls += 1
        if job.fault is BatchFault.POLLS_FAIL and job.polls <= 3:
            return _error("try again", 500)

        return _said(job.report())


def _read_results(job: ScriptedJob, name: str, content: bytes) -> Answer:
    """Return the answer to a request for a job's results, which may not be there at first."""
    absent = _error(f"no such file: {name}", 404)
    first_answers: Mapping[BatchFault | None, Answer] = {
        BatchFault.RESULTS_LATE: absent,
        BatchFault.RESULTS_EMPTY: Answer(body=b""),
        BatchFault.RESULTS_A_PAGE: Answer(body=b"<html><body>Sign in</body></html>"),
        BatchFault.RESULTS_CUT: Answer(body=content[: len(content) // 2]),
    }
    if job.fault is BatchFault.RESULTS_GONE:
        return absent
    if job.fault in first_answers and job.reads <= LATE:
        return first_answers[job.fault]

    return Answer(body=content)


def _answer_lines(
    lines: list[tuple[str, Any]], fault: BatchFault | None, ask: AnswerLine
) -> tuple[list[bytes], list[bytes]]:
    """Return the results of the lines that are answered, and the errors of the others. Lines that
    `LOST_LINES` drops are in neither list."""
    good: list[bytes] = []
    bad: list[bytes] = []

    for number, (key, request_body) in enumerate(lines):
        third = number % 3 == 0
        if fault in HALVES and number >= len(lines) / 2:
            bad.append(write_error_line(key, f"batch_{fault}", "not asked"))
        elif third and fault in WRONG_LINES:
            body = {"error": {"message": "it went wrong"}}
            bad.append(write_result_line(key, WRONG_LINES[fault], body))
        elif not (third and fault is BatchFault.LOST_LINES):
            answer = ask(request_body, encode(request_body))
            if third and fault is BatchFault.FAILED_FIRST:
                good.append(write_result_line(key, 500, {"error": {"message": "it went wrong"}}))
            result = write_result_line(key, answer.status, _body(answer))
            (good if answer.status == 200 else bad).append(result)

    return good, bad


def _body(answer: Answer) -> Any:
    try:
        return json.loads(answer.body or b"")
    except ValueError:
        return {"text": (answer.body or b"").decode("utf-8", "replace")}


def _said(value: Any) -> Answer:
    return Answer(body=to_json(value))


def _error(message: str, status: int) -> Answer:
    return Answer(status=status, body=to_json({"error": {"message": message}}))
