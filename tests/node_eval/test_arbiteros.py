"""Code for ArbiterOS's evaluators and histories, with the name of the package changed."""

import asyncio
import datetime
import operator
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import pytest
from langgraph.graph import START, StateGraph

import textevolve.node_eval.arbiteros.instructions as named
from textevolve.node_eval.arbiteros import ArbiterOSAlpha
from textevolve.node_eval.arbiteros.evaluation import (
    EvaluationResult,
    NodeEvaluator,
    ThresholdEvaluator,
)
from textevolve.node_eval.arbiteros.history import History
from textevolve.node_eval.arbiteros.instructions import CognitiveCore


@pytest.fixture(params=["native", "langgraph"])
def kernel(request):
    return ArbiterOSAlpha(backend=request.param)


@pytest.fixture
def native():
    return ArbiterOSAlpha(backend="native")


class Judge(NodeEvaluator):
    """Says what `say` makes of the history; notes the types of the nodes that it saw."""

    def __init__(self, name, say=lambda history: 1.0, target_instructions=None):
        super().__init__(name, target_instructions)
        self.say, self.types = say, []

    def evaluate(self, history: History) -> EvaluationResult:
        self.types.append(history.entries[-1][-1].instruction)
        score = self.say(history)
        return EvaluationResult(score=score, passed=score > 0.5, feedback=f"{score:.1f} given")


def step(kernel, kind, output, name="step"):
    """A decorated node that gives this output."""

    def node(state):
        return output

    node.__name__ = name
    return kernel.instruction(kind)(node)


def last(kernel):
    return kernel.history.entries[-1][-1]


# Evaluators of a kernel.


def test_results_are_there_when_the_node_has_returned(kernel):
    kernel.add_evaluator(ThresholdEvaluator("one", "x", 0.5))
    kernel.add_evaluator(ThresholdEvaluator("two", "y", 0.5))
    step(kernel, CognitiveCore.GENERATE, {"x": 0.75, "y": 0.25})({})
    results = last(kernel).evaluation_results
    assert {name: (one.score, one.passed) for name, one in results.items()} == {
        "one": (0.75, True),
        "two": (0.25, False),
    }


def test_an_evaluator_sees_the_published_shape(kernel):
    def look(history):
        item = history.entries[-1][-1]
        seen.append((type(item.timestamp), item.output_state, item.check_policy_results))
        before = [one.evaluation_results for step in history.entries[:-1] for one in step]
        return 1.0 if all(type(r["look"]) is EvaluationResult for r in before) else 0.0

    seen = []
    kernel.add_evaluator(Judge("look", look))
    for _ in range(2):
        step(kernel, CognitiveCore.GENERATE, {"x": 1})({})
    assert seen == [(datetime.datetime, {"x": 1}, {})] * 2
    assert last(kernel).evaluation_results["look"].passed


# Instructions, supersteps, rollouts.


def test_a_rollout_begins_an_empty_history_and_runs_at_once_are_not_mixed(kernel):
    @kernel.instruction(CognitiveCore.GENERATE)
    def answer(state):
        barrier.wait(20)
        return state

    @kernel.rollout()
    def run(number):
        assert kernel.history.entries == []
        answer({"n": number})
        answer({"n": number})
        return [item.output_state["n"] for (item,) in kernel.history.entries]

    barrier = threading.Barrier(4)
    kernel.add_evaluator(Judge("alone", lambda history: len(history.entries) / 10))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [[n, n] for n in range(4)]
    barrier = threading.Barrier(1)
    held_history = kernel.history
    assert run(7) == [7, 7]
    assert [item.output_state for (item,) in kernel.history.entries] == [{"n": 7}] * 2
    assert last(kernel).evaluation_results["alone"].score == 0.2
    assert len(held_history.entries) == 2  # whoever holds an earlier one keeps it
    assert len(kernel.monitor.history.runs) == 1
    answer({"n": 8})
    assert len(kernel.history.entries) == 3


# Graphs.


class State(TypedDict, total=False):
    n: Annotated[int, lambda old, new: new]
    said: Annotated[list, operator.add]


def graph(kernel):
    """`plan`, then `left` and `right` side by side, then `join`; `plain` is not decorated."""

    def plan(state):
        return {"n": state["n"], "said": ["plan"]}

    def left(state):
        return {"said": [f"left {state['n']}"]}

    def right(state):
        return {"said": [f"right {state['n']}"]}

    def plain(state):
        return {}

    def join(state):
        return {"said": [len(kernel.history.entries)]}

    built = StateGraph(State)
    kinds = [named.DECOMPOSE, named.GENERATE, named.GENERATE, None, named.RESPOND]
    for node, kind in zip((plan, left, right, plain, join), kinds, strict=True):
        built.add_node(node.__name__, kernel.instruction(kind)(node) if kind else node)
    built.add_edge(START, "plan")
    built.add_edge("plan", "left")
    built.add_edge("plan", "right")
    built.add_edge(["left", "right"], "plain")
    built.add_edge("plain", "join")
    return built.compile()


@pytest.mark.parametrize("way", ["ainvoke", "stream"])
def test_the_nodes_of_a_registered_graph_stand_in_its_supersteps(way):
    kernel = ArbiterOSAlpha(backend="langgraph")
    judge = Judge("any")
    kernel.add_evaluator(judge)
    app = graph(kernel)
    kernel.register_compiled_graph(app)
    arguments = {"n": 1, "said": []}
    if way == "ainvoke":
        asyncio.run(app.ainvoke(arguments))
    else:
        list(getattr(app, way)(arguments))
    shape = [sorted(i.instruction.name for i in entry) for entry in kernel.history.entries]
    assert shape == [["DECOMPOSE"], ["GENERATE", "GENERATE"], ["RESPOND"]]
    assert len(judge.types) == 4
    assert {item.item.node for entry in kernel.history.entries for item in entry} == {
        *("plan", "left", "right", "join")
    }


# The published forms that scripts of ArbiterOS use.


@pytest.mark.parametrize(("value", "mark"), [(0.9, "✓"), (0.25, "✗")])
def test_feedback_of_thresholds(native, value, mark):
    native.add_evaluator(ThresholdEvaluator("sure", "x", 0.7))
    step(native, CognitiveCore.GENERATE, {"x": value})({})
    feedback = last(native).evaluation_results["sure"].feedback
    assert feedback == f"x={value:.2f} ({mark} threshold=0.7)"


def test_supersteps_are_entered(kernel):
    history = History()
    history.enter_next_superstep(["__start__"])
    assert history.entries == []
    history.enter_next_superstep(["plan", "look"])
    assert history.entries == [[]]
    kernel.history.enter_next_superstep(["plan"])
    step(kernel, CognitiveCore.GENERATE, {})({})
    assert [len(nodes) for nodes in kernel.history.entries] == [1]
