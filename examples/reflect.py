"""A LangGraph agent that reflects: what evaluators say of a draft makes the next draft better.

    python examples/reflect.py [MODEL]

The writer does not know the rules in advance. After each draft `reflect` asks the monitor what the
evaluators made of it, and sends the writer back with their feedback until all of them are content.
Needs the extra `langgraph`; without MODEL, a local one answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from textevolve import EvaluationResult, TextEvolveError
from textevolve.llm.model import Message, Request
from textevolve.loops.rules import parse_rules
from textevolve.node_eval import (
    GENERATE,
    REFLECT,
    History,
    JudgeEvaluator,
    Monitor,
    NodeEvaluator,
)
from textevolve.settings import read_settings
from textevolve.wiring import choose_model, open_models

TASK = "Explain to a child of six why there are tides. Answer in plain prose."
ATTEMPTS = 4
SHORT = parse_rules("rules:\n  - {kind: length, max: 40}")
Ask = Callable[..., Awaitable[str]]


class State(TypedDict, total=False):
    draft: str
    feedback: str
    attempts: int


class NamesTheMoon(NodeEvaluator):
    """An evaluator of one's own: a class with a method `evaluate`."""

    def evaluate(self, history: History) -> EvaluationResult:
        named = "moon" in history.entries[-1][-1].output_state["draft"].lower()
        return EvaluationResult(float(named), named, "" if named else "Say what the moon does.")


def build(ask: Ask, monitor: Monitor) -> Any:
    async def write(state: State) -> State:
        texts = [TASK]
        if feedback := state.get("feedback"):
            texts += [
                state["draft"],
                f"Write it again, better:\n{feedback}\nGive the text alone.",
            ]
        return {"draft": await ask(*texts), "attempts": state.get("attempts", 0) + 1}

    def reflect(state: State) -> State:
        feedback = monitor.last_feedback("write")
        return {"feedback": feedback.text if feedback else ""}

    def choose(state: State) -> str:
        return "write" if state["feedback"] and state["attempts"] < ATTEMPTS else END

    graph: Any = StateGraph(State)
    graph.add_node("write", write)
    graph.add_node("reflect", reflect)
    graph.add_edge(START, "write")
    graph.add_edge("write", "reflect")
    graph.add_conditional_edges("reflect", choose, ["write", END])
    return monitor.attach(graph.compile(), {"write": GENERATE, "reflect": REFLECT})


class Forgetful:
    """A journal that keeps nothing, so that every run asks the model anew."""

    async def find(self, key: str) -> None:
        return None

    async def append(self, entry: object) -> None:
        pass


async def run(model: str | None) -> None:
    settings = read_settings()
    spec, _ = await choose_model(settings, model)
    async with open_models(settings, Forgetful()) as model_of:

        async def ask(*texts: str) -> str:
            roles = ("user", "assistant", "user")
            messages = tuple(
                Message(role, (text,)) for role, text in zip(roles, texts, strict=False)
            )
            answer = await model_of(spec)(
                Request(messages=messages, temperature=0.0, max_tokens=200)
            )
            return answer.text.strip()

        evaluators = [
            JudgeEvaluator(
                "length",
                SHORT,
                output_key="draft",
                target_instructions=[GENERATE],
                background=False,
            ),
            NamesTheMoon("moon", [GENERATE]),
        ]
        async with Monitor(evaluators) as monitor:
            result = await build(ask, monitor).ainvoke({})
    for item in monitor.history.items:
        if item.node == "write":
            print(f"{item.output_state['draft']}\n")
    print(monitor.history)
    left = result["feedback"] or "all evaluators are content"
    print(f"\n{result['attempts']} attempts with {spec}; {left}")


if __name__ == "__main__":
    try:
        asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else None))
    except TextEvolveError as error:
        sys.exit(f"error: {error}")
