"""The records of a study of nodes (steps of an agent): each node with its results, and the unusable
lines of the trace."""

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
    """A node with the results of its evaluators. `number`: its position in the run, from 1.
    `unasked`: the reason why a judge has not judged it yet, such as a limit that was reached; empty
    otherwise."""

    number: int
    unasked: str = ""


@dataclass(frozen=True, slots=True)
class UnusedLine:
    """A line of a trace that could not be read, with the reason. `number`: its position in the run,
    after all nodes; `place`: its position in the file."""

    number: int
    place: str
    reason: str


Record: TypeAlias = JudgedNode | UnusedLine


def as_record(node: PlacedNode, number: int, unasked: str = "") -> JudgedNode:
    return JudgedNode(node.episode, node.step, node.place, node.item, number, unasked)


def unused_lines(reading: Reading, number: int) -> Iterator[UnusedLine]:
    """Yield the unusable lines of a trace as records. `number`: the number of nodes before them."""
    for n, fault in enumerate(reading.faults, 1):
        place, _, reason = fault.partition(": ")
        yield UnusedLine(number + n, place, reason)
    if unnamed := reading.n_faults - len(reading.faults):
        yield UnusedLine(number + len(reading.faults) + 1, f"{unnamed:,} more", "not named here")


def parse_line(name: str, line: str) -> NodeLine:
    try:
        return parse_node(f"node {name}", json.loads(line))
    except (InputError, ValueError) as error:
        raise MismatchError(
            f"node '{name}' was stored by another version of TextEvolve ({error}); evaluate the"
            " trace again"
        ) from None


def find_row(record: Record) -> Row:
    """Return the store columns of a node. Its score is the mean of the scores of its evaluators; it
    is missing if an evaluator failed, since a mean of the others would not be comparable. An
    evaluator that skipped the node, for instance because it has no output, does not count. A node
    passes if it passes all evaluators."""
    if isinstance(record, UnusedLine):
        return Row(
            f"line {record.number}", record.number, record.place, None, "failed", record.reason
        )
    row = Row(str(record.number), record.number, record.id)
    if record.unasked:
        return replace(row, status="skipped", reason=record.unasked)
    results = record.item.evaluation_results
    failures = {name: outcome for name, outcome in results.items() if isinstance(outcome, Failure)}
    for name, outcome in failures.items():
        if outcome.kind == "failed":
            return replace(row, status="failed", reason=f"{name}: {outcome.reason}")
    scored = [outcome for outcome in results.values() if isinstance(outcome, EvaluationResult)]
    if scored:
        score = fmean(outcome.score for outcome in scored)
        return replace(row, score=score, passed=all(outcome.passed for outcome in scored))
    return replace(row, reason=next((outcome.reason for outcome in failures.values()), ""))


def as_case(record: Record | PlacedNode) -> Case | None:
    """Return a node as a case to judge, whose input is the node as a line of JSON; None for an
    unusable line."""
    if isinstance(record, UnusedLine):
        return None
    line = encode_line(describe_node(record.episode, record.step, record.item))
    return Case(line.decode(), (), record.id)


def flatten(record: Record) -> Iterator[Mapping[str, Any]]:
    """Yield the node as a row: the fields of its JSON line, and further columns for tables; nothing
    for an unusable line."""
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
    """Encode a record as JSON. An unusable line is encoded like a header, which readers of traces
    skip."""
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
