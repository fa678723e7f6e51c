"""What is kept of a study of nodes: each node with what was said of it, and what was no node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, TypeAlias

from textevolve.errors import InputError, MismatchError
from textevolve.evaluation import Case, EvaluationResult, Failure
from textevolve.node_eval.episode_evaluation import PlacedNode
from textevolve.node_eval.episodes import Reading
from textevolve.node_eval.node_lines import (
    NodeLine,
    as_item,
    describe_node,
    encode_line,
    parse_node,
)
from textevolve.node_eval.traces import HEADER
from textevolve.studies.study import Row


@dataclass(frozen=True, slots=True)
class JudgedNode(PlacedNode):
    """A node with what was said of it. `number`: its place in the run, from 1 on. `unasked`: why a
    judge was not asked about it yet, where a limit was reached."""

    number: int
    unasked: str = ""


@dataclass(frozen=True, slots=True)
class UnusedLine:
    """What of a trace could not be used, with the reason. `number`: its place after the nodes."""

    number: int
    place: str
    reason: str


Record: TypeAlias = JudgedNode | UnusedLine


def as_record(node: PlacedNode, number: int, unasked: str = "") -> JudgedNode:
    return JudgedNode(node.episode, node.step, node.place, node.item, number, unasked)


def unused_lines(reading: Reading, number: int) -> Iterator[UnusedLine]:
    """What of a trace could not be used; `number`: of the nodes before it."""
    for n, fault in enumerate(reading.faults, 1):
        place, _, reason = fault.partition(": ")
        yield UnusedLine(number + n, place, reason)
    if left := reading.n_faults - len(reading.faults):
        yield UnusedLine(number + len(reading.faults) + 1, f"{left:,} more", "not named here")


def parse_line(name: str, line: str) -> NodeLine:
    try:
        return parse_node(f"node {name}", json.loads(line))
    except (InputError, ValueError) as error:
        raise MismatchError(
            f"node '{name}' was kept by another version of TextEvolve ({error}); evaluate the trace"
            " again"
        ) from None


def find_row(record: Record) -> Row:
    """A node's score is the mean of the scores that it has; where one failed it has none, since
    half of them have another mean. It passed where all evaluators say so."""
    if isinstance(record, UnusedLine):
        key = f"line {record.number}"
        return Row(key, record.number, record.place, None, "failed", record.reason)
    row = Row(str(record.number), record.number, record.id)
    if record.unasked:
        return replace(row, status="skipped", reason=record.unasked)
    results = record.item.evaluation_results
    failures = {name: one for name, one in results.items() if isinstance(one, Failure)}
    for name, one in failures.items():
        if one.kind == "failed":
            return replace(row, status="failed", reason=f"{name}: {one.reason}")
    found = [one for one in results.values() if isinstance(one, EvaluationResult)]
    if found:
        score = fmean(one.score for one in found)
        return replace(row, score=score, passed=all(one.passed for one in found))
    return replace(row, reason=next((one.reason for one in failures.values()), ""))


def as_case(record: Record | PlacedNode) -> Case | None:
    """A node with what was said of it, to be judged; its input is its line of our own format."""
    if isinstance(record, UnusedLine):
        return None
    line = encode_line(describe_node(record.episode, record.step, record.item))
    return Case(line.decode(), (), record.id)


def flatten(record: Record) -> Iterator[Mapping[str, Any]]:
    """A row for each node: its line of our own format, and what a table wants besides."""
    if isinstance(record, UnusedLine):
        return
    line = describe_node(record.episode, record.step, record.item)
    results = line.pop("results")
    yield {
        **line,
        "place": record.place,
        "number": record.number,
        "case": record.id,
        "score": find_row(record).score,
        "rewards": {name: result.get("score") for name, result in results.items()},
        **({"unasked": record.unasked} if record.unasked else {}),
        "results": results,
    }


def encode(record: Record) -> bytes:
    """The same as JSON; of what could not be used, a line that readers take for a header."""
    unused = isinstance(record, UnusedLine)
    data = {**HEADER, "unused": asdict(record)} if unused else next(flatten(record))
    return encode_line(data).rstrip(b"\n")


def decode(body: bytes) -> Record:
    data = json.loads(body)
    if "unused" in data:
        return UnusedLine(**data["unused"])
    line = parse_line(data["case"], body.decode())
    node = PlacedNode(line.episode, line.step or 0, data["place"], as_item(line))
    return as_record(node, data["number"], data.get("unasked", ""))
