"""Watch runs of LangGraph through LangChain's public callbacks, and report each node to a monitor.

LangGraph is not patched, and the data that it passes to callbacks are not changed. The metadata
that LangGraph attaches to every run identify a node and its place in the graph.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from uuid import UUID
from weakref import WeakKeyDictionary

from textevolve.errors import InputError, SettingsError
from textevolve.json_texts import is_array, is_object
from textevolve.mappings import map_values
from textevolve.node_eval.history import Instruction, read_instruction
from textevolve.node_eval.run_records import NodeRun, OpenNode

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import LLMResult
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
    from langgraph.pregel import Pregel
    from langgraph.types import Command
except ModuleNotFoundError as error:
    raise SettingsError(
        f"watching LangGraph needs {error.name}, which is not installed:"
        ' pip install "textevolve[langgraph]"'
    ) from error

if TYPE_CHECKING:
    # Monitors open this module, which needs nothing of theirs but the name of their class.
    from textevolve.node_eval.monitor import Monitor

Graph = TypeVar("Graph", bound=Pregel[Any, Any, Any, Any])
BETWEEN = "|"  # what LangGraph itself writes between a node and the node of the graph inside it
START_NODE = "__start__"
"""LangGraph's name of the node before the first one."""
SEND_TASK = "__pregel_push"
"""The first element of the path of a node that LangGraph runs as a task or by `Send`."""


def attach(
    monitor: Monitor, graph: Graph, instructions: Mapping[str, Instruction | str] | None = None
) -> Graph:
    """Return a copy of `graph` whose runs are all reported to `monitor`; `graph` itself is
    unchanged.

    `instructions`: the types of nodes by their names; `"outer|inner"` names a node of a graph
    inside a node. A node that is not named is recorded without a type.

    Raises InputError for a graph that is not compiled and for a name that no node has.
    """
    _check_graph(graph)
    _check_names(graph, instructions or {})

    return graph.with_config(callbacks=[LangGraphHandler(monitor, instructions)])


def follow(monitor: Monitor, graph: Pregel[Any, Any, Any, Any]) -> None:
    """Track the runs of `graph` itself, so that the code of its nodes can find its own place
    (`monitor.find_outer`), without recording the nodes.

    Raises InputError for a graph that is not compiled.
    """
    _check_graph(graph)
    handler = LangGraphHandler(monitor, records=False)
    graph.config = graph.with_config(callbacks=[handler]).config


def _check_graph(graph: object) -> None:
    if not isinstance(graph, Pregel):
        raise InputError(
            f"a {type(graph).__name__} cannot be watched: attach the graph that .compile() returns"
        )


def _check_names(graph: Pregel[Any, Any, Any, Any], names: Mapping[str, Any]) -> None:
    """Raise InputError for a name that no node has. Only the first name of a path is checked, since
    graphs that a node calls in its own code may be unknown."""
    inside = [each for _, each in cast(Any, graph).get_subgraphs(recurse=True)]
    known_names = [name for each in (graph, *inside) for name in each.nodes if name != START_NODE]

    for name in names:
        if name.partition(BETWEEN)[0] not in known_names:
            raise InputError(
                f"no node {name!r} in the graph, which has {', '.join(known_names)};"
                f" a node of a graph inside a node, or a task of an entrypoint, is named"
                f" 'outer{BETWEEN}inner'"
            )


_Space: TypeAlias = tuple[str, str]
"""The id of an agent's run, and a namespace of LangGraph in it, which identifies a running
graph."""


@dataclass(slots=True, eq=False)
class _Place:
    """A running node. `label`: its name in the paths of the nodes inside it. `tokens`: those that
    its models and the graphs inside it have used; None if unknown."""

    node: OpenNode
    label: str
    space: _Space
    tokens: int | None = None


class _Runs:
    """The runs and nodes in progress, shared by all handlers of one monitor, so that a node that
    two handlers report is recorded once.

    LangChain's runs are identified by the integer of their UUID, which Python hashes in a fraction
    of the time. The id of an agent's run is that of the outermost LangChain run that is known.
    """

    def __init__(self) -> None:
        self.runs: dict[int, NodeRun] = {}
        """The agent's run to which each LangChain run belongs."""
        self.places: dict[int, _Place] = {}
        """The running nodes by their LangChain runs."""
        self.spaces: dict[_Space, _Place] = {}
        self.models: dict[int, _Space] = {}
        """The namespaces in which the models in progress are called."""
        self.lock = Lock()

    def find_node(self) -> OpenNode | None:
        """Return the node whose code is calling; None outside of a graph."""
        try:
            config = get_config()
        except RuntimeError:  # no graph runs here
            return None

        parent: UUID | None = getattr(config.get("callbacks"), "parent_run_id", None)
        run = self.runs.get(parent.int) if parent else None
        space = config.get("metadata", {}).get("langgraph_checkpoint_ns", "")
        place = self.spaces.get((run.id, space)) if run else None

        return place.node if place else None


_runs_of: WeakKeyDictionary[Monitor, _Runs] = WeakKeyDictionary()


class LangGraphHandler(BaseCallbackHandler):
    """A callback that reports each node to a monitor; pass it as `config={"callbacks": [handler]}`.

    One handler serves any number of concurrent runs, sync and async, on any thread. If a node is
    retried, each attempt is a separate node in the same superstep. The `tokens` of a node are those
    that its chat models report, including the graphs inside it.

    Each call of a graph is a run with the id of LangChain's outermost run; a call that resumes
    after an interrupt continues the earlier run. With `records=False` nodes are tracked, but not
    reported to the monitor.

    Raises InputError for an unknown instruction type.
    """

    run_inline = True  # in the order of events, and without a thread for each

    def __init__(
        self,
        monitor: Monitor,
        instructions: Mapping[str, Instruction | str] | None = None,
        *,
        records: bool = True,
    ) -> None:
        self._monitor = monitor
        self._records = records
        self._instructions = map_values(read_instruction, instructions or {})
        self._runs = _runs_of.setdefault(monitor, _Runs())
        monitor.find_outer = self._runs.find_node

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        runs = self._runs
        run = self._enter(run_id, parent_run_id, inputs, metadata or {})
        if not metadata or name != metadata.get("langgraph_node") or name in (None, START_NODE):
            return
        namespace = metadata["langgraph_checkpoint_ns"]
        step = metadata["langgraph_step"]
        space = run.id, namespace
        # A function of a conditional edge and a graph inside a node may bear the node's name: they
        # run within its namespace. The tag tells a new attempt while the last one still dies away.
        if run_id.int in runs.places:
            return
        if space in runs.spaces and f"graph:step:{step}" not in (tags or ()):
            return
        path, names = self._read_path(space)
        instruction = self._instructions.get(name)
        instruction = self._instructions.get(BETWEEN.join((*names, name)), instruction)
        superstep = (parent_run_id and parent_run_id.int, step)
        node = self._monitor.begin(name, instruction, inputs, step=superstep, path=path, run=run)
        node.ignored = node.ignored or not self._records
        place = _Place(node, name + _read_number(metadata), space)
        runs.places[run_id.int] = runs.spaces[space] = place

    def _enter(
        self, run_id: UUID, parent_run_id: UUID | None, inputs: Any, metadata: dict[str, Any]
    ) -> NodeRun:
        """Record that a LangChain run begins, and return the agent's run that it belongs to."""
        runs = self._runs.runs
        run = runs.get(parent_run_id.int) if parent_run_id else None
        if run is None and (run := runs.get(run_id.int)) is None:
            thread = metadata.get("thread_id")
            thread = None if thread is None else str(thread)
            if thread is not None and _goes_on(inputs):
                run = self._monitor.find_thread(thread)
            run = run or NodeRun(str(run_id), thread)

        runs[run_id.int] = run

        return run

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if place := self._leave(run_id):
            self._monitor.end(place.node, _read_output(outputs), tokens=place.tokens)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if (place := self._leave(run_id)) is None:
            return
        node = place.node
        tokens = place.tokens

        if isinstance(error, ParentCommand):  # how a node commands the graph around its own
            self._monitor.end(node, _read_output(cast(Any, error).args[0]), tokens=tokens)
        elif isinstance(error, GraphBubbleUp):
            self._monitor.interrupt(node, _read_reason(error), tokens=tokens)
        elif isinstance(error, CancelledError):
            self._monitor.interrupt(node, "cancelled", tokens=tokens)
        else:
            self._monitor.fail(node, error, tokens=tokens)

    def _leave(self, run_id: UUID) -> _Place | None:
        """End a LangChain run, and return its node; None if it has none."""
        runs = self._runs
        runs.runs.pop(run_id.int, None)
        place = runs.places.pop(run_id.int, None)
        if place and runs.spaces.get(place.space) is place:
            del runs.spaces[place.space]
        return place

    def _read_path(self, space: _Space) -> tuple[tuple[str, ...], list[str]]:
        """Return the nodes around this one from a namespace such as `outer:id|1|inner:id`: their
        labels, each with its number if there are several, and their names. A bare number is the
        number of graphs that the node before it has already run."""
        path: list[str] = []
        names: list[str] = []
        around = ""

        for part in space[1].split(BETWEEN)[:-1]:
            around = f"{around}{BETWEEN}{part}" if around else part
            if part.isdigit():
                path[-1:] = [f"{path[-1] if path else ''}({int(part) + 1})"]
            else:
                names.append(part.partition(":")[0])
                place = self._runs.spaces.get((space[0], around))
                path.append(place.label if place else names[-1])

        return tuple(path), names

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the run of a tool, since the tool may run a graph."""
        self._enter(run_id, parent_run_id, input_str, metadata or {})

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._leave(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._leave(run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        run = self._runs.runs.get(parent_run_id.int) if parent_run_id else None
        if run and metadata and (space := metadata.get("langgraph_checkpoint_ns")):
            self._runs.models[run_id.int] = run.id, space

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self.on_chat_model_start(serialized, [], run_id=run_id, **kwargs)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        runs = self._runs
        (run, space) = runs.models.pop(run_id.int, ("", ""))
        tokens = _count_tokens(response)
        while space and tokens is not None:
            with runs.lock:
                if place := runs.spaces.get((run, space)):
                    place.tokens = (place.tokens or 0) + tokens
            space = space.rpartition(BETWEEN)[0]

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._runs.models.pop(run_id.int, None)


def _read_number(metadata: Mapping[str, Any]) -> str:
    """Return the number, from 1, of a node that was sent to or called as a task, such as `[2]`;
    empty for other nodes."""
    path = metadata.get("langgraph_path") or ("",)
    indices = [part for part in path[1:] if type(part) is int]
    return f"[{indices[-1] + 1}]" if path[0] == SEND_TASK and indices else ""


def _goes_on(inputs: Any) -> bool:
    """Return whether a graph is called to resume after an interrupt."""
    if isinstance(inputs, Command):
        return cast("Command[Any]", inputs).resume is not None
    return inputs is None


def _read_output(output: Any) -> Any:
    """Return a node's update of the state, without its command for the next node."""
    if isinstance(output, Command):
        return cast("Command[Any]", output).update
    if is_array(output) and any(isinstance(part, Command) for part in output):
        return list(map(_read_output, output))

    return output


def _read_reason(error: GraphBubbleUp) -> Any:
    """Return the value that was passed to `interrupt()`, or the reason why the run was stopped."""
    if not isinstance(error, GraphInterrupt):
        return str(error)
    interrupt_values = [interrupt.value for interrupt in error.args[0]]
    return interrupt_values[0] if len(interrupt_values) == 1 else interrupt_values


def _count_tokens(response: LLMResult) -> int | None:
    """Return the number of tokens that the model reports; None if it reports none."""
    usage: Any = (response.llm_output or {}).get("token_usage")
    if is_object(usage) and isinstance(total := usage.get("total_tokens"), int):
        return total
    messages = (
        getattr(generation, "message", None) for few in response.generations for generation in few
    )
    reported: list[Any] = [getattr(message, "usage_metadata", None) for message in messages]
    counts = [int(usage["total_tokens"]) for usage in reported if usage]
    return sum(counts) if counts else None
