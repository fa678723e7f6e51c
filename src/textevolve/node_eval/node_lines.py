"""Convert a node to a line of JSON, and back. `traces.py` reads and writes whole files."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.mappings import map_values
from textevolve.node_eval.history import ID_NAMES, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.snapshots import (
    WHOLE,
    take_snapshot,
)

MOST_BITS = 14_000
"""The size of the largest integers that are written, since Python's JSON only accepts integers of
up to 4,300 digits."""

Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ResultLine(BaseModel):
    """The result of an evaluator in a line."""

    model_config = ConfigDict(extra="ignore", strict=True)

    score: Score
    passed: bool
    feedback: str = ""
    metadata: dict[str, Any] = {}


class FailureLine(BaseModel):
    """The failure of an evaluator in a line."""

    model_config = ConfigDict(extra="ignore", strict=True)

    failure: Literal["failed", "skipped"]
    reason: str


class NodeLine(BaseModel):
    """One node as a line of a file has it.

    `episode`: the recorded run. `step`: the number of its superstep, from 0; None if unknown.
    `order`: its number in the order in which nodes ended, from 1; 0 if unknown. Other fields are as
    in `HistoryItem`.
    """

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    episode: str = "1"
    run_id: str = ""
    thread_id: str | None = None
    span_id: str | None = None
    parent_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    step: Annotated[int, Field(ge=0)] | None = None
    order: Annotated[int, Field(ge=0)] = 0
    node: str = ""
    path: tuple[str, ...] = ()
    instruction: Instruction | None = None
    timestamp: Annotated[float, Field(allow_inf_nan=False)] | datetime.datetime = 0.0
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    interrupted: bool = False
    attributes: dict[str, Any] = {}
    results: dict[str, ResultLine | FailureLine] = {}


def parse_node(where: str, row: Mapping[str, Any]) -> NodeLine:
    """Parse a row as a node; `where` names its place in errors.

    Raises:
        InputError: it is no node; names the place and the field.
    """
    if "node" not in row and "instruction" not in row:
        raise InputError(f"{where}: not a node: it has neither 'node' nor 'instruction'")
    try:
        return NodeLine.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"][:2])
        raise InputError(f"{where}: {field}: {first['msg']}") from None


def as_item(line: NodeLine) -> HistoryItem:
    """Convert a line to a node; values of keys that name secrets are masked."""
    began = line.timestamp
    return HistoryItem(
        timestamp=began.timestamp() if isinstance(began, datetime.datetime) else began,
        instruction=line.instruction,
        input_state=take_snapshot(line.input, WHOLE),
        output_state=take_snapshot(line.output, WHOLE),
        evaluation_results=map_values(_as_outcome, line.results),
        node=line.node,
        path=line.path,
        seconds=line.seconds,
        tokens=line.tokens,
        error=line.error,
        interrupted=line.interrupted,
        run_id=line.run_id,
        thread_id=line.thread_id,
        order=line.order,
        attributes=take_snapshot(line.attributes, WHOLE),
        ids={name: value for name in ID_NAMES if (value := getattr(line, name))},
    )


def _as_outcome(line: ResultLine | FailureLine) -> EvaluationResult | Failure:
    if isinstance(line, FailureLine):
        return Failure(line.failure, line.reason)
    metadata = take_snapshot(line.metadata, WHOLE)
    return EvaluationResult(line.score, line.passed, line.feedback, metadata)


def describe_node(episode: str, step: int, item: HistoryItem) -> dict[str, Any]:
    """Return a node as the data of its line."""
    return {
        "episode": episode,
        **describe_run(item),
        "step": step,
        "order": item.order,
        "node": item.node,
        "path": list(item.path),
        "instruction": item.instruction.name if item.instruction else None,
        "timestamp": item.timestamp,
        "seconds": item.seconds,
        "tokens": item.tokens,
        "input": item.input_state,
        "output": item.output_state,
        "error": item.error,
        "interrupted": item.interrupted,
        **({"attributes": item.attributes} if item.attributes else {}),
        "results": map_values(describe_result, item.evaluation_results),
    }


def describe_run(item: HistoryItem) -> dict[str, Any]:
    """Return the ids of a node, its run and its conversation, by the names of a line's fields.
    Without a known run or conversation both are left out."""
    known = item.run_id or item.thread_id
    run = {"run_id": item.run_id, "thread_id": item.thread_id} if known else {}
    return {**run, **item.ids}


def describe_result(result: EvaluationResult | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"failure": result.kind, "reason": result.reason}
    return asdict(result)


def encode_line(data: Mapping[str, Any]) -> bytes:
    """Encode data as one line of JSON. Values that JSON cannot hold are described in words:
    infinities, huge integers, objects, cycles."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_write_numbers(take_snapshot(data, WHOLE)), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _write_numbers(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"(an integer of {value.bit_length():,} bits)"
    if isinstance(value, dict):
        return map_values(_write_numbers, cast("dict[Any, Any]", value))
    if isinstance(value, list | tuple):
        return [_write_numbers(part) for part in cast("Sequence[Any]", value)]
    return value
