"""A LangGraph graph of 1,000 trivial nodes, with and without a monitor: what does a node cost more?

    python benchmarks/node_overhead.py [--nodes 1000] [--repeats 15]

In one process, the ways by turns, so that the machine's moods hit all alike:

- alone: `graph.invoke`, no callbacks;
- callbacks: with a LangChain handler that does nothing, which is what LangChain itself takes to
  tell anybody of a node;
- recorded: attached to a monitor without evaluators: the history and its snapshots;
- monitor: with three evaluators that ask no model, from the call until the result is there. They
  run in a thread of the monitor's own; what they take from the one interpreter meanwhile is in it;
- drained: the same, until every node is judged.

For each the wall time, and the processor time of the whole process, which others on the machine
change less. `added` is the least processor time less the least of `alone`, since what others do
only ever adds; `share` is of LangGraph's own.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from importlib.metadata import version
from typing import Any, TypeAlias, TypedDict

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.graph import START, StateGraph

from sitting import describe_machine
from textevolve.node_eval import (
    GENERATE,
    EvaluationResult,
    History,
    Instruction,
    LatencyEvaluator,
    Monitor,
    NodeEvaluator,
    ThresholdEvaluator,
)


class State(TypedDict, total=False):
    turn: int
    text: str
    quality: float


class Nothing(BaseCallbackHandler):
    run_inline = True


class Says(NodeEvaluator):
    """Whether the node's text has a word, as a user's own rule would ask."""

    def evaluate(self, history: History) -> EvaluationResult:
        is_present = "tide" in history.entries[-1][-1].output_state["text"]
        return EvaluationResult(
            float(is_present), is_present, "" if is_present else "Speak of the tide."
        )


def build(nodes: int) -> Any:
    """A chain: each node is a superstep of its own."""
    graph: Any = StateGraph(State)
    before = START
    for n in range(nodes):

        def node(state: State, n: int = n) -> State:
            return {"turn": n, "text": f"The tide turns {n} times.", "quality": 0.9}

        graph.add_node(f"node {n}", node)
        graph.add_edge(before, f"node {n}")
        before = f"node {n}"
    return graph.compile()


def evaluators() -> list[NodeEvaluator]:
    return [
        ThresholdEvaluator("quality", "quality", 0.8),
        LatencyEvaluator("latency", 60),
        Says("says"),
    ]


Spent: TypeAlias = tuple[float, float]
"""Seconds a node: wall, processor."""


def run_alone(graph: Any, nodes: int) -> dict[str, Spent]:
    return {"alone": measure(graph, nodes)}


def run_callbacks(graph: Any, nodes: int) -> dict[str, Spent]:
    return {"callbacks": measure(graph.with_config(callbacks=[Nothing()]), nodes)}


def run_recorded(graph: Any, nodes: int) -> dict[str, Spent]:
    monitor = Monitor()
    return {"recorded": measure(monitor.attach(graph, name_all(nodes)), nodes)}


def run_monitor(graph: Any, nodes: int) -> dict[str, Spent]:
    monitor = Monitor(evaluators(), queue_size=nodes)
    watched = monitor.attach(graph, name_all(nodes))
    until_result = measure(watched, nodes)
    began = clocks()
    monitor.close()
    drained = until(began, nodes)
    judged = sum(
        isinstance(result, EvaluationResult)
        for item in monitor.history.items
        for result in item.evaluation_results.values()
    )
    if judged != 3 * nodes:
        sys.exit(f"{judged} results, not {3 * nodes}: {monitor.dropped=}, {monitor.failed=}")
    both = (until_result[0] + drained[0], until_result[1] + drained[1])
    return {"monitor": until_result, "drained": both}


def name_all(nodes: int) -> dict[str, Instruction]:
    return {f"node {n}": GENERATE for n in range(nodes)}


def clocks() -> Spent:
    return time.perf_counter(), time.process_time()


def until(began: Spent, nodes: int) -> Spent:
    wall, processor = clocks()
    return (wall - began[0]) / nodes, (processor - began[1]) / nodes


def measure(graph: Any, nodes: int) -> Spent:
    gc.collect()
    began = clocks()
    result = graph.invoke({"turn": -1}, {"recursion_limit": nodes + 10})
    spent = until(began, nodes)
    assert result["turn"] == nodes - 1
    return spent


def show(spent: dict[str, list[Spent]]) -> None:
    bare = min(processor for _, processor in spent["alone"])
    print("µs a node   wall: least   median   processor: least   median    added    share")
    for way, runs in spent.items():
        walls, processors = zip(*runs, strict=True)
        added = min(processors) - bare
        row = f"{way:10} {min(walls) * 1e6:12.1f} {statistics.median(walls) * 1e6:8.1f}"
        row += f" {min(processors) * 1e6:18.1f} {statistics.median(processors) * 1e6:8.1f}"
        print(row if way == "alone" else f"{row} {added * 1e6:8.1f} {added / bare:8.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    print(describe_machine())
    print(f"langgraph {version('langgraph')}, {options.nodes:,} nodes, {options.repeats} repeats")
    graph = build(options.nodes)
    ways = [run_alone, run_callbacks, run_recorded, run_monitor]
    spent: dict[str, list[Spent]] = {}
    for repeat in range(-1, options.repeats):  # the first only loads what is loaded once
        for way in ways if repeat % 2 else ways[::-1]:
            for name, times in way(graph, options.nodes).items():
                if repeat >= 0:
                    spent.setdefault(name, []).append(times)
    names = ("alone", "callbacks", "recorded", "monitor", "drained")
    show({name: spent[name] for name in names})


if __name__ == "__main__":
    main()
