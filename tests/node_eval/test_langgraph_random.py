"""Whatever the evaluators do, a graph gives what it gives without them."""

import asyncio
import operator
from typing import Annotated, TypedDict

from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.evaluators import NodeEvaluator, ThresholdEvaluator
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.monitor import Monitor


class State(TypedDict, total=False):
    turns: Annotated[int, operator.add]
    said: Annotated[list, operator.add]
    kept: dict


def add(state):
    return {"said": [len(state.get("said", []))]}


def command(state):
    return Command(update={"said": ["command"]})


def keep_itself(state):
    state["own"] = state
    return {"said": ["itself"]}


def fail(state):
    raise LookupError("the node's own")


async def wait(state):
    await asyncio.sleep(0)
    return {"said": ["waited"]}


class Bad(NodeEvaluator):
    """Does to the history, and gives, what no evaluator should."""

    def __init__(self, name, deed, instructions=None):
        super().__init__(name, instructions)
        self.deed = deed

    def evaluate(self, history):
        return self.deed(history)


def spoil(history):
    item = history.entries[-1][-1]
    item.output_state = item.input_state = item.instruction = None
    history.entries[-1].clear()
    return EvaluationResult(1.0, True, "spoilt", {})


def empty_the_states(history):
    history.entries[-1][-1].input_state.clear()
    history.entries[-1][-1].output_state.update(said="by an evaluator")
    return EvaluationResult(0.0, False, "", {})


def leave(history):
    raise SystemExit("an evaluator")


async def fall(history):
    await asyncio.sleep(0)
    raise RuntimeError("an evaluator")


DEEDS = [
    spoil,
    empty_the_states,
    leave,
    fall,
    lambda history: 1 / 0,
    lambda history: None,
    lambda history: EvaluationResult(1.5, True),
    lambda history: EvaluationResult(float("nan"), True),
    lambda history: EvaluationResult("0.5", True),
    lambda history: {"score": 0.5},
]
LAYERS = st.lists(
    st.lists(st.sampled_from([add, command, keep_itself]), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)


def build(layers, turns, failing, waiting):
    """Every layer waits for all of the one before; the last goes back to the first, in turns."""
    graph, before = StateGraph(State), [START]
    for depth, layer in enumerate(layers):
        names = [f"{node.__name__} {depth} {n}" for n, node in enumerate(layer)]
        for name, node in zip(names, layer, strict=True):
            graph.add_node(name, node)
            graph.add_edge(before if len(before) > 1 else before[0], name)
        before = names
    graph.add_node("end", lambda state: {"turns": 1})
    graph.add_edge(before, "end")
    graph.add_conditional_edges(
        "end", lambda state: f"{layers[0][0].__name__} 0 0" if state["turns"] < turns else END
    )
    for wanted, node in ((failing, fail), (waiting, wait)):
        if wanted:
            graph.add_node(node.__name__, node)
            graph.add_edge(START if node is wait else before[0], node.__name__)
    return graph.compile()


def run(graph, asynchronous):
    given, config = {"said": [], "kept": {"a": [1]}}, {"recursion_limit": 50}
    try:
        if asynchronous:
            return asyncio.run(graph.ainvoke(given, config))
        return graph.invoke(given, config)
    except Exception as error:  # noqa: BLE001  whatever it is, it has to be the same
        return type(error), str(error)


@given(
    layers=LAYERS,
    turns=st.integers(1, 3),
    failing=st.booleans(),
    asynchronous=st.booleans(),
    deeds=st.lists(st.sampled_from(DEEDS), min_size=1, max_size=4),
)
def test_evaluators_change_nothing(layers, turns, failing, asynchronous, deeds):
    graph = build(layers, turns, failing, asynchronous)
    evaluators = [Bad(f"bad {n}", deed) for n, deed in enumerate(deeds)]
    evaluators += [Bad("elsewhere", spoil, [Instruction.NEGOTIATE])]
    evaluators += [ThresholdEvaluator("good", "turns", 0.5)]
    with Monitor(evaluators) as monitor:
        assert run(monitor.attach(graph, {"end": Instruction.VERIFY}), asynchronous) == run(
            graph, asynchronous
        )
        monitor.drain_sync()
        scored = [item for item in monitor.history.items if item.error is None]
        for item in scored:
            assert isinstance(item.evaluation_results["good"], EvaluationResult)
            assert "elsewhere" not in item.evaluation_results
            for n, deed in enumerate(deeds):
                kind = EvaluationResult if deed in (spoil, empty_the_states) else Failure
                assert isinstance(item.evaluation_results[f"bad {n}"], kind)
            assert item.input_state
    assert any(item.node.startswith(layers[0][0].__name__) for item in scored)
