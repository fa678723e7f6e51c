"""`examples/reflect.py` on the scripted server: feedback reaches the model, and ends the loop."""

import runpy
import sys
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from textevolve.node_eval import GENERATE, Monitor, ThresholdEvaluator

EXAMPLE = Path(__file__).parents[2] / "examples" / "reflect.py"
LONG = "The sea goes up and down. " * 10
SHORT = "The moon pulls the sea up, and lets it go again."


def show(server, model, monkeypatch, capsys, script):
    server.script = script
    monkeypatch.setattr(sys, "argv", ["reflect.py", model])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


def test_feedback_makes_the_next_draft_better(home, server, model, monkeypatch, capsys):
    def script(body, number):
        return SHORT if len(body["messages"]) > 1 else LONG

    shown = show(server, model, monkeypatch, capsys, script)
    assert "length  0.67 not passed: 60 words, at most 40 are wanted" in shown
    assert f"2 attempts with {model}; all evaluators are content" in shown
    _, second = server.requests
    *_, draft, told = [message["content"] for message in second["messages"]]
    assert draft == LONG.strip()
    assert "60 words, at most 40 are wanted" in told
    assert "Say what the moon does." in told


def test_the_example_ends_where_nothing_helps(home, server, model, monkeypatch, capsys):
    shown = show(server, model, monkeypatch, capsys, lambda body, number: LONG)
    assert "4 attempts" in shown
    assert "moon: Say what the moon does." in shown.splitlines()[-1]


class State(TypedDict):
    sure: float


def test_a_node_may_ask_what_was_said_of_the_one_before():
    """While the graph runs; of the latest run of the node."""
    heard = []

    def judge(state):
        heard.append(monitor.last_feedback("guess").passed)
        return {}

    graph = StateGraph(State)
    graph.add_node("guess", lambda state: {"sure": state["sure"] + 0.4})
    graph.add_node("judge", judge)
    graph.add_edge(START, "guess")
    graph.add_edge("guess", "judge")
    graph.add_conditional_edges("judge", lambda state: END if heard[-1] else "guess")
    with Monitor([ThresholdEvaluator("sure", "sure", 0.7, [GENERATE])]) as monitor:
        monitor.attach(graph.compile(), {"guess": GENERATE}).invoke({"sure": 0})
    assert heard == [False, True]
