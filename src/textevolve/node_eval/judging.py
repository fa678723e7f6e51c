"""Judge nodes with any judge of this project, and judge texts with evaluators of nodes.

A `JudgeEvaluator` has an `Evaluator` (a debate, a jury, a probe) judge fields of a node. A
`NodeJudge` is an `Evaluator` that consists of evaluators of nodes, for the loops that improve
texts.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from textevolve.engine.local import gather_bounded, stream
from textevolve.errors import FatalModelError, InputError, StoreError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    PlainEvaluation,
    check_case,
    empty_default,
)
from textevolve.json_texts import as_array, is_mapping, write_text
from textevolve.node_eval.evaluators import (
    NO_INPUT,
    NO_OUTPUT,
    NodeEvaluator,
    NodeOutcome,
    Targets,
    as_failure,
    check_outcome,
    read_state_text,
    skip_broken,
)
from textevolve.node_eval.history import History, HistoryItem, Instruction
from textevolve.node_eval.run_records import DEFAULT_RUN, EvaluationJob, NodeRunRecord, list_failed
from textevolve.node_eval.snapshots import WHOLE, find_loss
from textevolve.spans import current_span
from textevolve.trajectory import NO_ANSWER, Trajectory, read_tool_calls

# The types of recorded runs: an `Episode` is one recorded run of an agent, and `Reading` counts
# the nodes and the faults of a file. `traces.py` reads files.

EpisodeInstructions: TypeAlias = Mapping[str, Instruction]
"""The instruction types of nodes by their names; in OpenTelemetry traces also by their operations
or kinds."""

FAULTS_KEPT = 100
"""The maximum number of faults that are kept with their reason."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One recorded run of an agent: its id, and the history of its nodes."""

    id: str
    history: History

    @property
    def nodes(self) -> Iterator[tuple[int, HistoryItem]]:
        """Yield every node with the number of its superstep, from 0 on."""
        for step, items in enumerate(self.history.entries):
            for item in items:
                yield step, item


def split_history(history: History, name: str) -> list[Episode]:
    """Split a history into one episode per run, named by the run's id; with `name`, by the name, or
    by `name/id` if there are several runs."""
    episodes: list[Episode] = []
    for key, run in history.runs.items():
        run_id = key or DEFAULT_RUN.id
        title = name or run_id
        if name and len(history.runs) > 1:
            title = f"{name}/{run_id}"
        episodes.append(Episode(title, run))

    return episodes


@dataclass(slots=True)
class Reading:
    """The counts of a file that is being read; they grow with it.

    `nodes`: the number of usable nodes. `n_faults`: the number of places that cannot be used;
    `faults`: the first hundred of them, with the reason. `others`: the number of spans that are no
    step of an agent, such as HTTP requests. `thoughts`: the number of outputs whose thoughts judges
    do not see; `parts`: that of parts such as images of which they see the kind alone.
    """

    nodes: int = 0
    n_faults: int = 0
    others: int = 0
    thoughts: int = 0
    parts: int = 0
    faults: list[str] = empty_default(list)

    def report(self, fault: str) -> None:
        self.n_faults += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(fault)


# Run evaluators on recorded runs of agents: each evaluator gets a node with the history up to its
# end.
#
# No agent waits here, so slow evaluators run as soon as a node is read. `monitor.py` watches
# agents while they run.


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
    async with aclosing(nodes) as placed_nodes:
        async for node in placed_nodes:
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
    wanted_evaluators = [
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
        outcomes = await gather_bounded(
            [partial(judge, node_evaluator) for node_evaluator in wanted_evaluators],
            len(wanted_evaluators) or 1,
        )
        results = dict(
            zip(
                (node_evaluator.name for node_evaluator in wanted_evaluators), outcomes, strict=True
            )
        )
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
        nodes = list(place_nodes([episode]))
        record = NodeRunRecord()
        jobs: dict[int, EvaluationJob] = {}
        ordered_nodes = sorted(nodes, key=lambda node: node.item.order)
        for node in ordered_nodes:
            jobs[node.place] = record.place(node.item, node.step)
        for node in nodes:
            yield node, jobs[node.place], node is ordered_nodes[-1]


async def judge_node(history: History, evaluator: NodeEvaluator) -> NodeOutcome:
    """Return an evaluator's result for `history.entries[-1][-1]`, or a failure with the reason."""
    limit: asyncio.Timeout | None = None
    try:
        evaluation: Any = evaluator.evaluate(history)
        if inspect.isawaitable(evaluation):
            async with asyncio.timeout(getattr(evaluator, "timeout", None)) as limit:
                evaluation = await evaluation
    except (FatalModelError, StoreError):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  an evaluator of the user's
        if limit is not None and limit.expired():
            return Failure("failed", f"no answer within {evaluator.timeout:g} s")
        return as_failure(error)

    return check_outcome(evaluation, WHOLE)


NO_REQUEST = "(no request was recorded)"
"""The input of the case if the run has no recorded input."""


class JudgeEvaluator(NodeEvaluator):
    """An evaluator that has a judge or rules judge a node. `input_key`: the field of the node's
    input that is the request; `output_key`: the field of its output that is the answer; None: the
    field `text`, otherwise the whole state (a key may be a path such as `messages.-1.content`).
    Without keys a recorded tool call is judged as the next step of the model that made it.
    `background`: whether it runs in the background, which is the default. `needs_input`: whether a
    node without an input is skipped.

    `metadata["usage"]` has the calls, tokens and US dollars of the judgement. Exceptions of the
    judge pass through; a monitor records them.
    """

    def __init__(
        self,
        name: str,
        evaluator: Evaluator,
        input_key: str | None = None,
        output_key: str | None = None,
        target_instructions: Targets = None,
        *,
        background: bool = True,
        timeout: float | None = None,
        needs_input: bool = True,
    ) -> None:
        self.background = background
        self.timeout = timeout
        self.needs_input = needs_input
        super().__init__(name, target_instructions)
        if not callable(evaluator):
            raise InputError(f"evaluator '{name}': the judge must be a callable evaluator")
        self.evaluator = evaluator
        self.input_key = input_key
        self.output_key = output_key

    failed_calls = True

    def read_case(self, history: History) -> Case | Failure:
        """Return the case for the judge, or the failure that prevents the judgement."""
        item = history.entries[-1][-1]
        by_field = self.input_key or self.output_key or not self.needs_input
        if not by_field and (call := read_call(history)):
            return call
        if broken := skip_broken(item):
            return broken
        if item.output_state is None:
            return Failure("skipped", NO_OUTPUT)
        if item.input_state is None and self.needs_input:
            return Failure("skipped", NO_INPUT)
        question = read_state_text(item.input_state, self.input_key, "input")

        return Case(question, (read_state_text(item.output_state, self.output_key, "output"),))

    async def evaluate(self, history: History) -> NodeOutcome:
        case = self.read_case(history)
        if isinstance(case, Failure):
            return case
        evaluation = await self.evaluator(case)
        (outcome,) = evaluation.result
        if isinstance(outcome, Failure):
            return outcome
        usage = evaluation.usage
        if not usage.calls:
            return outcome
        spent = {"calls": usage.calls, "tokens": usage.tokens, "cost": usage.cost}

        return replace(outcome, metadata={**outcome.metadata, "usage": spent})


CALL = "the tool and its arguments fit the request"
HAND_OVER = "the request was handed over to the right agent"
"""The goals by which a recorded tool call, and a hand-over to another agent, are judged."""


def read_call(history: History) -> Case | None:
    """Read a tool call as a step of the model that made it, which is the last one that was offered
    the tool: its request with the tools on offer, and the call. None if the node is no tool call,
    or if no such model was recorded."""
    item = history.entries[-1][-1]
    if item.instruction is not Instruction.TOOL_CALL or item.interrupted:
        return None
    hands_over = item.node.startswith(HAND_OVERS)

    for model in reversed(list(history.items)):
        state: Mapping[str, Any] = model.input_state if is_mapping(model.input_state) else {}
        tools: Sequence[Any] = state.get("tools") or ()
        names = [str(tool.get("name")) for tool in tools if is_mapping(tool)]
        if item.node in names or (hands_over and any(n.startswith(HAND_OVERS) for n in names)):
            break
    else:
        return None

    offer = "\n".join(f"- {write_text(tool)}" for tool in tools)
    goal = HAND_OVER if hands_over else CALL
    request = read_state_text(state, None, "input")
    question = f"{request}\n\nTools on offer:\n{offer}\n\nThe output is the next call of the agent."
    call = read_state_text(item.input_state, None, "input")
    call = call if call.startswith(f"{item.node}(") else f"{item.node}({call})"
    failed = f"\n\nThe call failed: {item.error}" if item.error else ""

    return Case(f"{question} It is good if {goal}, and if it did not fail.", (call + failed,))


HAND_OVERS = ("transfer_to", "handoff", "hand_off", "delegate_to")
"""The beginnings of the names of tools that hand a request over to another agent."""


class RunEvaluator(JudgeEvaluator):
    """An evaluator that has a judge of trajectories, such as `metric:tool-called:search`, judge the
    whole run up to the node that ended last. In live runs `target_instructions` are the types of
    nodes after which the judge is called. The run's input and output are those of its outermost
    nodes, the first and the last."""

    whole_run = True

    def read_case(self, history: History) -> Case | Failure:
        items = list(history.items)
        inputs = [i.input_state for i in sorted(items, key=_rank) if i.input_state is not None]
        items.reverse()
        outputs = [i.output_state for i in sorted(items, key=_rank) if i.output_state is not None]
        if not inputs and self.needs_input:
            return Failure("skipped", NO_INPUT)
        question = read_state_text(inputs[0], self.input_key, "input") if inputs else NO_REQUEST
        answer = read_state_text(outputs[0], self.output_key, "output") if outputs else ""

        return Case(question, (answer.strip() or NO_ANSWER,), trajectory=read_run(history))


def _rank(item: HistoryItem) -> tuple[bool, int]:
    """Return the rank of a node by its depth in the run, the outermost first; tools come last."""
    return item.instruction is Instruction.TOOL_CALL, len(item.path)


def read_run(history: History) -> Trajectory:
    """Read a run as a trajectory: its tool calls come from the nodes that are tool calls, or, if
    there are none, from the messages of models. A node around others, such as the span of an agent,
    is not a step."""
    items = [item for step in history.entries for item in sorted(step, key=lambda i: i.timestamp)]
    around = {item.path[:end] for item in items for end in range(1, len(item.path) + 1)}
    steps = sum((*item.path, item.node) not in around for item in items)
    tools: dict[str | None, HistoryItem] = {}
    for item in items:
        if item.instruction is Instruction.TOOL_CALL:
            tools[item.ids.get("span_id")] = item

    failed: list[str] = []
    calls: list[Any] = []
    messages: list[Any] = []

    for item in items:
        error = None if item.interrupted else item.error
        inner = _list_messages(item.output_state)
        messages += _take_new(messages, inner)
        own_calls = _find_calls(item)
        if item.instruction is Instruction.TOOL_CALL and (own_calls or not inner):
            outer = tools.get(item.ids.get("parent_id", ""))
            # A framework and the client that it uses, such as that of MCP, both record one call.
            if outer and item.node == outer.node and item.input_state in (None, outer.input_state):
                continue
            call_fields = {"name": item.node, "result": item.output_state, "error": error}
            arguments = own_calls[0].get("arguments") if own_calls else item.input_state
            is_whole = find_loss(item.input_state) is None
            calls.append({**call_fields, "arguments": arguments if is_whole else None})
        elif error is not None:
            failed.append(f"{item.node}: {error}")

    return Trajectory((), read_tool_calls(calls or messages, "the run"), steps, tuple(failed))


def _find_calls(item: HistoryItem) -> list[Any]:
    """Return the calls of a tool that stand in the messages which its node received."""
    calls: list[Any] = []
    for message in _list_messages(item.input_state):
        calls += [call for call in message.get("tool_calls", ()) if call.get("name") == item.node]

    return calls


def _take_new(known: Sequence[Any], messages: Sequence[Any]) -> list[Any]:
    """Return the messages that are not known yet: a state of a graph repeats those before it. Of
    equal messages as many are new as occur more often than before."""
    counts = Counter(map(write_text, known))
    new: list[Any] = []

    for message in messages:
        text = write_text(message)
        counts[text] -= 1
        if counts[text] < 0:
            new.append(message)

    return new


def _list_messages(state: Any) -> list[Any]:
    """List the messages in an output, in the forms of models' outputs and of states of graphs."""
    messages = state.get("messages") if is_mapping(state) else None
    listed = as_array(messages)
    return [{"role": "", **message} for message in listed if is_mapping(message)]


class NodeJudge:
    """A judge that consists of evaluators of nodes: each candidate is judged as the output of a
    node.

    The input of the node is `{input_key: the case's input}`, and its output `{output_key: the
    candidate}`. score = the mean of the evaluators' scores; passed = all passed; feedback = a line
    for each that did not pass. If an evaluator gives no score, the candidate has none. The usage of
    judges that run in the background is in the metadata of their own results.
    """

    def __init__(
        self,
        evaluators: Sequence[NodeEvaluator],
        *,
        instruction: Instruction | None = None,
        node: str = "node",
        input_key: str = "input",
        output_key: str = "output",
    ) -> None:
        self.instruction = instruction
        self.node = node
        self.input_key = input_key
        self.output_key = output_key
        self.evaluators = [each for each in evaluators if each.judges(instruction)]
        if not self.evaluators:
            raise InputError("none of the evaluators judges a node of this type")

    async def __call__(self, case: Case, /) -> PlainEvaluation:
        """Judge each candidate of a case as the output of a node.

        Raises:
            InputError: the case cannot be judged. FatalModelError: no call to a model can succeed.
        """
        check_case(case)
        return PlainEvaluation(tuple([await self._judge(case, text) for text in case.candidates]))

    async def _judge(self, case: Case, text: str) -> EvaluationResult | Failure:
        item = HistoryItem(
            time.time(),
            self.instruction,
            {self.input_key: case.input},
            {self.output_key: text},
            node=self.node,
        )
        results: dict[str, EvaluationResult] = {}

        for evaluator in self.evaluators:
            outcome = await judge_node(History([[item]]), evaluator)
            if isinstance(outcome, Failure):
                return Failure(outcome.kind, f"{evaluator.name}: {outcome.reason}")
            # Later evaluators see the results of earlier ones, as they do in a graph.
            item.evaluation_results[evaluator.name] = results[evaluator.name] = outcome

        scores = {name: result.score for name, result in results.items()}
        return EvaluationResult(
            sum(scores.values()) / len(scores),
            all(result.passed for result in results.values()),
            "\n".join(list_failed(results)),
            {"scores": scores},
        )
