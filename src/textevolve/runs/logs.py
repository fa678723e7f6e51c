"""Write a run in the formats of other programs: a log of Inspect for each variant, records of Every
Eval Ever, and trajectories in ATIF.

All three are made of the same samples: the outputs that a run has in its matrix, with the facts of
their rows in tables. So kinds of studies without outputs, such as measurements of judges, have no
such files.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.json_texts import as_array, as_object
from textevolve.mappings import drop_empty, drop_none, pick
from textevolve.report.blocks import Entry
from textevolve.report.files import open_target
from textevolve.rows.trajectories import METRICS, write_trajectory
from textevolve.rows.writing import plain
from textevolve.runs.report import data_of
from textevolve.runs.stored import StudyRun, decode_record, read_records
from textevolve.store.records import RecordFilter
from textevolve.store.repository import Store

LogFiles: TypeAlias = Iterator[tuple[str, str]]
"""The names of files within a folder, each with its text."""


@dataclass(frozen=True, slots=True)
class LoggedOutput:
    """An output of a run.

    Attributes:
        id: The id of its row.
        input: The input that judges saw.
        reference: The right answer; empty if the row has none.
        entry: The output with its scores and reasons.
        fields: Its row in tables.
    """

    id: str
    input: str
    reference: str
    entry: Entry
    fields: Mapping[str, Any]

    @property
    def epoch(self) -> int:
        """The number of the output among those of its variant and row, from 1."""
        return int(self.fields.get("sample") or 0) + 1

    @property
    def usage(self) -> dict[str, int] | None:
        """The tokens of the output; None if it was not made for the run."""
        usage = as_object(self.fields.get("usage"))
        if not usage.get("calls"):
            return None
        tokens = [usage["prompt_tokens"], usage["completion_tokens"]]
        return {
            "input_tokens": tokens[0],
            "output_tokens": tokens[1],
            "total_tokens": sum(tokens),
        }

    @property
    def scores(self) -> dict[str, float]:
        """The scores that are not missing."""
        return drop_none(self.entry.scores)

    def passed(self, name: str) -> bool | None:
        """Return the verdict of a judge or metric; None if it is not the one that decides."""
        decides = name == "score" or len(self.entry.scores) == 1
        return self.entry.passed if decides else None


@dataclass(frozen=True, slots=True)
class VariantLog:
    """The samples of one variant of a run."""

    run: StudyRun
    variant: str
    samples: Sequence[LoggedOutput]

    @property
    def model(self) -> str:
        """The model of the outputs; if they existed before, Inspect's name for none."""
        return str(self.samples[0].fields.get("model") or "none/none")

    @property
    def data(self) -> str:
        """The name of the data."""
        return data_of(self.run.record) or self.run.id

    @property
    def id(self) -> str:
        """An id that another export of the run has, too."""
        digest = hashlib.sha256(f"{self.run.id} {self.variant}".encode()).digest()
        return str(uuid.UUID(bytes=digest[:16], version=4))

    @property
    def created(self) -> datetime:
        return datetime.fromtimestamp(self.run.record.created, UTC)

    @property
    def means(self) -> dict[str, tuple[float, int]]:
        """The mean of each judge or metric, and the number of its scores."""
        scores: dict[str, list[float]] = {}
        for sample in self.samples:
            for name, score in sample.scores.items():
                scores.setdefault(name, []).append(score)
        return {name: (fmean(values), len(values)) for name, values in scores.items()}


def read_logs(store: Store, run: StudyRun) -> list[VariantLog]:
    """Return the outputs of a run by variant; several candidates of a case are variants, too.

    Raises:
        InputError: the kind of study has no outputs.
    """
    study = run.study
    if study.rows is None:
        raise InputError(f"run {run.id}: a run of {study.kind} has no outputs to write as a log")
    samples: dict[str, list[LoggedOutput]] = {}

    for stored in store.iterate_records(run.id, RecordFilter()):
        record = decode_record(study, run.id, stored)
        table = list(study.flat(record))
        for row in study.rows([record], [stored.variant] if stored.variant else []):
            for place, entry in enumerate(row.entries):
                if entry is None:
                    continue
                fields: Mapping[str, Any] = table[place] if len(table) > place else {}
                candidate = f"candidate {place + 1}" if len(row.entries) > 1 else ""
                variant = ", ".join(filter(None, (stored.variant, candidate)))
                sample = LoggedOutput(stored.case, row.input, row.reference, entry, fields)
                samples.setdefault(variant, []).append(sample)

    return [VariantLog(run, variant, of_variant) for variant, of_variant in samples.items()]


def write_inspect(store: Store, run: StudyRun) -> LogFiles:
    """Yield a log of Inspect for each variant."""
    for log in read_logs(store, run):
        created = log.created.isoformat()
        number = len(log.samples)
        scores = [
            {
                "name": name,
                "scorer": name,
                "scored_samples": scored,
                "unscored_samples": number - scored,
                "metrics": {"mean": {"name": "mean", "value": mean}},
            }
            for name, (mean, scored) in log.means.items()
        ]
        evaluation = {
            "eval_id": log.id,
            "run_id": run.id,
            "created": created,
            "task": f"{run.record.name or run.id} {log.variant}".strip(),
            "task_id": log.id,
            "dataset": {"name": log.data, "samples": number},
            "model": log.model,
            "config": {},
            "packages": {"textevolve": version("textevolve")},
            "scorers": [{"name": name} for name in log.means],
        }
        document = {
            "version": 2,
            "status": "success" if run.record.status == "finished" else "cancelled",
            "eval": evaluation,
            "results": {
                "total_samples": number,
                "completed_samples": sum(
                    bool(sample.scores) and not sample.entry.failure for sample in log.samples
                ),
                "scores": scores,
            },
            "stats": {"started_at": created, "completed_at": created},
            "samples": [_write_inspect_sample(sample, log.model) for sample in log.samples],
        }
        yield f"{log.created:%Y-%m-%dT%H-%M-%S}_{log.id[:8]}.json", json.dumps(plain(document))


def _write_inspect_sample(sample: LoggedOutput, model: str) -> dict[str, Any]:
    entry = sample.entry
    fields = sample.fields
    answer = {"role": "assistant", "content": entry.output, "source": "generate"}
    calls = [
        {"id": str(n), "function": call["name"], "arguments": as_object(call.get("arguments"))}
        for n, call in enumerate(as_array(fields.get("tool_calls")), 1)
    ]
    output = {
        "model": model,
        "choices": [
            {"message": answer, "stop_reason": "max_tokens" if fields.get("cut") else "stop"}
        ],
        "usage": sample.usage,
        "time": fields.get("seconds"),
    }
    scores = {
        name: {
            "value": score,
            "answer": entry.output,
            "explanation": entry.reasons.get(name) or fields.get("reason"),
            "metadata": drop_none({"passed": sample.passed(name)}),
        }
        for name, score in sample.scores.items()
    }
    document: dict[str, Any] = {
        "id": sample.id,
        "epoch": sample.epoch,
        "input": sample.input,
        "target": sample.reference,
        "messages": [
            {"role": "user", "content": sample.input},
            {**answer, **drop_empty({"tool_calls": calls})},
        ],
        "output": drop_none(output),
        "scores": scores,
    }
    if entry.failure:
        document["error"] = {"message": entry.failure, "traceback": "", "traceback_ansi": ""}

    return document


NOT_A_NAME = re.compile(r"[^\w.-]+")
EVAL_EVER = "every-eval-ever"
EVAL_SCHEMA = "0.3.0"
"""The version of Every Eval Ever's schemas."""


def write_every_eval_ever(store: Store, run: StudyRun) -> LogFiles:
    """Yield the summary and the samples of each variant in Every Eval Ever's layout, which has the
    folders data, data set, developer and model."""
    for log in read_logs(store, run):
        developer, _, name = log.model.partition("/")
        parts = (Path(log.data).stem, developer, name or developer)
        folder = "/".join(("data", *(NOT_A_NAME.sub("_", part) for part in parts)))
        lines = [line for sample in log.samples for line in _write_eval_lines(log, sample)]
        text = "".join(f"{json.dumps(plain(line))}\n" for line in lines)
        file = f"{folder}/{log.id}_samples.jsonl"
        yield file, text
        document = {
            "schema_version": EVAL_SCHEMA,
            "evaluation_id": log.id,
            "retrieved_timestamp": str(log.created.timestamp()),
            "source_metadata": {
                "source_name": f"TextEvolve run {run.id}",
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "other",
            },
            "eval_library": {"name": "textevolve", "version": version("textevolve")},
            "model_info": {
                "name": name or developer,
                "id": log.model,
                # Two prompts of one model, or two columns of outputs, differ in this alone.
                "additional_details": {
                    "deployment_type": "unknown",
                    "model_availability": "unknown",
                    "variant": log.variant,
                },
            },
            "evaluation_results": [
                {
                    "evaluation_name": scorer,
                    "evaluation_result_id": scorer,
                    "source_data": {
                        "dataset_name": log.data,
                        "source_type": "other",
                    },
                    "metric_config": {
                        "metric_name": scorer,
                        "lower_is_better": False,
                        "score_type": "continuous",
                        "min_score": 0.0,
                        "max_score": 1.0,
                    },
                    "score_details": {"score": mean, "uncertainty": {"num_samples": number}},
                }
                for scorer, (mean, number) in log.means.items()
            ],
            "detailed_evaluation_results": {
                "format": "jsonl",
                "file_path": file,
                "hash_algorithm": "sha256",
                "checksum": hashlib.sha256(text.encode()).hexdigest(),
                "total_rows": len(lines),
            },
        }
        yield f"{folder}/{log.id}.json", json.dumps(plain(document))


def _write_eval_lines(log: VariantLog, sample: LoggedOutput) -> Iterator[dict[str, Any]]:
    """Yield a line for each score of a sample; a sample without a score has none."""
    fields = sample.fields
    output = sample.entry.output
    attribution = {
        "turn_idx": 0,
        "source": "output.raw",
        "extracted_value": output,
        "extraction_method": "exact_match",
        "is_terminal": True,
    }
    seconds = fields.get("seconds")
    for name, score in sample.scores.items():
        passed = sample.passed(name)
        line = {
            "schema_version": EVAL_SCHEMA,
            "evaluation_id": log.id,
            "model_id": log.model,
            "evaluation_name": name,
            "evaluation_result_id": name,
            "sample_id": sample.id if sample.epoch == 1 else f"{sample.id}, sample {sample.epoch}",
            "interaction_type": "single_turn",
            "input": {
                "raw": sample.input,
                "reference": [sample.reference] if sample.reference else [],
            },
            "output": {"raw": [output]},
            "answer_attribution": [attribution],
            "evaluation": {
                "score": score,
                "is_correct": score >= 0.5 if passed is None else passed,
            },
            "token_usage": sample.usage,
            "performance": None if seconds is None else {"latency_ms": seconds * 1000},
        }
        yield drop_none(line)


def write_trajectories(store: Store, run: StudyRun) -> LogFiles:
    """Yield a trajectory in ATIF for each chat of a run, or else for each of its outputs."""
    documents: list[dict[str, Any]] = []
    if run.study.chats is not None:
        chats = run.study.chats(read_records(store, run)())
        documents = [write_trajectory(messages, id) for id, messages in chats]
    else:
        for log in read_logs(store, run):
            agent = drop_empty({"name": log.variant, "model_name": log.model})
            for sample in log.samples:
                id = ", ".join(filter(None, (sample.id, log.variant)))
                extra = {"scores": sample.scores, "reference": sample.reference or None}
                messages = _list_messages(sample)
                documents.append(write_trajectory(messages, id, agent, drop_none(extra)))

    for number, document in enumerate(documents, 1):
        yield f"trajectory_{number}.json", json.dumps(plain(document))


def _list_messages(sample: LoggedOutput) -> list[dict[str, Any]]:
    """Return the messages of a sample: its input, its tool calls with their results, its output."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": sample.input}]
    for number, call in enumerate(as_array(sample.fields.get("tool_calls")), 1):
        id = str(number)
        called = {"id": id, "name": call["name"], "arguments": call.get("arguments")}
        messages.append({"role": "assistant", "tool_calls": [called]})
        result = call.get("error") or call.get("result")
        if result is not None:
            messages.append({"role": "tool", "tool_call_id": id, "content": result})
    usage = as_object(sample.fields.get("usage"))
    metrics = {**pick(usage, METRICS), "cost_usd": usage.get("cost")}
    answer = {"role": "assistant", "content": sample.entry.output}
    return [*messages, {**answer, **({"metrics": drop_none(metrics)} if sample.usage else {})}]


LOGS: Mapping[str, Callable[[Store, StudyRun], LogFiles]] = {
    "inspect": write_inspect,
    EVAL_EVER: write_every_eval_ever,
    "atif": write_trajectories,
}
"""The formats of other programs, by the names that targets begin with."""
NOT_WRITTEN = (
    "not carried over: the arguments of debates, the tokens and costs of judges, intervals, and"
    " comparisons of variants"
)


def is_log_target(target: str) -> bool:
    """Return whether a target names a format of another program, as in `inspect:FOLDER`."""
    kind, _, folder = target.partition(":")
    return kind in LOGS and bool(folder)


def write_logs(store: Store, run: StudyRun, target: str) -> Iterator[str]:
    """Write a run to a folder in the format of another program, and yield a sentence for each file,
    and one on what the format does not hold.

    Raises:
        InputError: the run has no outputs, or a file cannot be written.
    """
    kind, _, folder = target.partition(":")
    for name, text in LOGS[kind](store, run):
        path = Path(folder, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path.parent}: cannot be made ({error.strerror})") from None
        with open_target(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
        yield f"written to {path}"
    yield NOT_WRITTEN + (", and outputs without a score" if kind == EVAL_EVER else "")
