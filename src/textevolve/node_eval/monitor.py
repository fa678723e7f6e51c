"""Watch an agent: each node that it runs is recorded in a history, and judged in the background.

    monitor = Monitor([ThresholdEvaluator("sure", "confidence", 0.7)])

    @monitor.node(GENERATE)
    def answer(state): ...

A monitor never changes what a node receives, returns or raises. `background.py` runs the
evaluators.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.node_eval.background import Background, Plan, close_first, evaluating, is_slow, log
from textevolve.node_eval.evaluators import (
    ERROR_KEPT,
    NodeEvaluator,
    check_evaluator,
    describe_exception,
    skip_broken,
)
from textevolve.node_eval.history import History, HistoryItem, Instruction, read_instruction
from textevolve.node_eval.run_records import (
    DEFAULT_RUN,
    Blocks,
    EvaluationJob,
    Feedback,
    NodeRecords,
    NodeRun,
    OpenNode,
)
from textevolve.node_eval.snapshots import MARK, PYDANTIC, SnapshotLimits, take_snapshot
from textevolve.wrapping import inner_function, kind_of, wrap_callable

if TYPE_CHECKING:
    from textevolve.node_eval.langgraph import LangGraphHandler


# Record plain Python code as nodes: `monitor.node(...)` returns a `NodeScope`, which is both a
# decorator and a context manager.
#
# The watched code behaves as before: it gets the same arguments, returns the same values and
# raises the same exceptions. `monitor.py` stores the nodes.

F = TypeVar("F", bound=Callable[..., Any])


class LiveNode:
    """A node while its `with` block runs. The block sets `output`, and `tokens` if they are
    known."""

    def __init__(self, monitor: Monitor, node: OpenNode) -> None:
        self.node = node
        self.output: Any = None
        self.tokens: int | None = None
        self._monitor = monitor
        self._values = 0

    @property
    def item(self) -> HistoryItem | None:
        """Return the node in the history; None until the block has ended."""
        return self.node.item

    def returned(self, value: Any) -> None:
        self.output = value

    def yielded(self, value: Any) -> None:
        """Add a value of a generator to the recorded output: the first values are kept, of the
        others only the number."""
        limits = self._monitor.limits
        values: list[Any] = self.output
        self._values += 1
        if self._values < limits.items:
            values.append(take_snapshot(value, limits))
        else:
            more = self._values + 1 - limits.items
            values[limits.items - 1 :] = [MARK.format(f"{more:,} more items")]

    def __enter__(self) -> LiveNode:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, GeneratorExit):  # whoever reads has had enough
            self._monitor.end(self.node, self.output, tokens=self.tokens)
        elif isinstance(error, CancelledError):  # which is nothing that it did wrong
            self._monitor.interrupt(self.node, "cancelled", tokens=self.tokens)
        else:
            self._monitor.fail(self.node, error, tokens=self.tokens)


@dataclass(frozen=True, slots=True)
class NodeScope:
    """A decorator of functions of every kind; also a context manager around a block of code."""

    _monitor: Monitor
    _instruction: Instruction | None
    _name: str | None
    _input_state: Any
    _live: list[LiveNode] = empty_default(list)

    def __call__(self, function: F) -> F:
        name = self._name or getattr(function, "__name__", type(function).__name__)
        read_input = _input_reader(inner_function(function))

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenNode:
            state = read_input(args, kwargs)
            return self._monitor.begin(name, self._instruction, state)

        return watch(self._monitor, begin, function)

    def __enter__(self) -> LiveNode:
        name = self._name
        if name is None:
            name = self._instruction.name.lower() if self._instruction else "node"
        node = self._monitor.begin(name, self._instruction, self._input_state)
        self._live.append(LiveNode(self._monitor, node))
        return self._live[-1]

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._live.pop().__exit__(kind, error, trace)

    async def __aenter__(self) -> LiveNode:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)


Begin = Callable[[tuple[Any, ...], dict[str, Any]], "OpenNode"]
"""A function that reports the beginning of a call to the monitor, from its positional and keyword
arguments."""


def watch(monitor: Monitor, begin: Begin, function: F) -> F:
    """Wrap a function of any kind, so that each call becomes a node; `begin` reports it to the
    monitor.

    Raises:
        InputError: it is not callable.
    """

    yields = "generator" in kind_of(inner_function(function))

    def surround(args: tuple[Any, ...], kwargs: dict[str, Any]) -> LiveNode:
        live = LiveNode(monitor, begin(args, kwargs))
        live.output = [] if yields else None
        return live

    return wrap_callable(function, surround)


def _input_reader(
    function: Callable[..., Any],
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Return a function that makes the input state of a call: its only argument if that is a state,
    otherwise all arguments by name, without `self`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []

    skipped = 1 if parameters and parameters[0].name in ("self", "cls") else 0
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [parameter.name for parameter in parameters[skipped:] if parameter.kind <= positional]

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        input_arguments = args[skipped:]
        values = (*input_arguments, *kwargs.values())
        if len(values) == 1 and _is_state(values[0]):
            return values[0]
        state = {**dict(zip(names, input_arguments, strict=False)), **kwargs}
        if more := input_arguments[len(names) :]:
            state["…"] = list(more)
        return state

    return read


def _is_state(value: Any) -> bool:
    kind = cast(Any, type(value))  # which, unlike the value itself, runs no code of the agent's
    return issubclass(kind, Mapping) or is_dataclass(kind) or hasattr(kind, PYDANTIC)


Graph = TypeVar("Graph")


class Monitor:
    """A recorder of an agent's nodes, with the evaluators that judge them.

    `limits`: how much of each state is stored. `queue_size`: the number of nodes that may wait for
    quick evaluators, and of evaluations in the background that may wait; more are dropped and
    counted. `timeout`: the seconds allowed for one evaluation, if the evaluator sets no limit.
    `concurrency`: the number of concurrent evaluations in the background.

    Raises InputError for an evaluator or a value that cannot be used.
    """

    def __init__(
        self,
        evaluators: Iterable[NodeEvaluator] = (),
        *,
        limits: SnapshotLimits | None = None,
        queue_size: int = 1000,
        timeout: float = 30.0,
        concurrency: int = 8,
    ) -> None:
        if not (queue_size >= 1 and concurrency >= 1 and 0 < timeout < float("inf")):
            raise InputError("queue_size, concurrency and timeout must be numbers above 0")
        self.limits = limits = limits or SnapshotLimits()
        self._records = NodeRecords()
        self._runs = Blocks[NodeRun]()
        self._supersteps = Blocks[object]()
        self.find_outer: Callable[[], OpenNode | None] = lambda: None
        """Returns the node of a graph whose code is calling; set by code that watches graphs."""
        self._evaluators: tuple[NodeEvaluator, ...] = ()
        self._plans: dict[Instruction | None, Plan] = {}
        self._background = Background(
            limits=limits, queue_size=queue_size, timeout=timeout, concurrency=concurrency
        )
        for evaluator in evaluators:
            self.add(evaluator)

    def add(self, evaluator: NodeEvaluator) -> None:
        """Judge the nodes that end from now on with this evaluator, too.

        Raises:
            InputError: it cannot be used, or another evaluator has its name.
        """
        check_evaluator(evaluator)
        if any(known_evaluator.name == evaluator.name for known_evaluator in self._evaluators):
            raise InputError(f"two evaluators have the name '{evaluator.name}'; names must differ")
        self._evaluators = (*self._evaluators, evaluator)
        close_first()
        self._plans = {}

    def attach(
        self, graph: Graph, instructions: Mapping[str, Instruction | str] | None = None
    ) -> Graph:
        """Copy a compiled LangGraph graph, so that every run of the copy is watched; the graph
        itself stays as it is. `instructions`: the types of nodes, by their names.

        Raises:
            InputError: the graph cannot be watched, or has no such node.
        """
        from textevolve.node_eval.langgraph import attach

        return attach(self, cast(Any, graph), instructions)

    def langgraph(
        self, instructions: Mapping[str, Instruction | str] | None = None
    ) -> LangGraphHandler:
        """Return the callback that watches a LangGraph run: `config={"callbacks": [handler]}`.

        Raises:
            InputError: an unknown instruction type.
        """
        from textevolve.node_eval.langgraph import LangGraphHandler

        return LangGraphHandler(self, instructions)

    def node(
        self,
        instruction: Instruction | str | None = None,
        *,
        name: str | None = None,
        input_state: Any = None,
    ) -> NodeScope:
        """Decorate a function, a coroutine function or a generator of either kind; or open a
        context manager, whose `as node` has an `output` to set.

        Raises:
            InputError: there is no such instruction type.
        """

        return NodeScope(self, read_instruction(instruction), name, input_state)

    @contextmanager
    def superstep(self) -> Generator[None]:
        """Record nodes that begin in the `with` block as one superstep, as if they ran side by
        side. It covers this task or thread and those started from it with its context
        (`asyncio.gather`, `asyncio.to_thread`), and all steps of a generator that has the block."""
        with self._supersteps.open(object()):
            yield

    @property
    def history(self) -> History:
        """Return the history of all nodes of all runs; `history.runs` has each run alone, by its
        id."""
        return self.find_history()

    def find_history(self, run: str | None = None) -> History:
        """Return the history of the run with this id; without an id, of all runs."""
        with self._background.lock:
            return self._records.find_history(run)

    @contextmanager
    def run(self, id: str | None = None, *, thread_id: str | None = None) -> Generator[str]:
        """Record nodes that begin in the `with` block as one run: that of the given id, or a new
        one. It covers this task or thread, those started from it with its context, and graphs run
        inside; in a generator it covers all steps, whoever makes them. `with ... as` returns the
        id. A later block with the same id continues the run.

        Raises:
            InputError: the id is no text, or empty.
        """
        if id is not None and not (isinstance(id, str) and id):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"the id of a run must be a text that is not empty, not {id!r}")
        run = NodeRun(uuid4().hex if id is None else id, thread_id)
        with self._runs.open(run):
            yield run.id

    @property
    def current_run(self) -> str | None:
        """Return the id of the current run, of `run()` or of the graph around this code; None
        outside of both."""
        run = self._find_run()
        return run.id if run else None

    def _find_run(self) -> NodeRun | None:
        if run := self._runs.find():
            return run
        outer = self.find_outer()
        return outer.run if outer else None

    def find_thread(self, thread_id: str) -> NodeRun | None:
        """Return the last run of a conversation that has a node here; None without one."""
        with self._background.lock:
            return self._records.find_thread(thread_id)

    def begin(
        self,
        name: str,
        instruction: Instruction | None,
        input_state: Any,
        *,
        step: Hashable | None = None,
        path: tuple[str, ...] = (),
        run: NodeRun | None = None,
    ) -> OpenNode:
        """Record that a node begins. Nodes of one run with the same `step` share a superstep; None:
        a superstep of its own. `run`: the run of the node, unless the code is inside `run()`. Like
        `end`, `fail` and `interrupt`, it never raises."""
        if run is None:
            run = self._find_run() or DEFAULT_RUN
        elif outer := self._runs.find():
            run = NodeRun(outer.id, outer.thread_id or run.thread_id)

        draft = HistoryItem(
            time(),
            instruction,
            take_snapshot(input_state, self.limits),
            node=name,
            path=path,
            run_id=run.id,
            thread_id=run.thread_id,
        )
        step = self._supersteps.find() if step is None else step

        return OpenNode(draft, run, step, evaluating.get(), perf_counter())

    def end(self, node: OpenNode, output_state: Any, *, tokens: int | None = None) -> HistoryItem:
        """Record that a node ended well. Return its item; a node that has ended before stays as it
        is, also in `fail` and `interrupt`."""
        seconds = perf_counter() - node.began
        return self._close(node, seconds, take_snapshot(output_state, self.limits), tokens)

    def fail(
        self, node: OpenNode, error: BaseException, *, tokens: int | None = None
    ) -> HistoryItem:
        """Record that a node raised an exception."""
        seconds = perf_counter() - node.began
        return self._close(node, seconds, None, tokens, describe_exception(error))

    def interrupt(self, node: OpenNode, reason: Any, *, tokens: int | None = None) -> HistoryItem:
        """Record that a node was cancelled, or waits for input from outside, after which it may run
        again."""
        seconds = perf_counter() - node.began
        answer = str(take_snapshot(reason, self.limits))[:ERROR_KEPT]
        return self._close(node, seconds, None, tokens, answer, interrupted=True)

    def _close(
        self,
        node: OpenNode,
        seconds: float,
        output: Any,
        tokens: int | None,
        error: str | None = None,
        *,
        interrupted: bool = False,
    ) -> HistoryItem:
        if node.item is not None:
            return node.item
        item = node.item = node.draft
        item.output_state = output
        item.seconds = seconds
        item.tokens = tokens
        item.error = error
        item.interrupted = interrupted
        if not node.ignored:
            node.job = self.record(item, node.step)

        return item

    def record(self, item: HistoryItem, step: Hashable | None = None) -> EvaluationJob | None:
        """Add a node that has ended, for code that records nodes itself, and judge it unless it
        failed or was interrupted. Never raises."""
        job: EvaluationJob | None = None
        try:
            with self._background.lock:
                job = self._records.place(item, NodeRun(item.run_id, item.thread_id), step)
            plan = self._plans.get(item.instruction) or self._plan(item.instruction)
            if (reason := skip_broken(item)) is not None:
                item.evaluation_results = {each.name: reason for task, _ in plan for each in task}
            elif plan:
                self._background.put(job, plan)
        except Exception as fault:  # noqa: BLE001  the agent must not suffer from its monitor
            log.warning("node '%s' is not judged: %s", item.node, describe_exception(fault))

        return job

    def _plan(self, instruction: Instruction | None) -> Plan:
        """Return the tasks for nodes of this type, the quick one first."""
        fitting = [each for each in self._evaluators if each.judges(instruction)]
        quick = tuple(each for each in fitting if not is_slow(each))
        slow = tuple(((each,), True) for each in fitting if is_slow(each))
        plan = self._plans[instruction] = (((quick, False),) if quick else ()) + slow
        return plan

    @property
    def dropped(self) -> int:
        """Return how many evaluations were dropped because the queue was full."""
        return self._background.dropped

    @property
    def failed(self) -> int:
        """Return how many evaluations gave no usable outcome."""
        return self._background.failed

    @property
    def pending(self) -> int:
        """Return how many nodes still lack the outcome of at least one of their queued
        evaluators."""
        return len(self._background.unfinished)

    def last_feedback(
        self, node: str, timeout: float | None = None, *, run: str | None = None
    ) -> Feedback | None:
        """Return the evaluators' results for the last node of this name that ended; None before
        that.

        `run`: the id of the run to search; None: the current run (see `current_run`), or, outside
        of a run, all runs. The call waits up to `timeout` seconds (None: no limit) for evaluators
        that do not run in the background. In async code, or to include those in the background,
        call `drain` before.
        """
        within = self.current_run if run is None else run
        with self._background.lock:
            job = self._records.find_last(node, within)

        return None if job is None else self._feedback(job, timeout)

    def feedback(self, node: OpenNode, timeout: float | None = None) -> Feedback | None:
        """Return the evaluators' results for this node; None before it has ended. The call waits up
        to `timeout` seconds (None: no limit) for evaluators that do not run in the background."""
        return None if node.job is None else self._feedback(node.job, timeout)

    def _feedback(self, job: EvaluationJob, timeout: float | None) -> Feedback:
        self._background.wait(lambda: not job.is_awaited, timeout)
        item = job.item
        return Feedback(item.node, item.evaluation_results, item.error, item.run_id)

    def take_history(self, run: str | None = None) -> History:
        """Remove and return the history so far, of one run or of all; a new one begins. Unfinished
        evaluations still arrive in the returned history."""
        with self._background.lock:
            return self._records.take(run)

    async def drain(self, timeout: float | None = None) -> bool:
        """Wait until every evaluation has its outcome; return False if `timeout` seconds pass
        before."""
        return await self._background.wait_async(self._background.is_done, timeout)

    def drain_sync(self, timeout: float | None = None) -> bool:
        """Wait like `drain`, for code without an event loop."""
        return self._background.wait(self._background.is_done, timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds (None: no limit) for unfinished evaluations, then end the
        threads; return whether all have an outcome. The others are recorded as skipped, and nodes
        that end later are recorded and not judged."""
        return self._background.close(timeout)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the monitor; after an interrupt, without waiting for evaluations."""
        self.close(None if error is None or isinstance(error, Exception) else 0.0)

    async def __aenter__(self) -> Monitor:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            await self.drain()
        self.close(0.0)
