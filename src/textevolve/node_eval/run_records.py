"""The records of an agent's runs: the run of each node, the growing supersteps of each run, and a
node from its beginning until its evaluators have ended. `monitor.py` decides which evaluators judge
a node."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator, Hashable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import Any, Generic, TypeVar, cast

from textevolve.evaluation import EvaluationResult, Failure, empty_default, select_scored
from textevolve.node_eval.evaluators import NodeEvaluator
from textevolve.node_eval.history import History, HistoryItem, copy_item


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The run of an agent to which a node belongs. `thread_id`: the conversation, as LangGraph
    calls it; None without one."""

    id: str
    thread_id: str | None = None


Superstep = tuple[HistoryItem, ...]
"""The nodes that ran concurrently in one step of a run."""

DEFAULT_RUN = NodeRun("1")
"""The run of nodes that belong to no other run."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class OpenBlock(Generic[T]):
    """A `with` block of a monitor, such as `Monitor.run()`. `outer`: the block around it."""

    value: T
    outer: OpenBlock[T] | None
    is_open: bool = True


_innermost: ContextVar[Mapping[object, OpenBlock[Any]]] = ContextVar(
    "blocks", default=MappingProxyType({})
)
"""The innermost block of each `Blocks` in this context. It may have ended in another context."""


class Blocks(Generic[T]):
    """The `with` blocks of one kind of a monitor, each with a value.

    A block covers its context (a task or thread, and those started from it), like a context
    variable. In a generator it also covers all later steps: whoever makes them may do so in
    another context, as web frameworks do with the words of a streamed answer. A block may end in
    any context.
    """

    def __init__(self) -> None:
        self._in_generators: dict[FrameType, list[OpenBlock[T]]] = {}

    @contextmanager
    def open(self, value: T) -> Generator[None]:
        """Open a block of the code that runs the `with` statement."""
        frame = _find_opener()
        block = OpenBlock(value, self._find_block())
        _innermost.set({**_innermost.get(), self: block})
        pauses = frame is not None and frame.f_code.co_flags & _PAUSES
        if frame is not None and pauses:
            self._in_generators.setdefault(frame, []).append(block)

        try:
            yield
        finally:
            block.is_open = False
            blocks = dict(_innermost.get())
            if blocks.get(self) is block:
                del blocks[self]
                _innermost.set(blocks if block.outer is None else {**blocks, self: block.outer})
            if frame is not None and pauses:
                self._in_generators[frame].remove(block)
                if not self._in_generators[frame]:
                    del self._in_generators[frame]

    def find(self) -> T | None:
        """Return the value of the innermost block around the code that runs; None outside of
        all."""
        block = self._find_block()
        return None if block is None else block.value

    def _find_block(self) -> OpenBlock[T] | None:
        block = _skip_ended(_innermost.get().get(self))
        if not self._in_generators:
            return block

        frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        while frame is not None and frame not in self._in_generators:
            frame = frame.f_back
        if frame is None:
            return block

        # The block of the context counts if it was opened by what the generator calls.
        nearest = self._in_generators[frame][-1]
        around = block
        while around is not None and around is not nearest:
            around = around.outer

        return nearest if around is None else block


_PAUSES = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def _find_opener() -> FrameType | None:
    """Return the frame of the code whose `with` statement opens a block. Functions that are made to
    context managers by `contextlib`, such as ours, only pass the block on."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (_is_contextlib(frame) or _is_contextlib(frame.f_back)):
        frame = frame.f_back

    return frame


def _is_contextlib(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__") == "contextlib"


def _skip_ended(block: OpenBlock[T] | None) -> OpenBlock[T] | None:
    while block is not None and not block.is_open:
        block = block.outer

    return block


@dataclass(slots=True, eq=False)
class EvaluationJob:
    """A node that has ended and is to be evaluated. `item`: the node; it is the last one of the
    first `count` supersteps in `entries`, the supersteps of its run. `missing`: the evaluators
    without an outcome so far, by their `id()`, since their names may change."""

    item: HistoryItem
    entries: list[Superstep]
    count: int
    missing: dict[int, NodeEvaluator] = empty_default(dict)

    @property
    def is_awaited(self) -> bool:
        """Tell whether an outcome of a quick evaluator, not one in the background, is missing."""
        return not all(
            getattr(evaluator, "background", False) for evaluator in list(self.missing.values())
        )

    def see(self) -> History:
        """Return the history as it was when the node had just ended. The node is a copy, so that an
        evaluator cannot change the record."""
        steps = cast("list[list[HistoryItem]]", self.entries[: self.count])
        steps[-1] = [*steps[-1][:-1], copy_item(self.item)]
        return History(steps)


@dataclass(slots=True, eq=False)
class OpenNode:
    """A node that has begun. `draft`: the node so far. `step`: nodes of a run with the same value
    share a superstep. `began`: its start on the monotonic clock. `ignored`: whether it is not
    recorded, because an evaluator runs it, or because its graph is only tracked. `item`: the
    recorded node, None until it ends. `job`: its evaluation, None until it ends or if it is not
    evaluated."""

    draft: HistoryItem
    run: NodeRun
    step: Hashable | None
    ignored: bool
    began: float
    item: HistoryItem | None = None
    job: EvaluationJob | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """The evaluators' results for a node. `node`: its name. `results`: the results so far by the
    evaluator's name. `error`: the error of the node itself; None if it ended well. `run_id`: the
    run to which it belongs."""

    node: str
    results: Mapping[str, EvaluationResult | Failure]
    error: str | None = None
    run_id: str = ""

    @property
    def passed(self) -> bool | None:
        """Return whether every score passed; None if there are no scores."""
        scored = [result.passed for result in select_scored(self.results.values())]
        return all(scored) if scored else None

    @property
    def text(self) -> str:
        """Return the error of a failed node, then a line for each evaluator that it did not pass,
        as feedback for the next attempt; empty without either. Evaluators that gave no score are
        left out."""
        lines = [f"{self.node}: {self.error}"] if self.error else []
        return "\n".join([*lines, *list_failed(self.results)])


def list_failed(results: Mapping[str, EvaluationResult | Failure]) -> list[str]:
    """List a line for each evaluator that was not passed, with its feedback."""
    return [
        f"{name}: {result.feedback or 'not passed'}"
        for name, result in results.items()
        if isinstance(result, EvaluationResult) and not result.passed
    ]


class NodeRunRecord:
    """The supersteps of one run. A superstep is placed by the end of its last node, so that a graph
    that contains other graphs comes after them, and the node that ended last is the last one."""

    def __init__(self, run: NodeRun = DEFAULT_RUN) -> None:
        self.run = run
        self.entries: list[Superstep] = []
        self.last: dict[str, EvaluationJob] = {}
        self._steps: dict[Hashable, Superstep] = {}

    def place(self, item: HistoryItem, step: Hashable | None) -> EvaluationJob:
        """Add a node that has just ended to its superstep, or to a new one if `step` is None.
        Existing supersteps are replaced and not changed, since evaluators of earlier nodes read
        them."""
        superstep = None if step is None else self._steps.get(step)
        grown = (*(superstep or ()), item)
        if step is not None:
            self._steps[step] = grown
        if superstep is None:
            self.entries.append(grown)
        else:
            self.entries = [*(entry for entry in self.entries if entry is not superstep), grown]

        job = self.last[item.node] = EvaluationJob(item, self.entries, len(self.entries))

        return job


class NodeRecords:
    """All runs that a monitor has recorded. The caller must hold the monitor's lock to change
    them."""

    def __init__(self) -> None:
        self.by_id: dict[str, NodeRunRecord] = {}
        self._order = 0

    def place(self, item: HistoryItem, run: NodeRun, step: Hashable | None) -> EvaluationJob:
        self._order += 1
        item.order = self._order
        record = self.by_id.get(run.id)
        if record is None:
            record = self.by_id[run.id] = NodeRunRecord(run)
        return record.place(item, step)

    def find_history(self, run_id: str | None = None) -> History:
        """Return the supersteps of one run, or of all in the order in which they ended."""
        steps: list[list[HistoryItem]] = []
        for record in self.by_id.values():
            if run_id in (None, record.run.id):
                steps += map(list, record.entries)

        return History(sorted(steps, key=lambda step: step[-1].order))

    def find_last(self, node: str, run_id: str | None) -> EvaluationJob | None:
        """Return the node of this name that ended last, in one run or in all; None without one."""
        records = list(self.by_id.values())
        jobs = [r.last[node] for r in records if node in r.last and run_id in (None, r.run.id)]
        return max(jobs, key=lambda job: job.item.order, default=None)

    def find_thread(self, thread_id: str) -> NodeRun | None:
        """Return the last run of a conversation."""
        records = reversed(self.by_id.values())
        return next((record.run for record in records if record.run.thread_id == thread_id), None)

    def take(self, run_id: str | None) -> History:
        """Remove the history of one run, or of all, and return it."""
        history = self.find_history(run_id)
        if run_id is None:
            self.by_id = {}
        else:
            self.by_id.pop(run_id, None)

        return history
