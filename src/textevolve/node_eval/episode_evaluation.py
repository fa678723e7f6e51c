"""Evaluators over what was recorded: each node is judged as it stood when it had just run.

Nobody waits for the agent here, so whatever is asked of a model is asked at once. Watching an agent
while it runs is the business of `monitor.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from textevolve.engine.local import gather_bounded
from textevolve.errors import FatalModelError, StoreError
from textevolve.evaluation import Failure
from textevolve.events import Listener, StepFinished, silence
from textevolve.node_eval.episodes import Episode
from textevolve.node_eval.evaluators import (
    NodeEvaluator,
    Outcome,
    as_failure,
    check_outcome,
    read_targets,
    skip_broken,
)
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.node_lines import WHOLE
from textevolve.node_eval.run_records import RunRecord
from textevolve.node_eval.workers import Job

IN_FLIGHT = 256

JUDGED = "node judged"
"""The step that ends with each outcome of an evaluator."""


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """What one evaluator said of one node."""

    node: str
    evaluator: str
    outcome: Outcome

    @property
    def failure(self) -> Failure | None:
        return self.outcome if isinstance(self.outcome, Failure) else None


async def evaluate_episode(
    episode: Episode,
    evaluators: Sequence[NodeEvaluator],
    *,
    gate: asyncio.Semaphore | None = None,
    listener: Listener = silence,
) -> Episode:
    """The same episode, its nodes with what the evaluators say of them; outcomes that were recorded
    stay, but for those of evaluators of the same name. `gate` bounds what is asked at a time.

    An evaluator that raises is recorded as not scored. Of nodes that failed or were interrupted
    nobody is asked, as while an agent runs.

    Raises:
        FatalModelError: no call to a model can succeed. StoreError: answers cannot be kept.
    """
    targets = [(evaluator, read_targets(evaluator)) for evaluator in evaluators]
    if any(item.order == 0 for item in episode.history.items):  # a history made by hand
        for order, item in enumerate(episode.history.items, 1):
            item.order = order
    jobs = _replay(episode)
    bound: AbstractAsyncContextManager[Any] = gate or nullcontext()

    async def judge(item: HistoryItem, evaluator: NodeEvaluator) -> Outcome:
        outcome: Outcome | None = skip_broken(item)
        if outcome is None:
            async with bound:
                outcome = await judge_node(jobs[id(item)].see(copied=True), evaluator)
        listener(StepFinished(episode.id, JUDGED, NodeOutcome(item.node, evaluator.name, outcome)))
        return outcome

    pieces = [
        (item, evaluator)
        for item in episode.history.items
        for evaluator, wanted in targets
        if wanted is None or item.instruction in wanted
    ]
    outcomes = await gather_bounded([partial(judge, *piece) for piece in pieces], IN_FLIGHT)
    # Only now: an evaluator sees what was recorded, not what the others happen to have said.
    for (item, evaluator), outcome in zip(pieces, outcomes, strict=True):
        item.evaluation_results = {**item.evaluation_results, evaluator.name: outcome}
    return episode


def _replay(episode: Episode) -> dict[int, Job]:
    """By the node's `id()`, what there was when it had just ended, as while the agent ran."""
    record, jobs = RunRecord(), dict[int, Job]()
    for step, item in sorted(episode.nodes, key=lambda one: one[1].order):
        record.place(item, step)
        jobs[id(item)] = Job(item, record.entries, len(record.entries))
    return jobs


async def judge_node(history: History, evaluator: NodeEvaluator) -> Outcome:
    """What an evaluator says of `history.entries[-1][-1]`, or a failure that says why not."""
    limit: asyncio.Timeout | None = None
    try:
        made: Any = evaluator.evaluate(history)
        if inspect.isawaitable(made):
            async with asyncio.timeout(getattr(evaluator, "timeout", None)) as limit:
                made = await made
    except (FatalModelError, StoreError):
        raise
    except Exception as error:  # noqa: BLE001  an evaluator of the user's may raise anything
        if limit is not None and limit.expired():
            return Failure("failed", f"no answer within {evaluator.timeout:g} s")
        return as_failure(error)
    return check_outcome(made, WHOLE)
