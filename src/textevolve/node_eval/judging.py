"""Judge nodes with any judge of this project, and judge texts with evaluators of nodes.

A `JudgeEvaluator` has an `Evaluator` (a debate, a jury, a probe) judge fields of a node. A
`NodeJudge` is an `Evaluator` that consists of evaluators of nodes, for the loops that improve
texts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.evaluation import (
    Case,
    EvaluationResult,
    Evaluator,
    Failure,
    PlainEvaluation,
    check_case,
)
from textevolve.json_texts import as_array, write_text
from textevolve.node_eval.episode_evaluation import judge_node
from textevolve.node_eval.evaluators import (
    NodeEvaluator,
    NodeOutcome,
    Targets,
    is_state,
    skip_broken,
)
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.run_records import list_failed
from textevolve.node_eval.snapshots import find_loss
from textevolve.node_eval.state_fields import NO_INPUT, NO_OUTPUT, read_text
from textevolve.trajectory import NO_ANSWER, Trajectory, read_tool_calls

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
        self.background, self.timeout, self.needs_input = background, timeout, needs_input
        super().__init__(name, target_instructions)
        if not callable(evaluator):
            raise InputError(f"evaluator '{name}': the judge must be a callable evaluator")
        self.evaluator, self.input_key, self.output_key = evaluator, input_key, output_key

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
        question = read_text(item.input_state, self.input_key, "input")
        return Case(question, (read_text(item.output_state, self.output_key, "output"),))

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
        state = cast("dict[str, Any]", model.input_state) if is_state(model.input_state) else {}
        tools = cast("list[Any]", state.get("tools") or ())
        names = [str(tool.get("name")) for tool in tools if is_state(tool)]
        if item.node in names or (hands_over and any(n.startswith(HAND_OVERS) for n in names)):
            break
    else:
        return None
    offer = "\n".join(f"- {write_text(tool)}" for tool in tools)
    goal = HAND_OVER if hands_over else CALL
    request = read_text(state, None, "input")
    question = f"{request}\n\nTools on offer:\n{offer}\n\nThe output is the next call of the agent."
    call = read_text(item.input_state, None, "input")
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
        question = read_text(inputs[0], self.input_key, "input") if inputs else NO_REQUEST
        answer = read_text(outputs[0], self.output_key, "output") if outputs else ""
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
    failed, calls, messages = list[str](), list[Any](), list[Any]()
    for item in items:
        error, inner = None if item.interrupted else item.error, _list_messages(item.output_state)
        messages += inner
        if item.instruction is Instruction.TOOL_CALL and not inner:
            known = {"name": item.node, "result": item.output_state, "error": error}
            is_whole = find_loss(item.input_state) is None
            calls.append({**known, "arguments": item.input_state if is_whole else None})
        elif error is not None:
            failed.append(f"{item.node}: {error}")
    return Trajectory((), read_tool_calls(calls or messages, "the run"), steps, tuple(failed))


def _list_messages(state: Any) -> list[Any]:
    """List the messages in an output, in the forms of models' outputs and of states of graphs."""
    messages = state.get("messages") if is_state(state) else None
    listed = as_array(messages)
    return [{"role": "", **one} for one in listed if is_state(one)]


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
        self.instruction, self.node = instruction, node
        self.input_key, self.output_key = input_key, output_key
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
            item.evaluation_results[evaluator.name] = results[evaluator.name] = outcome
        return EvaluationResult(
            sum(one.score for one in results.values()) / len(results),
            all(one.passed for one in results.values()),
            "\n".join(list_failed(results)),
            {"scores": {name: one.score for name, one in results.items()}},
        )
