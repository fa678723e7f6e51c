"""Graphs that run at the same time: no run sees, or is told, anything of another."""

import operator
import threading
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from textevolve.evaluation import EvaluationResult
from textevolve.node_eval import Monitor, NodeEvaluator

SIZE = 8


class State(TypedDict, total=False):
    n: Annotated[int, lambda old, new: new]
    told: Annotated[list, operator.add]


class Says(NodeEvaluator):
    """Says whose output it saw, and notes whom it saw around."""

    def __init__(self, name="says"):
        super().__init__(name)
        self.seen = []

    def evaluate(self, history):
        item = history.entries[-1][-1]
        texts = {single_item.run_id for single_item in history.items}
        self.seen.append(texts == {item.run_id})
        return EvaluationResult(0.0, False, f"n={(item.output_state or {}).get('n')}")


def talking(monitor, size=SIZE):
    """`write`, then `read`, which asks what was said of `write`; all runs are in step."""
    barrier = threading.Barrier(size)

    def write(state):
        barrier.wait(20)
        return {"n": state["n"]}

    def read(state):
        barrier.wait(20)
        return {"told": [monitor.last_feedback("write", 20).text]}

    graph = StateGraph(State)
    graph.add_node("write", write)
    graph.add_node("read", read)
    graph.add_edge(START, "write")
    graph.add_edge("write", "read")
    return graph


def chain(*nodes):
    graph = StateGraph(State)
    for before, node in zip((START, *(n.__name__ for n in nodes)), nodes, strict=False):
        graph.add_node(node.__name__, node)
        graph.add_edge(before, node.__name__)
    return graph


def told_of(number):
    return [f"says: n={number}"]


def test_each_run_of_a_batch_hears_what_was_said_of_itself():
    with Monitor([says := Says()]) as monitor:
        watched = monitor.attach(talking(monitor).compile())
        inputs = [{"n": n} for n in range(SIZE)]
        given = watched.batch(inputs, {"max_concurrency": SIZE})
        monitor.drain_sync()
    assert [one["told"] for one in given] == [told_of(n) for n in range(SIZE)]
    assert says.seen == [True] * 2 * SIZE
    runs = monitor.history.runs
    assert len(runs) == SIZE
    for run in runs.values():
        assert [[item.node for item in step] for step in run.entries] == [["write"], ["read"]]
        assert len({item.output_state.get("n", item.input_state["n"]) for item in run.items}) == 1


def test_nodes_know_their_run_and_their_thread():
    def write(state):
        seen.append(monitor.current_run)
        return {"n": state["n"]}

    seen = []
    with Monitor() as monitor:
        watched = monitor.attach(chain(write).compile(checkpointer=InMemorySaver()))
        configs = [{"configurable": {"thread_id": name}} for name in ("a", "b")]
        watched.batch([{"n": 1}, {"n": 2}], configs)
        watched.invoke({"n": 3}, configs[0])
    threads = {item.output_state["n"]: item.thread_id for item in monitor.history.items}
    assert threads == {1: "a", 2: "b", 3: "a"}
    assert sorted(seen) == sorted(monitor.history.runs)
    assert len(set(seen)) == 3
    assert monitor.current_run is None
    assert str(monitor.history).startswith("3 runs, 3 supersteps, 3 nodes\nrun ")


@pytest.mark.parametrize("answer", [Command(resume="red"), None])
def test_what_goes_on_after_an_interrupt_is_the_same_run(answer):
    def write(state):
        return {"n": 7}

    def ask(state):
        if answer is not None:
            interrupt("which colour?")
        return {"told": [monitor.last_feedback("write", 20).text]}

    stop = None if answer else ["ask"]
    with Monitor([Says()]) as monitor:
        graph = chain(write, ask).compile(checkpointer=InMemorySaver(), interrupt_before=stop)
        watched = monitor.attach(graph)
        config = {"configurable": {"thread_id": "t"}}
        watched.invoke({"n": 1}, config)
        assert watched.invoke(answer, config)["told"] == told_of(7)
        watched.invoke({"n": 2}, {"configurable": {"thread_id": "other"}})
    runs = [{item.thread_id for item in run.items} for run in monitor.history.runs.values()]
    assert runs == [{"t"}, {"other"}]


def test_nothing_of_a_run_is_kept_once_it_has_ended():
    def write(state):
        if state["n"] < 0:
            raise ValueError("no")
        return {"n": 1}

    with Monitor() as monitor:
        handler = monitor.langgraph()
        watched = chain(write).compile()
        watched.invoke({"n": 1}, {"callbacks": [handler]})
        with pytest.raises(ValueError, match="no"):
            watched.invoke({"n": -1}, {"callbacks": [handler]})
    runs = handler._runs
    assert not any((runs.runs, runs.places, runs.spaces, runs.models))
