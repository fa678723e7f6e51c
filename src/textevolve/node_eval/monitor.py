"""Watching an agent: each node that it runs becomes an item of a history, and is judged beside it.

    monitor = Monitor([ThresholdEvaluator("sure", "confidence", 0.7)])

    @monitor.node(GENERATE)
    def answer(state): ...

Nothing here changes what a node gets, returns or raises. Evaluators run elsewhere: `background.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.background import Background, describe_error, is_slow
from textevolve.node_eval.evaluators import NodeEvaluator, check_evaluator, read_targets
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.lanes import Job, evaluating
from textevolve.node_eval.snapshots import SnapshotLimits, take_snapshot

if TYPE_CHECKING:
    from textevolve.node_eval.langgraph import LangGraphHandler

Graph = TypeVar("Graph")
log = logging.getLogger("textevolve.node_eval")


@dataclass(slots=True, eq=False)
class OpenNode:
    """A node that has begun. `item` is there once it has ended."""

    name: str
    instruction: Instruction | None
    input_state: Any
    step: Hashable | None
    path: tuple[str, ...]
    timestamp: float
    began: float
    ignored: bool = False
    item: HistoryItem | None = None


class Monitor:
    """The history of an agent's nodes, and the evaluators that judge them.

    `limits`: how much of each state is kept. `queue_size`: how many nodes may wait for quick
    evaluators, and how many evaluations in the background may be unfinished; what is more is
    dropped and counted, or with `when_full="wait"` the agent waits. `timeout`: seconds for one
    evaluation, where the evaluator names none. `side_by_side`: how many evaluations run in the
    background at a time.

    Raises InputError for an evaluator or a value that cannot be used.
    """

    def __init__(
        self,
        evaluators: Iterable[NodeEvaluator] = (),
        *,
        limits: SnapshotLimits | None = None,
        queue_size: int = 1000,
        when_full: Literal["drop", "wait"] = "drop",
        timeout: float = 30.0,
        side_by_side: int = 8,
    ) -> None:
        self.history = History()
        self.limits = limits = limits or SnapshotLimits()
        self._lock = threading.Lock()
        self._steps: dict[Hashable, int] = {}
        self._last: dict[str, Job] = {}
        self._order = 0
        self._evaluators: tuple[NodeEvaluator, ...] = ()
        self._plans: dict[Instruction | None, tuple[tuple[NodeEvaluator, ...], ...]] = {}
        self._background = Background(
            limits=limits,
            queue_size=queue_size,
            when_full=when_full,
            timeout=timeout,
            side_by_side=side_by_side,
        )
        for evaluator in evaluators:
            self.add(evaluator)

    def add(self, evaluator: NodeEvaluator) -> None:
        """Judge the nodes that end from now on with this one, too.

        Raises:
            InputError: it cannot be used, or another has its name.
        """
        check_evaluator(evaluator)
        if any(one.name == evaluator.name for one in self._evaluators):
            raise InputError(f"two evaluators have the name '{evaluator.name}'; names must differ")
        self._evaluators = (*self._evaluators, evaluator)
        self._background.set_shortest(self._evaluators)
        self._plans = {}

    def attach(self, graph: Graph, instructions: Mapping[str, Instruction | str]) -> Graph:
        """A copy of a compiled LangGraph graph of which every run is watched; the graph itself
        stays as it is. `instructions`: the type of each node, by its name.

        Raises:
            InputError: the graph cannot be watched, or has no such node.
        """
        from textevolve.node_eval.langgraph import attach

        return attach(self, cast(Any, graph), instructions)

    def langgraph(self, instructions: Mapping[str, Instruction | str]) -> LangGraphHandler:
        """What watches a LangGraph run when it is given to it: `config={"callbacks": [handler]}`.

        Raises:
            InputError: an unknown instruction type.
        """
        from textevolve.node_eval.langgraph import LangGraphHandler

        return LangGraphHandler(self, instructions)

    def begin(
        self,
        name: str,
        instruction: Instruction | None,
        input_state: Any,
        *,
        step: Hashable | None = None,
        path: tuple[str, ...] = (),
        timestamp: float | None = None,
    ) -> OpenNode:
        """A node begins. Nodes whose `step` is equal, and not None, stand in one superstep. Raises
        nothing."""
        return OpenNode(
            name=name,
            instruction=instruction,
            input_state=take_snapshot(input_state, self.limits),
            step=step,
            path=path,
            timestamp=time() if timestamp is None else timestamp,
            began=perf_counter(),
            ignored=evaluating.get(),
        )

    def end(self, node: OpenNode, output_state: Any, *, tokens: int | None = None) -> HistoryItem:
        """The node ended well. Raises nothing."""
        return self._close(node, output_state, tokens=tokens)

    def fail(
        self, node: OpenNode, error: BaseException, *, tokens: int | None = None
    ) -> HistoryItem:
        """The node raised. Raises nothing."""
        return self._close(node, None, tokens=tokens, error=describe_error(error))

    def interrupt(self, node: OpenNode, reason: Any, *, tokens: int | None = None) -> HistoryItem:
        """The node waits for something from outside, and will be run again. Raises nothing."""
        said = str(take_snapshot(reason, self.limits))[:300]
        return self._close(node, None, tokens=tokens, error=said, interrupted=True)

    def _close(
        self,
        node: OpenNode,
        output_state: Any,
        *,
        tokens: int | None = None,
        error: str | None = None,
        interrupted: bool = False,
    ) -> HistoryItem:
        if node.item is not None:
            return node.item
        seconds = perf_counter() - node.began
        item = node.item = HistoryItem(
            node.timestamp,
            node.instruction,
            node.input_state,
            take_snapshot(output_state, self.limits),
            node=node.name,
            path=node.path,
            seconds=seconds,
            tokens=tokens,
            error=error,
            interrupted=interrupted,
        )
        if node.ignored:
            return item
        with self._lock:
            job = self._place(item, node.step)
        quick, slow = self._plans.get(node.instruction) or self._plan(node.instruction)
        if error is not None:
            why = Failure(
                "skipped", "the node was interrupted" if interrupted else "the node failed"
            )
            item.evaluation_results = {one.name: why for one in (*quick, *slow)}
        elif quick or slow:
            self._background.put(job, quick, slow)
        return item

    def _place(self, item: HistoryItem, step: Hashable | None) -> Job:
        """With the lock held: into its superstep, which is there from its first node's end on."""
        self._order += 1
        item.order = self._order
        entries = self.history.entries
        own = None if step is None else self._steps.get(step)
        if own is None:
            own = len(entries)
            entries.append([item])
            if step is not None:
                self._steps[step] = own
        else:
            entries[own].append(item)
        job = self._last[item.node] = Job(item, entries, own, len(entries))
        return job

    def _plan(self, instruction: Instruction | None) -> tuple[tuple[NodeEvaluator, ...], ...]:
        """The quick and the slow ones that judge nodes of this type."""
        fitting = [
            one
            for one in self._evaluators
            if (targets := read_targets(one)) is None or instruction in targets
        ]
        plan = (
            tuple(one for one in fitting if not is_slow(one)),
            tuple(one for one in fitting if is_slow(one)),
        )
        self._plans[instruction] = plan
        return plan

    @property
    def dropped(self) -> int:
        """How many evaluations were dropped because the queue was full."""
        return self._background.dropped

    @property
    def failed(self) -> int:
        """How many evaluations gave no usable outcome."""
        return self._background.failed

    @property
    def pending(self) -> int:
        """How many nodes still wait for the outcome of an evaluator."""
        return self._background.pending

    def last_feedback(self, node: str) -> dict[str, EvaluationResult | Failure]:
        """What evaluators said of the node of this name that ended last, by their names; empty
        where none has. Quick ones are waited for, those in the background are not: see `drain`."""
        job = self._last.get(node)
        if job is None:
            return {}
        self._background.wait(lambda: job.awaited == 0, None)
        return job.item.evaluation_results

    async def drain(self, timeout: float | None = None) -> bool:
        """Wait until every evaluation has its outcome; False where the seconds ended before."""
        return await self._background.wait_async(self._background.is_done, timeout)

    def drain_sync(self, timeout: float | None = None) -> bool:
        """As `drain`, for plain code."""
        return self._background.wait(self._background.is_done, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Drain, then end the threads. What ends later is recorded and not judged."""
        return self._background.close(timeout)
