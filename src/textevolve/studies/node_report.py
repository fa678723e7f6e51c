"""What is told of judged nodes: figures by evaluator, the episodes as a tree, and for a page each
node in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.statistics import NodeStatistics
from textevolve.report import wording
from textevolve.report.blocks import (
    Block,
    Branch,
    Column,
    Note,
    Report,
    Section,
    Table,
    Texts,
    Tone,
    Tree,
)
from textevolve.studies.node_records import JudgedNode, Record, UnusedLine

MOST_NODES = 1000
"""So many nodes, the first, are shown in full."""

TREE_NODES = 50
STATE_SHOWN = 120
FEEDBACK_SHOWN = 140
WHOLE_STATE = 4000


@dataclass(frozen=True, slots=True)
class NodesResult:
    """`statistics` of all nodes; `shown`: the first of them, whole; `unused`: what of the trace was
    no node."""

    statistics: NodeStatistics
    shown: Sequence[JudgedNode]
    unused: Sequence[UnusedLine]


def summarise(records: Iterable[Record], most: int) -> NodesResult:
    statistics, shown, unused = NodeStatistics(), list[JudgedNode](), list[UnusedLine]()
    for record in records:
        if isinstance(record, UnusedLine):
            unused.append(record)
            continue
        statistics.add(record.episode, record.item)
        if len(shown) < most:
            shown.append(record)
    return NodesResult(statistics, shown, unused)


def report(found: NodesResult, *, most: int, states: bool) -> Report:
    """`most`: nodes that the tree has; `states`: with the beginning of inputs and outputs."""
    return Report("Nodes of an agent", _sentence(found.statistics), _blocks(found, most, states))


def _sentence(found: NodeStatistics) -> str:
    said = f"{wording.count(found.nodes, 'node')} in "
    said += wording.count(found.episodes, "episode")
    said = f"{said}; {found.errors:,} failed themselves" if found.errors else said
    if not found.by_evaluator:
        return said
    counts = (f"{number:,} {name.replace('_', ' ')}" for name, number in count_nodes(found).items())
    return f"{said}. Nodes: {', '.join(counts)}"


def count_nodes(found: NodeStatistics) -> Mapping[str, int]:
    """How many nodes have a score, lack one, were not asked about, and had no output."""
    names = ("judged", "failed", "skipped", "without_output")
    return {name: getattr(found, name) for name in names}


def _blocks(found: NodesResult, most: int, states: bool) -> Iterator[Block]:
    if found.statistics.by_evaluator:
        yield _by_evaluator(found.statistics)
    if reasons := found.statistics.reasons:
        rows = [(wording.shorten(reason, 200), number) for reason, number in reasons.items()]
        yield Table("Without a score", (Column("reason"), Column("times", "count")), rows)
    if found.unused:
        columns = (Column("not used"), Column("why"))
        yield Table("Left out of the trace", columns, [(u.place, u.reason) for u in found.unused])
    yield from _tree(found, most, states)
    if len(found.shown) < found.statistics.nodes:
        number = wording.count(found.statistics.nodes, "node")
        said = f"The first {wording.count(len(found.shown), 'node')} of {number} are shown in full."
        yield Note(f"{said} The figures are of all.", "warning")
    for node in found.shown:
        yield _in_full(node)


def _by_evaluator(found: NodeStatistics) -> Table:
    statistics = found.by_evaluator
    columns = [Column(""), Column("mean", "score", 3), Column("passed", "count")]
    columns.append(Column("scored", "count"))
    more = {"failed": "no score", "skipped": "not asked"}
    told = [name for name in more if any(getattr(one, name) for one in statistics.values())]
    names = ("mean", "passed", "scored", *told)
    rows = [
        (wording.shorten(name, 60), *(getattr(one, figure) for figure in names))
        for name, one in statistics.items()
    ]
    return Table("Evaluators", [*columns, *(Column(more[n], "count") for n in told)], rows)


def _tree(found: NodesResult, most: int, states: bool) -> Iterator[Block]:
    """Episodes, in each its nodes as they ran in one another, below each what was said of it."""
    roots = [
        Branch(f"episode {episode}", tone="strong", children=_nest(nodes, states))
        for episode, nodes in groupby(found.shown[:most], lambda node: node.episode)
    ]
    if roots:
        yield Tree("Episodes", roots)
    if left := found.statistics.nodes - min(most, len(found.shown)):
        said = wording.count(left, "more node")
        yield Note(f"{said}: see nodes show TRACE --limit, or runs export RUN FILE", "dim")


def _nest(nodes: Iterable[JudgedNode], states: bool) -> list[Branch]:
    """Nest nodes in those that they ran in, which ended after them; by their beginning."""
    roots: list[tuple[JudgedNode, Branch]] = []
    for node in nodes:
        inner = [(one, branch) for one, branch in roots if _ran_in(one.item, node.item)]
        grown = _grow(node, states)
        children = [replace(branch, label=one.item.node) for one, branch in _by_start(inner)]
        roots = [root for root in roots if root not in inner]
        roots.append((node, replace(grown, children=[*grown.children, *children])))
    return [branch for _, branch in _by_start(roots)]


def _by_start(nodes: list[tuple[JudgedNode, Branch]]) -> list[tuple[JudgedNode, Branch]]:
    return sorted(nodes, key=lambda pair: pair[0].item.timestamp)


def _ran_in(item: HistoryItem, outer: HistoryItem) -> bool:
    if parent := item.ids.get("parent_id"):
        return parent == outer.ids.get("span_id")
    around = (*outer.path, outer.node)
    return item.path[: len(around)] == around


def _grow(node: JudgedNode, states: bool) -> Branch:
    item = node.item
    children = [
        Branch(f"{name}: {wording.shorten(_as_text(state), STATE_SHOWN)}", tone="dim")
        for name, state in (("in", item.input_state), ("out", item.output_state))
        if states
    ]
    if item.error is not None:
        said = "waits" if item.interrupted else "failed"
        tone: Tone = "warning" if item.interrupted else "bad"
        children.append(Branch(f"{said}: {item.error}", tone=tone))
    results = item.evaluation_results.items()
    children += [Branch(name, *_judged(outcome)) for name, outcome in results]
    about = ", ".join(filter(None, (_about(item), f"superstep {node.step + 1}")))
    return Branch(node.name or "(no name)", about, "strong", children)


def _about(item: HistoryItem) -> str:
    parts = [item.instruction.name] if item.instruction else []
    parts += [] if item.seconds is None else [wording.duration(item.seconds)]
    parts += [] if item.tokens is None else [wording.count(item.tokens, "token")]
    return ", ".join(parts)


def _judged(outcome: EvaluationResult | Failure) -> tuple[str, Tone]:
    """What an evaluator said, in one line."""
    if isinstance(outcome, Failure):
        return f"{_grade(outcome)}: {outcome.reason}", "warning"
    told = wording.shorten(outcome.feedback, FEEDBACK_SHOWN)
    said = _grade(outcome)
    return (f"{said}: {told}" if told else said), ("good" if outcome.passed else "bad")


def _grade(outcome: EvaluationResult | Failure) -> str:
    if isinstance(outcome, Failure):
        return "no score" if outcome.kind == "failed" else "not asked"
    return f"{_score(outcome)}, {'passed' if outcome.passed else 'not passed'}"


def _score(outcome: EvaluationResult | Failure) -> str:
    return wording.number(None if isinstance(outcome, Failure) else outcome.score)


def _in_full(node: JudgedNode) -> Section:
    item = node.item
    facts = {"Node": about} if (about := _about(item)) else {}
    for name, one in item.evaluation_results.items():
        told = one.reason if isinstance(one, Failure) else one.feedback
        facts[name] = ": ".join(part for part in (_grade(one), told) if part)
    texts = [("Input", _clip(item.input_state)), ("Output", _clip(item.output_state))]
    if item.error is not None:
        texts.append(("Waits for" if item.interrupted else "Error", item.error))
    scores = [f"{name} {_score(one)}" for name, one in item.evaluation_results.items()]
    title = wording.shorten(f"{node.id}  {', '.join(scores)}", 200)
    return Section(title, [Texts("", texts)], facts, folded=True)


def _as_text(state: Any, indent: int | None = None) -> str:
    if isinstance(state, str):
        return state
    return json.dumps(state, ensure_ascii=False, indent=indent, default=str)


def _clip(state: Any) -> str:
    return wording.clip(_as_text(state, 1), WHOLE_STATE)


def data(found: NodesResult) -> Mapping[str, Any]:
    """The figures, JSON-ready."""
    statistics = found.statistics
    return {
        "episodes": statistics.episodes,
        "nodes": statistics.nodes,
        "errors": statistics.errors,
        **count_nodes(statistics),
        "reasons": statistics.reasons,
        "evaluators": {
            name: {"mean": one.mean, **asdict(one)} for name, one in statistics.by_evaluator.items()
        },
        "unused": [asdict(one) for one in found.unused],
    }
