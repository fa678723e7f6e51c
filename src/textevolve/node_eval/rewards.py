"""Rewards for training: one line of JSON a node, with a reward from each evaluator.

A reward that is missing is null, never 0: whoever trains leaves it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.episode_evaluation import PlacedNode
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.node_lines import describe_run, encode_line


def collect_names(nodes: Iterable[PlacedNode]) -> tuple[str, ...]:
    """Every evaluator that has looked at a node, in the order in which they are met."""
    names: dict[str, None] = {}
    for node in nodes:
        names |= dict.fromkeys(node.item.evaluation_results)
    return tuple(names)


def check_weights(weights: Mapping[str, float], names: Sequence[str]) -> None:
    """
    Raises:
        InputError: a weight is of no evaluator, is no number from 0 on, or all are 0.
    """
    for name, weight in weights.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise InputError(f"weight of '{name}': no such evaluator; there are: {known}")
        if not (math.isfinite(weight) and weight >= 0):
            raise InputError(f"weight of '{name}': must be 0 or more, not {weight}")
    if weights and not any(weights.values()):
        raise InputError("all weights are 0; at least one must be above 0")


def write_rewards(
    nodes: Iterable[PlacedNode],
    names: Sequence[str],
    file: IO[bytes],
    weights: Mapping[str, float] | None = None,
) -> int:
    """A line for each node to an open file, with a reward, or null, from each of the evaluators in
    `names`; gives the number of lines. With `weights` each has a `total` too; see `weigh`.

    Raises:
        InputError: a weight cannot be used.
    """
    check_weights(weights or {}, names)
    number = 0
    for node in nodes:
        file.write(encode_line(describe_reward(node, names, weights)))
        number += 1
    return number


def describe_reward(
    node: PlacedNode, names: Sequence[str], weights: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """A node as its line of rewards has it."""
    item = node.item
    line: dict[str, Any] = {
        "episode": node.episode,
        **describe_run(item),
        "step": node.step,
        "node": item.node,
        "path": list(item.path),
        "instruction": item.instruction.name if item.instruction else None,
        "input": item.input_state,
        "output": item.output_state,
        "error": item.error,
        "rewards": {name: score_of(item, name) for name in names},
    }
    return {**line, "total": weigh(item, weights)} if weights else line


def weigh(item: HistoryItem, weights: Mapping[str, float]) -> float | None:
    """The weighted mean of the scores of the evaluators that were to judge this node; None where
    there is none, or where one of them has no score: half a sum is another reward."""
    asked = {name: weight for name, weight in weights.items() if name in item.evaluation_results}
    scores = {name: score_of(item, name) for name in asked}
    total = sum(asked.values())
    if not total or any(scores[name] is None for name, weight in asked.items() if weight):
        return None
    return sum((scores[name] or 0.0) * weight for name, weight in asked.items()) / total


def score_of(item: HistoryItem, name: str) -> float | None:
    result: EvaluationResult | Failure | None = item.evaluation_results.get(name)
    return result.score if isinstance(result, EvaluationResult) else None
