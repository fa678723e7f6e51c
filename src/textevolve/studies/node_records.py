"""What is kept of a study of nodes: each node with what was said of it, and what was no node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
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
from textevolve.node_eval.rewards import score_of
from textevolve.node_eval.traces import HEADER
from textevolve.studies.study import Row


@dataclass(frozen=True, slots=True)
class JudgedNode(PlacedNode):
    """A node with what was said of it. `number`: its place in the run, from 1 on. `case`: its id as
    a case. `unasked`: why a judge was not asked about it yet, where a limit was reached."""

    number: int = 0
    case: str = ""
    unasked: str = ""


@dataclass(frozen=True, slots=True)
class UnusedLine:
    """What of a trace could not be used, with the reason. `number`: its place after the nodes."""

    number: int
    place: str
    reason: str


Record: TypeAlias = JudgedNode | UnusedLine


def number_nodes(groups: Iterable[Iterable[PlacedNode]]) -> Iterator[JudgedNode]:
    """Nodes with their numbers and their ids as cases, for each episode a group."""
    number = 0
    for nodes in groups:
        for place, node in enumerate(nodes, 1):
            number += 1
            yield name_node(node, number, place)


def name_node(node: PlacedNode, number: int, place: int) -> JudgedNode:
    case = f"{node.episode}:{place} {'/'.join((*node.item.path, node.item.node))}"
    return JudgedNode(node.episode, node.step, node.item, number, case)


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
    half of them have another mean."""
    if isinstance(record, UnusedLine):
        key = f"line {record.number}"
        return Row(key, record.number, record.place, None, "failed", record.reason)
    key, results = str(record.number), record.item.evaluation_results
    if record.unasked:
        return Row(key, record.number, record.case, None, "skipped", record.unasked)
    failures = {name: one for name, one in results.items() if isinstance(one, Failure)}
    for name, one in failures.items():
        if one.kind == "failed":
            reason = f"{name}: {one.reason}"
            return Row(key, record.number, record.case, None, "failed", reason)
    scores = [one.score for one in results.values() if isinstance(one, EvaluationResult)]
    reason = next((one.reason for one in failures.values()), "")
    score = fmean(scores) if scores else None
    return Row(key, record.number, record.case, score, "scored", "" if scores else reason)


def as_case(record: Record) -> Case | None:
    """A node with what was said of it, to be judged further."""
    if isinstance(record, UnusedLine):
        return None
    line = encode_line(describe_node(record.episode, record.step, record.item))
    return Case(line.decode(), (), record.case)


def describe(record: JudgedNode) -> dict[str, Any]:
    """A node as a line of our own format, with what a table wants besides."""
    line = describe_node(record.episode, record.step, record.item)
    rewards = {name: score_of(record.item, name) for name in record.item.evaluation_results}
    results = line.pop("results")
    return {**line, "score": find_row(record).score, "rewards": rewards, "results": results}


def flatten(record: Record) -> Iterator[Mapping[str, Any]]:
    """A row for each node; it can be read as a trace."""
    if isinstance(record, JudgedNode):
        yield describe(record)


def encode(record: Record) -> bytes:
    """A line of our own format; of what could not be used, one that readers take for a header."""
    if isinstance(record, UnusedLine):
        return encode_line({**HEADER, "unused": asdict(record)}).rstrip(b"\n")
    about = {"number": record.number, "case": record.case}
    more = {"unasked": record.unasked} if record.unasked else {}
    line = describe_node(record.episode, record.step, record.item)
    return encode_line({**line, **about, **more}).rstrip(b"\n")


def decode(body: bytes) -> Record:
    data = json.loads(body)
    if "unused" in data:
        return UnusedLine(**data["unused"])
    line = parse_line(data["case"], body.decode())
    item = as_item(line)
    about = (data["number"], data["case"], data.get("unasked", ""))
    return JudgedNode(line.episode, line.step or 0, item, *about)
