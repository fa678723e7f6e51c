"""Record plain Python code as nodes: `monitor.node(...)` returns a `NodeScope`, which is both a
decorator and a context manager.

The watched code behaves as before: it gets the same arguments, returns the same values and raises
the same exceptions. `monitor.py` stores the nodes.
"""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.snapshots import MARK, PYDANTIC, SnapshotLimits, take_snapshot

if TYPE_CHECKING:
    from textevolve.node_eval.monitor import Monitor
    from textevolve.node_eval.run_records import OpenNode

F = TypeVar("F", bound=Callable[..., Any])


class LiveNode:
    """A node while its `with` block runs. The block sets `output`, and `tokens` if they are
    known."""

    def __init__(self, monitor: Monitor, node: OpenNode) -> None:
        self.node = node
        self.output: Any = None
        self.tokens: int | None = None
        self._monitor = monitor

    @property
    def item(self) -> HistoryItem | None:
        """Return the node in the history; None until the block has ended."""
        return self.node.item

    def __enter__(self) -> LiveNode:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, GeneratorExit):  # whoever reads has had enough
            self._monitor.end(self.node, self.output, tokens=self.tokens)
        elif isinstance(error, CancelledError):  # which is nothing that it did wrong
            self._monitor.interrupt(self.node, "cancelled", tokens=self.tokens)
        else:
            self._monitor.fail(self.node, error, tokens=self.tokens)


class NodeScope:
    """A decorator of functions of every kind; also a context manager around a block of code."""

    def __init__(
        self,
        monitor: Monitor,
        instruction: Instruction | None,
        name: str | None,
        input_state: Any,
    ) -> None:
        self._monitor, self._instruction = monitor, instruction
        self._name, self._input_state = name, input_state
        self._live: list[LiveNode] = []

    def __call__(self, function: F) -> F:
        name = self._name or getattr(function, "__name__", type(function).__name__)
        read_input = _input_reader(function)

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
    monitor."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with LiveNode(monitor, begin(args, kwargs)) as live:
            live.output = function(*args, **kwargs)
        return live.output

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with LiveNode(monitor, begin(args, kwargs)) as live:
            live.output = await function(*args, **kwargs)
        return live.output

    def generate(*args: Any, **kwargs: Any) -> Generator[Any]:
        with LiveNode(monitor, begin(args, kwargs)) as live:
            live.output = []
            with closing(function(*args, **kwargs)) as values:
                for number, value in enumerate(values, 1):
                    _keep(live.output, number, value, monitor.limits)
                    yield value

    async def generate_async(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        with LiveNode(monitor, begin(args, kwargs)) as live:
            live.output, number = [], 0
            async with aclosing(function(*args, **kwargs)) as values:
                async for value in values:
                    number += 1
                    _keep(live.output, number, value, monitor.limits)
                    yield value

    called = function if inspect.isroutine(function) else function.__call__
    kinds: Sequence[tuple[Callable[[object], bool], Callable[..., Any]]] = (
        (inspect.isasyncgenfunction, generate_async),
        (inspect.isgeneratorfunction, generate),
        (inspect.iscoroutinefunction, call_async),
        (callable, call),
    )
    watched = next(each for is_kind, each in kinds if is_kind(function) or is_kind(called))
    return cast(F, functools.wraps(function)(watched))


def _keep(output: list[Any], number: int, value: Any, limits: SnapshotLimits) -> None:
    """Add a value that a generator yields to the recorded output: the first values are kept, of the
    others only the number."""
    if number < limits.items:
        output.append(take_snapshot(value, limits))
    else:
        output[limits.items - 1 :] = [MARK.format(f"{number + 1 - limits.items:,} more items")]


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
    names = [one.name for one in parameters[skipped:] if one.kind <= positional]

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args[skipped:]
        values = (*given, *kwargs.values())
        if len(values) == 1 and _is_state(values[0]):
            return values[0]
        state = {**dict(zip(names, given, strict=False)), **kwargs}
        if more := given[len(names) :]:
            state["…"] = list(more)
        return state

    return read


def _is_state(value: Any) -> bool:
    kind = cast(Any, type(value))  # which, unlike the value itself, runs no code of the agent's
    return issubclass(kind, Mapping) or is_dataclass(kind) or hasattr(kind, PYDANTIC)
