"""Evaluators over recorded runs: each node as it stood when it had just run."""

import asyncio

import pytest

from textevolve.errors import AccessError
from textevolve.evaluation import EvaluationResult
from textevolve.node_eval.evaluators import NodeEvaluator
from textevolve.node_eval.history import History, HistoryItem, Instruction
from textevolve.node_eval.judging import Episode, evaluate_episodes


def recorded():
    steps = [["a"], ["b", "c"], ["d"]]
    names = [name for step in steps for name in step]
    return Episode(
        "run",
        History(
            [
                [
                    HistoryItem(
                        timestamp=0,
                        instruction=Instruction.GENERATE if name != "c" else Instruction.LOAD,
                        output_state={"name": name, "score": 0.5},
                        evaluation_results={"old": EvaluationResult(1.0, True)},
                        node=name,
                        order=names.index(name) + 1,
                    )
                    for name in step
                ]
                for step in steps
            ]
        ),
    )


class Custom(NodeEvaluator):
    def __init__(self, name, does, **more):
        super().__init__(name, **more)
        self.does = does

    def evaluate(self, history):
        return self.does(history)


async def evaluate(episode, *evaluators, concurrency=256):
    return [node async for node in evaluate_episodes([episode], evaluators, concurrency)]


async def outcomes(*evaluators, **more):
    nodes = await evaluate(recorded(), *evaluators, **more)
    return {node.item.node: node.item.evaluation_results for node in nodes}


async def test_each_node_is_judged_with_what_had_run_before_it():
    seen = {}

    def look(history):
        shape = [[item.node for item in step] for step in history.entries]
        seen[shape[-1][-1]] = shape
        return EvaluationResult(1.0, True)

    await outcomes(Custom("look", look))
    assert seen == {
        "a": [["a"]],
        "b": [["a"], ["b"]],
        "c": [["a"], ["b", "c"]],
        "d": [["a"], ["b", "c"], ["d"]],
    }


async def test_what_no_call_can_mend_ends_it():
    async def refuse(_history):
        raise AccessError("wrong key")

    with pytest.raises(AccessError):
        await outcomes(Custom("judge", refuse))


async def test_no_more_are_asked_at_a_time_than_allowed():
    running, most = 0, 0

    async def count(_history):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return EvaluationResult(1.0, True)

    await outcomes(Custom("count", count), Custom("count too", count), concurrency=2)
    assert most == 2


async def test_nodes_come_in_their_order_as_they_are_judged_and_what_was_recorded_is_not_changed():
    episode, waiting = recorded(), asyncio.Event()

    async def wait_for_the_last(history):
        if history.entries[-1][-1].node == "d":
            await waiting.wait()
        return EvaluationResult(1.0, True)

    matches = []
    async for node in evaluate_episodes([episode], [Custom("look", wait_for_the_last)], 8):
        matches.append((node.episode, node.step, node.item.node))
        if node.item.node == "c":
            waiting.set()
    assert matches == [("run", 0, "a"), ("run", 1, "b"), ("run", 1, "c"), ("run", 2, "d")]
    assert all(list(item.evaluation_results) == ["old"] for item in episode.history.items)
