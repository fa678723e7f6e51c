"""Real graphs, run four ways: every node is seen, and the graph gives what it always did."""

import asyncio
import operator
import re
from typing import Annotated, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, Send, interrupt

from textevolve.node_eval.history import Instruction
from textevolve.node_eval.monitor import Monitor


class State(TypedDict, total=False):
    n: int
    said: Annotated[list, operator.add]


def say(word):
    """A node; `route`, which no history may show, is what its edges ask."""

    def node(state):
        return {"said": [word]}

    return node


def chain():
    graph = StateGraph(State)
    graph.add_node("a", say("a"))
    graph.add_node("b", say("b"))

    def b(state):  # named like a node, on purpose
        return "b"

    graph.add_conditional_edges(START, lambda state: "a", ["a"])
    graph.add_conditional_edges("a", b, ["b"])
    graph.add_edge("b", END)
    return graph.compile()


def parallel():
    graph = StateGraph(State)
    for name in ("a", "b", "c"):
        graph.add_node(name, say(name))
        graph.add_edge(START, name)
    graph.add_node("join", say("join"))
    graph.add_edge(["a", "b", "c"], "join")
    return graph.compile()


def sends():
    graph = StateGraph(State)
    graph.add_node("plan", say("plan"))
    graph.add_node("work", lambda s: Command(update={"said": [f"w{s['n']}"]}, goto="join"))
    graph.add_node("join", say("join"))
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda s: [Send("work", {"n": n}) for n in (1, 2)])
    return graph.compile()


def loop():
    def again(state):
        return END if state["said"].count("try") == 3 else "try"

    graph = StateGraph(State)
    graph.add_node("try", say("try"))
    graph.add_node("look", say("look"))
    graph.add_edge(START, "try")
    graph.add_edge("try", "look")
    graph.add_conditional_edges("look", again, ["try", END])
    return graph.compile()


def nested(name="inner"):
    """One graph is a node, under the node's own name; another is called in a node's code."""
    inner = StateGraph(State)
    inner.add_node("i", say("i"))
    inner.add_node("j", say("j"))
    inner.add_edge(START, "i")
    inner.add_edge("i", "j")
    compiled = inner.compile(name=name)
    graph = StateGraph(State)
    graph.add_node(name, compiled)
    graph.add_node("call", lambda state: {"said": compiled.invoke({"said": []})["said"]})
    graph.add_edge(START, name)
    graph.add_edge(name, "call")
    return graph.compile()


def to_parent():
    inner = StateGraph(State)
    inner.add_node(
        "i", lambda s: Command(graph=Command.PARENT, goto="after", update={"said": ["up"]})
    )
    inner.add_edge(START, "i")
    graph = StateGraph(State)
    graph.add_node("inner", inner.compile())
    graph.add_node("after", say("after"))
    graph.add_edge(START, "inner")
    return graph.compile()


def retried():
    attempts = []

    def node(state):
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError(f"attempt {len(attempts)}")
        return {"said": ["done"]}

    graph = StateGraph(State)
    again = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=ValueError)
    graph.add_node("flaky", node, retry_policy=again)
    graph.add_edge(START, "flaky")
    return graph.compile()


def broken():
    def node(state):
        raise KeyError("boom")

    graph = StateGraph(State)
    graph.add_node("good", say("good"))
    graph.add_node("bad", node)
    graph.add_edge(START, "good")
    graph.add_edge("good", "bad")
    return graph.compile()


def waiting():
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"said": [interrupt("which colour?")]})
    graph.add_node("beside", say("beside"))
    graph.add_edge(START, "ask")
    graph.add_edge(START, "beside")
    return graph.compile(checkpointer=InMemorySaver())


def agent():
    @tool
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    def used(tokens):
        return {"input_tokens": tokens - 1, "output_tokens": 1, "total_tokens": tokens}

    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "1"}
    answers = [AIMessage("", tool_calls=[call], usage_metadata=used(8), id="m1")]
    answers += [AIMessage("It is 3.", usage_metadata=used(9), id="m2")]
    model = GenericFakeChatModel(messages=iter(answers))
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def functional():
    @task
    def double(n):
        return 2 * n

    @entrypoint()
    def flow(given):
        first_sync_async_future, second_sync_async_future = double(1), double(2)
        return {"said": [first_sync_async_future.result(), second_sync_async_future.result()]}

    return flow


# By superstep, in the order in which they ended; a node inside another stands after a bar.
SHAPES = {
    chain: [{"a"}, {"b"}],
    parallel: [{"a", "b", "c"}, {"join"}],
    sends: [{"plan"}, {"work", "work 2"}, {"join"}],
    loop: [{"try"}, {"look"}] * 3,
    nested: [
        {"inner|i"}, {"inner|j"}, {"inner"}, {"call|i"}, {"call|j"}, {"call"},
    ],
    to_parent: [{"inner|i"}, {"inner"}, {"after"}],
    retried: [{"flaky", "flaky 2", "flaky 3"}],
    broken: [{"good"}, {"bad"}],
    waiting: [{"ask", "beside"}],
    agent: [{"agent"}, {"tools"}, {"agent"}],
    functional: [{"flow|double", "flow|double 2"}, {"flow"}],
}  # fmt: skip


def invoke(graph, given, config):
    return graph.invoke(given, config)


def ainvoke(graph, given, config):
    return asyncio.run(graph.ainvoke(given, config))


def astream(graph, given, config):
    async def collect():
        modes = ["updates", "values"]
        stream = graph.astream(given, config, stream_mode=modes, subgraphs=True)
        return [part async for part in stream]

    return asyncio.run(collect())


def run(way, graph, callbacks=()):
    """What the run gave, or the exception that it raised, as text without ids of the run."""
    config = {"configurable": {"thread_id": "1"}, "callbacks": list(callbacks)}
    given = {"messages": [("user", "1 + 2?")]} if "tools" in graph.nodes else {"said": []}
    try:
        result = way(graph, given, config)
    except Exception as error:  # noqa: BLE001  whatever it is, it has to be the same
        return error
    if way is astream:  # nodes side by side come in any order
        return sorted(repr(part[1:]) for part in result)
    return result


def steps_of(history):
    """The supersteps as sets of `outer|inner` names; a name seen again in one is numbered."""
    matches = []
    for step in history.entries:
        names = set()
        for item in step:
            name = number = "|".join((*item.path, item.node))
            while number in names:
                number = f"{name} {int(number.removeprefix(name) or 1) + 1}"
            names.add(number)
        matches.append(names)
    return matches


@pytest.fixture
def monitor():
    with Monitor() as opened:
        yield opened


@pytest.mark.parametrize("way", [invoke, ainvoke, astream])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_node_is_seen_and_nothing_is_changed(shape, way, monitor):
    def plain(result):
        return re.sub(r"id='[\w-]+'|\w+:[\w-]{36}", "", repr(result))

    alone = run(way, shape())
    watched = run(way, monitor.attach(shape(), {}))
    assert plain(watched) == plain(alone)
    assert type(watched) is type(alone)
    assert steps_of(monitor.history) == SHAPES[shape]


def outputs(history):
    return [(item.node, item.output_state) for item in history.items]


def test_states_are_what_went_in_and_what_the_node_gave(monitor):
    invoke(monitor.attach(loop(), {}), {"said": []}, {})
    first, second, *_ = monitor.history.items
    assert (first.input_state, first.output_state) == ({"said": []}, {"said": ["try"]})
    assert second.input_state == {"said": ["try"]}


def test_a_command_to_the_graph_around_is_no_failure(monitor):
    invoke(monitor.attach(to_parent(), {}), {"said": []}, {})
    assert [item.error for item in monitor.history.items] == [None] * 3
    assert ("i", {"said": ["up"]}) in outputs(monitor.history)


def test_attempts_that_failed_are_kept_with_their_reasons(monitor):
    invoke(monitor.attach(retried(), {}), {"said": []}, {})
    (attempts,) = monitor.history.entries
    assert "attempt 1" in attempts[0].error
    assert "attempt 2" in attempts[1].error
    assert (attempts[2].error, attempts[2].output_state) == (None, {"said": ["done"]})


def test_a_broken_node_is_kept_and_its_own_exception_raised(monitor):
    with pytest.raises(KeyError, match="boom"):
        invoke(monitor.attach(broken(), {}), {"said": []}, {})
    good, bad = monitor.history.items
    assert good.error is None
    assert "KeyError" in bad.error
    assert bad.output_state is None


def test_an_interrupted_node_is_no_failure_and_runs_again_when_answered(monitor):
    graph = monitor.attach(waiting(), {})
    config = {"configurable": {"thread_id": "1"}}
    invoke(graph, {"said": []}, config)
    requests = next(item for item in monitor.history.items if item.node == "ask")
    assert requests.interrupted
    assert (requests.error, requests.output_state) == ("which colour?", None)
    assert invoke(graph, Command(resume="red"), config)["said"] == ["red", "beside"]
    assert steps_of(monitor.history) == [{"ask", "beside"}, {"ask"}]
    assert monitor.history.entries[-1][-1].output_state == {"said": ["red"]}


def test_tokens_are_those_that_the_model_reports(monitor):
    run(invoke, monitor.attach(agent(), {"agent": Instruction.GENERATE}))
    assert [item.tokens for item in monitor.history.items] == [8, None, 9]


def test_what_is_cancelled_is_kept_as_cancelled(monitor):
    async def slow(state):
        await asyncio.sleep(30)

    async def bad(state):
        await asyncio.sleep(0)
        raise ValueError("first")

    graph = StateGraph(State)
    for node in (slow, bad):
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
    with pytest.raises(ValueError, match="first"):
        ainvoke(monitor.attach(graph.compile(), {}), {"said": []}, {})
    ends = {item.node: (item.interrupted, item.error) for item in monitor.history.items}
    assert ends == {"bad": (False, "raised ValueError: first"), "slow": (True, "cancelled")}
