"""The report on judged nodes (steps of an agent): figures by evaluator, the episodes (runs of the
agent) as a tree, and on a page each node in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from statistics import fmean
from typing import Any, TypeAlias

from pydantic import BaseModel

from textevolve.errors import InputError, MismatchError
from textevolve.evaluation import Case, EvaluationResult, Failure, Result, select_scored
from textevolve.json_texts import as_array, as_object
from textevolve.mappings import read_fields
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.judging import PlacedNode, Reading
from textevolve.node_eval.statistics import NodeStatistics
from textevolve.node_eval.traces import (
    HEADER,
    NodeLine,
    as_item,
    describe_node,
    encode_line,
    parse_node,
)
from textevolve.report import wording
from textevolve.report.blocks import Block, Branch, Column, Note, Report, Table, Texts, Tone, Tree
from textevolve.runs.study import Row

# The records of a study of nodes (steps of an agent): each node with its results, and the unusable
# lines of the trace.


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


def find_node_row(record: Record) -> Row:
    """Return the store columns of a node. Its score is the mean of the scores of its evaluators; it
    is missing if an evaluator failed, since a mean of the others would not be comparable. An
    evaluator that skipped the node, for instance because it has no output, does not count. A node
    passes if it passes all evaluators."""
    if isinstance(record, UnusedLine):
        return Row(
            f"line {record.number}", record.number, record.place, None, "failed", record.reason
        )

    # The nodes of an episode depend on each other.
    cluster = f"episode {record.episode}"
    row = Row(str(record.number), record.number, record.id, cluster=cluster)
    if record.unasked:
        return replace(row, status="skipped", reason=record.unasked)
    results = record.item.evaluation_results
    failures = {name: outcome for name, outcome in results.items() if isinstance(outcome, Failure)}
    for name, outcome in failures.items():
        if outcome.kind == "failed":
            return replace(row, status="failed", reason=f"{name}: {outcome.reason}")
    scored = select_scored(results.values())
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


def flatten_node(record: Record) -> Iterator[Mapping[str, Any]]:
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
        "score": find_node_row(record).score,
        "rewards": {name: result.get("score") for name, result in results.items()},
        **({"unasked": record.unasked} if record.unasked else {}),
        "results": results,
    }


def write_node(record: Record) -> bytes:
    """Encode a record as JSON. An unusable line is encoded like a header, which readers of traces
    skip."""
    unused = isinstance(record, UnusedLine)
    data = {**HEADER, "unused": asdict(record)} if unused else next(flatten_node(record))
    return encode_line(data).rstrip(b"\n")


def decode(body: bytes) -> Record:
    data = json.loads(body)
    if "unused" in data:
        return UnusedLine(**data["unused"])
    line = parse_line(data["case"], body.decode())
    node = PlacedNode(line.episode, line.step or 0, data["place"], as_item(line))
    return as_record(node, data["number"], data.get("unasked", ""))


MOST_NODES = 1000
"""The number of nodes that are shown in full."""

TREE_BRANCHES = 60
REQUEST_SHOWN = 100
ID_SHOWN = 20
REQUESTS = ("text", "input", "question", "query", "task", "prompt")
"""The keys under which the input of an agent has its request, where it has no messages."""
STATE_SHOWN = 120
WHOLE_STATE = 4000


@dataclass(frozen=True)
class NodesResult(Result):
    """The figures of a run over recorded nodes.

    Attributes:
        statistics: The figures of all nodes.
        shown: The first nodes, which the report shows in full.
        unused: The lines of the trace that could not be read.
    """

    statistics: NodeStatistics
    shown: Sequence[JudgedNode]
    unused: Sequence[UnusedLine]


def summarise_nodes(
    _spec: object, records: Iterable[Record], most: int = MOST_NODES
) -> NodesResult:
    """Return the figures of all nodes, and the first nodes, at most `most`."""
    statistics = NodeStatistics()
    first_nodes: list[JudgedNode] = []
    unused: list[UnusedLine] = []

    for record in records:
        if isinstance(record, UnusedLine):
            unused.append(record)
            continue
        statistics.add(record.episode, record.item)
        if len(first_nodes) < most:
            first_nodes.append(record)

    return NodesResult(statistics, first_nodes, unused)


def report(
    _spec: object,
    result: NodesResult,
    *,
    most: int | None = TREE_BRANCHES,
    states: bool = False,
) -> Report:
    """Report on nodes. `most`: the most branches of the tree outside of pages; `states`: whether
    the tree shows the beginning of inputs and outputs."""
    return Report("Nodes of an agent", _sentence(result.statistics), _blocks(result, most, states))


def _sentence(statistics: NodeStatistics) -> str:
    nodes = wording.count(statistics.nodes, "node")
    text = f"{nodes} in {wording.count(statistics.episodes, 'episode')}"
    if statistics.errors:
        text += f"; {statistics.errors:,} ended with an error"

    passed = [
        f"{wording.shorten(name, 60)} passed {figures.passed:,} of {figures.scored:,}"
        for name, figures in statistics.by_evaluator.items()
    ]
    # Without an evaluator no node was meant to be judged, so none lacks a judgement.
    if not passed:
        return text

    lacking = [
        f"{number:,} {name.replace('_', ' ')}"
        for name, number in count_nodes(statistics).items()
        if number and name != "judged"
    ]

    return ". ".join(filter(None, (text, ", ".join(passed), ", ".join(lacking))))


def count_nodes(statistics: NodeStatistics) -> Mapping[str, int]:
    """Return the number of nodes with a score, without one, not judged yet, and without an
    output."""
    names = ("judged", "failed", "skipped", "without_output")
    return read_fields(statistics, *names)


def _blocks(result: NodesResult, most: int | None, states: bool) -> Iterator[Block]:
    if result.shown:
        yield Tree("Episodes", list(_episodes(result.shown, states)), most)
    if len(result.shown) < result.statistics.nodes:
        number = wording.count(result.statistics.nodes, "node")
        note = f"Shown: the first {len(result.shown):,} of {number}; the figures cover all."
        yield Note(f"{note} More: nodes show TRACE --limit, or runs export RUN FILE.", "warning")
    if result.statistics.by_evaluator:
        yield _by_evaluator(result.statistics)
    if reasons := result.statistics.reasons:
        rows = [(wording.shorten(reason, 200), number) for reason, number in reasons.items()]
        yield Table("Without a score", ("reason", Column("times", "count")), rows)
    if result.unused:
        columns = ("not used", "why")
        yield Table("Left out of the trace", columns, [(u.place, u.reason) for u in result.unused])


def _by_evaluator(node_statistics: NodeStatistics) -> Table:
    statistics = node_statistics.by_evaluator
    columns = ["", Column("mean", "score", 3), Column("passed", "count"), Column("scored", "count")]
    names = ["mean", "passed", "scored"]

    for name, title in (("failed", "no score"), ("skipped", "not asked")):
        if any(getattr(evaluator, name) for evaluator in statistics.values()):
            names.append(name)
            columns.append(Column(title, "count"))

    rows = [
        (wording.shorten(name, 60), *(getattr(evaluator, figure) for figure in names))
        for name, evaluator in statistics.items()
    ]

    return Table("Evaluators", columns, rows)


def _episodes(nodes: Iterable[JudgedNode], states: bool) -> Iterator[Branch]:
    """Yield each episode as a tree of its nested nodes, with the results of each node. An episode
    has its request as its title, which tells it from others better than its id."""
    for episode, group in groupby(nodes, lambda node: node.episode):
        steps = list(group)
        outermost = min(steps, key=lambda step: (len(step.item.path), step.item.timestamp))
        request = wording.shorten(_request(outermost.item), REQUEST_SHOWN)
        start = min(step.item.timestamp for step in steps)
        end = max(step.item.timestamp + (step.item.seconds or 0.0) for step in steps)
        length = end - start if start else 0.0  # without a recorded start no bar says when
        note = wording.count(len(steps), "node") + (f", {_format_time(length)}" if length else "")
        note = f"episode {wording.shorten(episode, ID_SHOWN)}, {note}"
        nested = _nest(steps, (start, length), states)
        yield Branch(request or outermost.name, note, "strong", nested)


def _request(item: HistoryItem) -> str:
    """Return what the user asked for in the input of a node; empty if it cannot be told."""
    state = as_object(item.input_state)
    messages = [as_object(message) for message in as_array(state.get("messages"))]
    texts = [message.get("content") for message in messages if message.get("role") == "user"]
    texts += [item.input_state, *map(state.get, REQUESTS)]

    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def _nest(nodes: Iterable[JudgedNode], time: tuple[float, float], states: bool) -> list[Branch]:
    """Return the nodes as a tree: each node is below the node that it ran in. Nodes are sorted by
    their start. `time`: the start (Unix time) and the length in seconds of their episode."""
    roots: list[tuple[JudgedNode, Branch]] = []
    for node in nodes:
        inner: list[tuple[JudgedNode, Branch]] = []
        other_branches: list[tuple[JudgedNode, Branch]] = []
        for root in roots:
            (inner if _ran_in(root[0].item, node.item) else other_branches).append(root)
        children = [replace(branch, label=step.item.node) for step, branch in _by_start(inner)]
        grown = _grow(node, time, states)
        roots = [*other_branches, (node, replace(grown, children=[*grown.children, *children]))]

    return [branch for _, branch in _by_start(roots)]


def _by_start(nodes: list[tuple[JudgedNode, Branch]]) -> list[tuple[JudgedNode, Branch]]:
    return sorted(nodes, key=lambda pair: pair[0].item.timestamp)


def _ran_in(item: HistoryItem, outer: HistoryItem) -> bool:
    if parent := item.ids.get("parent_id"):
        return parent == outer.ids.get("span_id")
    around = (*outer.path, outer.node)
    return item.path[: len(around)] == around


def _grow(node: JudgedNode, time: tuple[float, float], states: bool) -> Branch:
    """Return a node as a branch, with the reasons of what failed below it."""
    item = node.item
    start, length = time
    span = None
    if item.seconds is not None and length:
        span = (item.timestamp - start) / length, item.seconds / length
    children = [
        Branch(f"{name}: {wording.shorten(_as_text(state), STATE_SHOWN)}", tone="dim")
        for name, state in (("in", item.input_state), ("out", item.output_state))
        if states
    ]
    if item.error is not None:
        label = "waits" if item.interrupted else "failed"
        colour: Tone = "warning" if item.interrupted else "bad"
        children.append(Branch(f"{label}: {item.error}", tone=colour))

    facts = {"Node": f"{node.id}, superstep {node.step + 1}"}
    scores: dict[str, float] = {}
    for name, outcome in item.evaluation_results.items():
        text, tone = _judged(outcome)
        if isinstance(outcome, EvaluationResult):
            scores[name] = outcome.score
        if tone in ("bad", "warning"):
            children.append(Branch(name, text, tone))
        else:
            facts[name] = text

    name = node.name or "(no name)"
    tone = "bad" if any(child.tone == "bad" for child in children) else ""

    return Branch(name, _about(item), tone, children, scores, span, facts, [_states(item)])


def _about(item: HistoryItem) -> str:
    parts: list[str] = []
    if item.instruction:
        parts.append(item.instruction.name)
    if item.seconds is not None:
        parts.append(_format_time(item.seconds))
    if item.tokens is not None:
        parts.append(wording.count(item.tokens, "token"))

    return ", ".join(parts)


def _format_time(seconds: float) -> str:
    """Format seconds; less than a tenth as milliseconds, since most steps in code take no more."""
    return wording.duration(seconds) if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def _judged(outcome: EvaluationResult | Failure) -> tuple[str, Tone]:
    """Describe the outcome of an evaluator, and return its colour; none if it was not asked."""
    if isinstance(outcome, Failure):
        failed = outcome.kind == "failed"
        return (
            f"{'no score' if failed else 'not asked'}: {outcome.reason}",
            "warning" if failed else "",
        )
    verdict = "passed" if outcome.passed else "not passed"
    grade = f"{wording.number(outcome.score)}, {verdict}"
    text = ": ".join(filter(None, (grade, outcome.feedback)))

    return text, "good" if outcome.passed else "bad"


def _states(item: HistoryItem) -> Texts:
    """Return the input and the output of a node in full."""
    texts = [("Input", _clip(item.input_state)), ("Output", _clip(item.output_state))]
    if item.error is not None:
        texts.append(("Waits for" if item.interrupted else "Error", item.error))
    return Texts("", texts)


def _as_text(state: Any, indent: int | None = None) -> str:
    if isinstance(state, str):
        return state
    return json.dumps(state, ensure_ascii=False, indent=indent, default=str)


def _clip(state: Any) -> str:
    return wording.clip(_as_text(state, 1), WHOLE_STATE)


def data(spec: BaseModel, result: NodesResult) -> Mapping[str, Any]:
    """Return the figures as JSON-ready data."""
    statistics = result.statistics
    return {
        "parameters": spec.model_dump(mode="json"),
        **read_fields(statistics, "episodes", "nodes", "errors"),
        **count_nodes(statistics),
        "reasons": statistics.reasons,
        "evaluators": {
            name: {"mean": figures.mean, **asdict(figures)}
            for name, figures in statistics.by_evaluator.items()
        },
        "unused": list(map(asdict, result.unused)),
    }
