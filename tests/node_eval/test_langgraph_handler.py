"""How a monitor and a graph are joined: instructions by name, one record a node, clear errors."""

import sys
from typing import TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph

from textevolve.errors import InputError, SettingsError
from textevolve.node_eval.history import Instruction
from textevolve.node_eval.monitor import Monitor


class State(TypedDict, total=False):
    score: float


def one_node(name, node):
    graph = StateGraph(State)
    graph.add_node(name, node)
    graph.add_edge(START, name)
    return graph.compile()


def score(state):
    return {"score": 0.7}


@pytest.fixture
def nested():
    """`score` stands at the top and inside `inner`."""
    graph = StateGraph(State)
    graph.add_node("inner", one_node("score", score))
    graph.add_node("score", score)
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "score")
    return graph.compile()


@pytest.fixture
def monitor():
    with Monitor() as opened:
        yield opened


def instructions(monitor):
    return {(*item.path, item.node): item.instruction for item in monitor.history.items}


def test_a_name_holds_for_every_depth_and_a_full_name_wins(monitor, nested):
    graph = monitor.attach(nested, {"score": Instruction.VERIFY, "inner|score": "GENERATE"})
    graph.invoke({})
    assert instructions(monitor) == {
        ("inner",): None,
        ("inner", "score"): Instruction.GENERATE,
        ("score",): Instruction.VERIFY,
    }


def test_a_handler_serves_one_run_only_where_it_is_given(monitor, nested):
    handler = monitor.langgraph({"score": Instruction.VERIFY})
    nested.invoke({}, {"callbacks": [handler]})
    nested.invoke({})
    assert len(list(monitor.history.items)) == 3


def test_a_node_told_twice_counts_once(monitor, nested):
    """A graph that is watched inside one that is watched, and given a handler on top."""
    inner = monitor.attach(one_node("score", score), {"score": Instruction.GENERATE})
    graph = one_node("outer", lambda state: inner.invoke(state))
    handler = monitor.langgraph({})
    monitor.attach(graph, {}).invoke({}, {"callbacks": [handler, handler]})
    assert len(list(monitor.history.items)) == 2


def test_a_name_that_no_node_has_is_refused(monitor, nested):
    with pytest.raises(InputError, match=r"no node 'scroe'.*inner, score"):
        monitor.attach(nested, {"scroe": Instruction.VERIFY})
    with pytest.raises(InputError, match=r"no node 'outer\|score'"):
        monitor.attach(nested, {"outer|score": Instruction.VERIFY})


def test_a_task_is_named_after_its_entrypoint(monitor):
    @task
    def double(number):
        return 2 * number

    @entrypoint()
    def flow(number):
        return double(number).result()

    with pytest.raises(InputError, match=r"a task of an entrypoint, is named 'outer\|inner'"):
        monitor.attach(flow, {"double": Instruction.GENERATE})
    watched = monitor.attach(flow, {"flow|double": Instruction.GENERATE})
    assert watched.invoke(2) == 4
    types = {item.node: item.instruction for item in monitor.history.items}
    assert types == {"double": Instruction.GENERATE, "flow": None}


def test_without_langgraph_it_is_said_what_to_install(monkeypatch, monitor):
    monkeypatch.delitem(sys.modules, "textevolve.node_eval.langgraph")
    monkeypatch.setitem(sys.modules, "langgraph.errors", None)
    with pytest.raises(SettingsError, match=r'pip install "textevolve\[langgraph\]"'):
        monitor.langgraph({})
