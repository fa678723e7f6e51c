"""The class `ArbiterOSAlpha`, which records and judges the nodes of decorated functions with a
`Monitor`, and stops none.

As in ArbiterOS, a node returns only after its evaluators have ended, except those that run in the
background.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeVar, cast

from textevolve.errors import InputError
from textevolve.node_eval import history as ours
from textevolve.node_eval.arbiteros.history import History
from textevolve.node_eval.evaluators import NodeEvaluator, NodeOutcome, check_evaluator
from textevolve.node_eval.history import Instruction, read_instruction
from textevolve.node_eval.monitor import Monitor, watch
from textevolve.node_eval.run_records import NodeRun, OpenNode
from textevolve.wrapping import CallListener, NoListener, inner_function, wrap_callable

F = TypeVar("F", bound=Callable[..., Any])
BACKENDS = ("langgraph", "native")


class _WaitingMonitor(Monitor):
    """A monitor whose nodes return only after their quick evaluators have ended."""

    def end(self, node: OpenNode, *args: Any, **kwargs: Any) -> ours.HistoryItem:
        item = super().end(node, *args, **kwargs)
        self.feedback(node)
        return item


class _PublishedEvaluator(NodeEvaluator):
    """Wraps an evaluator, so that it receives histories in ArbiterOS's published form."""

    def __init__(self, evaluator: NodeEvaluator) -> None:
        self.evaluator = evaluator
        self.background = evaluator.background
        self.timeout = evaluator.timeout
        super().__init__(evaluator.name, evaluator.target_instructions)

    def evaluate(self, history: ours.History) -> NodeOutcome | Awaitable[NodeOutcome]:
        return self.evaluator.evaluate(cast(Any, History(history)))


class ArbiterOSAlpha:
    """A recorder of an agent's nodes with the methods of ArbiterOS. `backend`: with "langgraph" a
    registered graph determines which nodes share a superstep (run concurrently); with "native" each
    node is a superstep of its own.

    `monitor`: the monitor that does the work. Raises InputError for another backend.
    """

    def __init__(self, backend: Literal["langgraph", "native"] = "langgraph") -> None:
        if backend not in BACKENDS:
            raise InputError(f"the backend must be langgraph or native, not {backend!r}")
        self.backend = backend
        self.monitor: Monitor = _WaitingMonitor()
        self.evaluators: list[NodeEvaluator] = []
        self._rollouts: set[str] = set()
        self._last: str | None = None

    @property
    def history(self) -> History:
        """Return the history of the current rollout so far, otherwise of the last one that began;
        without any rollout, the history of all nodes."""
        return History(self.monitor.find_history(self._rollout or self._last))

    @property
    def _rollout(self) -> str | None:
        current = self.monitor.current_run
        return current if current in self._rollouts else None

    def add_evaluator(self, evaluator: NodeEvaluator) -> None:
        """Judge the following nodes with one more evaluator.

        Raises:
            InputError: it cannot be used, or another has its name.
        """
        check_evaluator(evaluator)
        self.monitor.add(_PublishedEvaluator(evaluator))
        self.evaluators.append(evaluator)

    def instruction(self, instruction_type: Instruction) -> Callable[[F], F]:
        """Return a decorator for functions of any kind: each call becomes a node of this type.

        Raises:
            InputError: there is no such type.
        """
        kind = read_instruction(instruction_type)

        def decorate(function: F) -> F:
            name = getattr(function, "__name__", type(function).__name__)
            signature = inspect.signature(inner_function(function))

            def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpenNode:
                state = self._read_input(signature, args, kwargs)
                outer = self.monitor.find_outer()
                rollout = self._rollout or self._last
                run = NodeRun(rollout) if rollout else None
                if outer is None:
                    return self.monitor.begin(name, kind, state, run=run)

                # Within another node, as in a graph, it has the place of that node.
                run = run or outer.run
                path = outer.draft.path
                return self.monitor.begin(name, kind, state, step=outer.step, path=path, run=run)

            return watch(self.monitor, begin, function)

        return decorate

    def _read_input(
        self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return a node's input state: LangGraph's state, or in plain Python all arguments by
        name."""
        if self.backend == "langgraph":
            return args[0] if args else None
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # the call itself says so
            return None

        bound.apply_defaults()

        return dict(bound.arguments)

    def register_compiled_graph(self, compiled_graph: Any) -> None:
        """Follow the runs of this graph, so that its nodes are recorded with their superstep and
        their run.

        Raises:
            InputError: it is not compiled. SettingsError: LangGraph is not installed.
        """
        from textevolve.node_eval.langgraph import follow

        follow(self.monitor, compiled_graph)

    def rollout(self) -> Callable[[F], F]:
        """Return a decorator of functions of any kind: each call is a separate run with an empty
        history; of a generator all steps belong to it. Concurrent calls are not mixed. A call
        within a call raises InputError."""

        def surround(*_call: object) -> AbstractContextManager[CallListener]:
            return self._roll_out()

        return lambda function: wrap_callable(function, surround)

    @contextmanager
    def _roll_out(self) -> Generator[CallListener]:
        if self._rollout:
            raise InputError("Nested rollouts are not allowed: end one before the next begins")
        with self.monitor.run() as run_id:
            self._rollouts.add(run_id)
            self._last, before = run_id, self._last
            self._forget(before)
            try:
                yield NoListener()
            finally:
                self._rollouts.discard(run_id)
                self._forget(run_id)

    def _forget(self, run_id: str | None) -> None:
        """Remove a finished rollout from the monitor, unless it is the last one that began."""
        if run_id not in (None, self._last, *self._rollouts):
            self.monitor.take_history(run_id)
