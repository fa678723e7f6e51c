"""Recorded runs of agents as JSON lines: one node a line, read lazily, written whole or not at all.

A file of OpenTelemetry spans is recognised and handed to `otel.py`.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.episodes import Episode, Instructions, Reading
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.otel import read_spans
from textevolve.node_eval.otlp import holds_spans
from textevolve.rows import parse_row, read_lines

FORMAT, VERSION = "textevolve-nodes", 1
HEADER = {"format": FORMAT, "version": VERSION}

NOT_UTF8 = re.compile("[\udc80-\udcff]")

Score = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ResultLine(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    score: Score
    passed: bool
    feedback: str = ""
    metadata: dict[str, Any] = {}


class FailureLine(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    failure: Literal["failed", "skipped"]
    reason: str


class NodeLine(BaseModel):
    """One node as a line has it; `step` counts supersteps from 0 on."""

    model_config = ConfigDict(extra="ignore")

    episode: str = "1"
    step: Annotated[int, Field(ge=0)] | None = None
    node: str = ""
    path: tuple[str, ...] = ()
    instruction: Instruction | None = None
    timestamp: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    results: dict[str, ResultLine | FailureLine] = {}

    @field_validator("episode", mode="before")
    @classmethod
    def _number(cls, given: object) -> object:
        return str(given) if isinstance(given, int) else given


def read_episodes(
    path: str | Path, reading: Reading | None = None, instructions: Instructions | None = None
) -> Iterator[Episode]:
    """The runs in a trace, one by one: our own JSON lines, or OpenTelemetry spans as OTLP JSON.

    A line or span that cannot be used is reported to `reading`, and the rest is read. `-` is
    standard input. `instructions` say what nodes of these names do, whatever the file says.

    Raises:
        InputError: the file cannot be read, or nothing in it can be used.
    """
    source, found = str(path), reading if reading is not None else Reading()
    lines = read_lines(source)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{source}: no nodes: it is empty")
    lines = itertools.chain([first], lines)
    if _looks_like_spans(first[1]):
        episodes = read_spans(lines, source, found, instructions or {})
    else:
        episodes = _read_own(lines, found, instructions or {})
    yield from episodes
    if not found.nodes:
        why = found.faults[0] if found.faults else f"{source}: it has a header and nothing else"
        raise InputError(f"no node can be used: {why}")


def _looks_like_spans(line: str) -> bool:
    """OTLP as lines, or the beginning of one document that is spread over many."""
    try:
        data: object = json.loads(line)
    except (ValueError, RecursionError):
        return line.strip() in ("{", "[", "[{") or bool(re.search('"resource_?[sS]pans"', line))
    return isinstance(data, list) or holds_spans(data)


def _read_own(
    lines: Iterable[tuple[str, str]], reading: Reading, instructions: Instructions
) -> Iterator[Episode]:
    """The lines of an episode stand together; one that comes again is reported."""
    ended: set[str] = set()
    gathered: list[NodeLine] = []
    for where, line in lines:
        node = _read_line(where, line, reading)
        if node is None:
            continue
        if node.episode in ended:
            reading.report(f"{where}: episode '{node.episode}' has ended before; keep it together")
            continue
        if gathered and node.episode != gathered[0].episode:
            ended.add(gathered[0].episode)
            yield _gather(gathered, instructions)
            gathered = []
        gathered.append(node)
        reading.nodes += 1
    if gathered:
        yield _gather(gathered, instructions)


def _read_line(where: str, line: str, reading: Reading) -> NodeLine | None:
    try:
        if NOT_UTF8.search(line):
            raise InputError(f"{where}: not UTF-8 text; convert it first")
        row = parse_row(line, where, "node")
        if "format" in row and "node" not in row:
            _check_header(where, row)
            return None
        return parse_node(where, row)
    except InputError as error:
        reading.report(str(error))
        return None


def _check_header(where: str, row: Mapping[str, Any]) -> None:
    if row["format"] != FORMAT:
        raise InputError(f"{where}: format '{row['format']}' is not known; it must be {FORMAT}")
    if row.get("version") != VERSION:
        raise InputError(
            f"{where}: version {row.get('version')} of the format is not known; this TextEvolve"
            f" reads version {VERSION}"
        )


def parse_node(where: str, row: Mapping[str, Any]) -> NodeLine:
    """
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
        if field == "instruction":
            raise InputError(
                f"{where}: instruction '{row['instruction']}' is not one of the instruction types"
            ) from None
        raise InputError(f"{where}: {field}: {first['msg']}") from None


def _gather(lines: list[NodeLine], instructions: Instructions) -> Episode:
    """An episode of its nodes, by their supersteps; a node that names none has one of its own."""
    steps: dict[tuple[int, int], list[HistoryItem]] = {}
    last = 0
    for number, line in enumerate(lines):
        if line.step is None:
            place = (last, number + 1)
        else:
            last = line.step
            place = (last, 0)
        steps.setdefault(place, []).append(as_item(line, instructions))
    return Episode(lines[0].episode, History([steps[place] for place in sorted(steps)]))


def as_item(line: NodeLine, instructions: Instructions | None = None) -> HistoryItem:
    return HistoryItem(
        timestamp=line.timestamp,
        instruction=(instructions or {}).get(line.node, line.instruction),
        input_state=line.input,
        output_state=line.output,
        evaluation_results={name: _as_outcome(one) for name, one in line.results.items()},
        node=line.node,
        path=line.path,
        seconds=line.seconds,
        tokens=line.tokens,
        error=line.error,
    )


def _as_outcome(line: ResultLine | FailureLine) -> EvaluationResult | Failure:
    if isinstance(line, FailureLine):
        return Failure(line.failure, line.reason)
    return EvaluationResult(line.score, line.passed, line.feedback, line.metadata)


def write_history(history: History, path: str | Path, episode: str = "1") -> int:
    """Keep a history as JSON lines; gives the number of nodes. What stands there is replaced, once
    all is written.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("xb") as file:
            number = write_episodes([Episode(episode, history)], file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):
            beside.unlink()
    return number


def write_episodes(episodes: Iterable[Episode], file: IO[bytes]) -> int:
    """Write a header and a line for each node to an open file; gives the number of nodes."""
    file.write(encode_line(HEADER))
    number = 0
    for episode in episodes:
        for step, item in episode.nodes:
            file.write(encode_line(describe_node(episode.id, step, item)))
            number += 1
    return number


def describe_node(episode: str, step: int, item: HistoryItem) -> dict[str, Any]:
    """A node as its line has it."""
    return {
        "episode": episode,
        "step": step,
        "node": item.node,
        "path": list(item.path),
        "instruction": item.instruction.name if item.instruction else None,
        "timestamp": item.timestamp,
        "seconds": item.seconds,
        "tokens": item.tokens,
        "input": item.input_state,
        "output": item.output_state,
        "error": item.error,
        "results": {name: describe_result(r) for name, r in item.evaluation_results.items()},
    }


def describe_result(result: EvaluationResult | Failure) -> dict[str, Any]:
    if isinstance(result, Failure):
        return {"failure": result.kind, "reason": result.reason}
    return asdict(result)


def encode_line(data: Mapping[str, Any]) -> bytes:
    """One line of JSON. What JSON cannot hold is put into words: infinities, objects, cycles."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(_plain(data, 0), ensure_ascii=False)
    return (text + "\n").encode("utf-8", "backslashreplace")


def _plain(value: object, depth: int) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if depth == 40:
        return "(nested too deeply)"
    if isinstance(value, Mapping):
        pairs = cast(Mapping[Any, Any], value).items()
        return {k if isinstance(k, str) else repr(k): _plain(v, depth + 1) for k, v in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part, depth + 1) for part in cast(Iterable[Any], value)]
    return f"({type(value).__name__})"
