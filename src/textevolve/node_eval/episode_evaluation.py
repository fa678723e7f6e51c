"""Run evaluators on recorded runs of agents: each evaluator gets a node with the history up to its
end.

No agent waits here, so slow evaluators run as soon as a node is read. `monitor.py` watches agents
while they run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from textevolve.engine.local import gather_bounded, stream
from textevolve.errors import FatalModelError, StoreError
from textevolve.evaluation import Failure
from textevolve.node_eval.episodes import Episode
from textevolve.node_eval.evaluators import (
    NodeEvaluator,
    NodeOutcome,
    as_failure,
    check_outcome,
    skip_broken,
)
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.run_records import EvaluationJob, NodeRunRecord
from textevolve.node_eval.snapshots import WHOLE
from textevolve.spans import current_span


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node with its place in a recording. `episode`: the id of its episode, a recorded run.
    `step`: the number of its superstep, from 0. `place`: its number among the episode's nodes, from
    1."""

    episode: str
    step: int
    place: int
    item: HistoryItem

    @property
    def name(self) -> str:
        """Return the node's name after the names of the graphs around it, as `outer/inner`."""
        return "/".join((*self.item.path, self.item.node))

    @property
    def id(self) -> str:
        """Return an id that is unique among the nodes of all episodes."""
        return f"{self.episode}:{self.place} {self.name}"


def place_nodes(episodes: Iterable[Episode]) -> Iterator[PlacedNode]:
    for episode in episodes:
        for place, (step, item) in enumerate(episode.nodes, 1):
            yield PlacedNode(episode.id, step, place, item)


async def evaluate_episodes(
    episodes: Iterable[Episode], evaluators: Sequence[NodeEvaluator], concurrency: int
) -> AsyncGenerator[PlacedNode]:
    """Evaluate all nodes in order, at most `concurrency` at a time, and yield each with its
    results. Recorded results are kept, except for those of evaluators with the same name.

    An evaluator sees the recorded results, not the new ones of other evaluators. If it raises, a
    failure is recorded. Nodes that failed or were interrupted are skipped, except by evaluators
    with `whole_run`, and at tool calls by those with `failed_calls`; in a live run all evaluators
    skip them.

    Raises:
        FatalModelError: no call to a model can succeed. StoreError: answers cannot be stored.
    """
    gate = asyncio.Semaphore(concurrency)
    judge = partial(_judge_node, evaluators=evaluators, gate=gate)
    nodes = stream(_replay_all(episodes), judge, max(concurrency, NODES_IN_FLIGHT))
    async with aclosing(nodes) as found:
        async for node in found:
            yield node


NODES_IN_FLIGHT = 16
"""The least number of nodes that are read ahead for concurrent evaluation."""


async def _judge_node(
    found: tuple[PlacedNode, EvaluationJob, bool],
    evaluators: Sequence[NodeEvaluator],
    gate: asyncio.Semaphore,
) -> PlacedNode:
    node, job, is_last = found
    item = node.item
    wanted = [
        each
        for each in evaluators
        if each.judges(item.instruction) and (is_last or not each.whole_run)
    ]

    async def judge(evaluator: NodeEvaluator) -> NodeOutcome:
        is_call = evaluator.failed_calls and item.instruction is Instruction.TOOL_CALL
        if not (evaluator.whole_run or is_call) and (broken := skip_broken(item)):
            return broken
        async with gate:
            return await judge_node(job.see(), evaluator)

    facts = {
        "instruction": item.instruction and item.instruction.name,
        "thread": item.thread_id,
        "input": item.input_state,
    }
    with current_span.get().open("node", f"node {item.node}", facts) as here:
        here.note(output=item.output_state, reason=item.error)
        outcomes = await gather_bounded([partial(judge, one) for one in wanted], len(wanted) or 1)
        results = dict(zip((one.name for one in wanted), outcomes, strict=True))
        for name, outcome in results.items():
            here.judge(name, outcome)
    results = {**item.evaluation_results, **results}
    return replace(node, item=replace(item, evaluation_results=results))


def _replay_all(episodes: Iterable[Episode]) -> Iterator[tuple[PlacedNode, EvaluationJob, bool]]:
    """Replay each episode. Yield each node with its job, and whether it is the last node of its
    episode: the one that ended last."""
    for episode in episodes:
        if any(item.order == 0 for item in episode.history.items):  # a history made by hand
            for order, item in enumerate(episode.history.items, 1):
                item.order = order
        nodes, record = list(place_nodes([episode])), NodeRunRecord()
        jobs: dict[int, EvaluationJob] = {}
        ended = sorted(nodes, key=lambda node: node.item.order)
        for node in ended:
            jobs[node.place] = record.place(node.item, node.step)
        for node in nodes:
            yield node, jobs[node.place], node is ended[-1]


async def judge_node(history: History, evaluator: NodeEvaluator) -> NodeOutcome:
    """Return an evaluator's result for `history.entries[-1][-1]`, or a failure with the reason."""
    limit: asyncio.Timeout | None = None
    try:
        made: Any = evaluator.evaluate(history)
        if inspect.isawaitable(made):
            async with asyncio.timeout(getattr(evaluator, "timeout", None)) as limit:
                made = await made
    except (FatalModelError, StoreError):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  an evaluator of the user's
        if limit is not None and limit.expired():
            return Failure("failed", f"no answer within {evaluator.timeout:g} s")
        return as_failure(error)
    return check_outcome(made, WHOLE)
