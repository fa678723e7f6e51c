"""Evaluators of nodes that call no model: consistency with earlier nodes, duration and tokens.

They judge the output of the agent. If the field to judge is missing or was truncated, the
evaluation is a failure, and the node has no score. `state_fields.py` reads fields.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from textevolve.errors import InputError
from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.evaluators import (
    NodeEvaluator,
    NodeOutcome,
    Targets,
    is_number,
)
from textevolve.node_eval.history import History, HistoryItem
from textevolve.node_eval.state_fields import (
    NO_OUTPUT,
    FieldError,
    as_text,
    read_value,
)
from textevolve.texts.prose import split_words

LOOK_BACK = 200
"""The number of supersteps that are searched for earlier nodes."""


class ConsistencyEvaluator(NodeEvaluator):
    """An evaluator that compares a field of the output with the last `earlier` nodes of the same
    kind. score = the mean similarity to them; passed = the score is at least `threshold`. Earlier
    nodes that failed or lack the field are passed over; without a usable one there is no score.

    `key`: the field to compare; None: the text of the output. `of_same`: whether nodes of the same
    name, or of the same instruction, are compared. The similarity of numbers is their ratio, and
    that of other values the share of common words.
    """

    def __init__(
        self,
        name: str,
        key: str | None = None,
        *,
        earlier: int = 5,
        threshold: float = 0.5,
        of_same: Literal["node", "instruction"] = "node",
        target_instructions: Targets = None,
    ) -> None:
        super().__init__(name, target_instructions)
        self.key, self.earlier, self.threshold = key, earlier, threshold
        self.of_same = of_same

    def evaluate(self, history: History) -> NodeOutcome:
        item = history.entries[-1][-1]
        if item.output_state is None:
            return Failure("skipped", NO_OUTPUT)
        value = read_value(item.output_state, self.key, "output")
        shares: list[float] = []
        for other in self._earlier(history, item):
            try:
                shares.append(similarity(value, read_value(other.output_state, self.key, "output")))
            except FieldError:  # that one has nothing to compare with
                continue
            if len(shares) == self.earlier:
                break
        if not shares:
            return Failure("skipped", "no earlier node to compare with")
        score = min(1.0, sum(shares) / len(shares))
        passed = score >= self.threshold
        return EvaluationResult(
            score,
            passed,
            f"{score:.0%} similar to {len(shares)} earlier nodes; {self.threshold:.0%} is needed",
            {"compared": len(shares)},
        )

    def _earlier(self, history: History, item: HistoryItem) -> Iterator[HistoryItem]:
        """Yield the earlier successful nodes of the same kind, the nearest first."""
        own = history.entries[-1][:-1]
        for step in (own, *reversed(history.entries[-LOOK_BACK - 1 : -1])):
            for other in reversed(step):
                same = getattr(other, self.of_same) == getattr(item, self.of_same)
                if same and other.error is None:
                    yield other


def similarity(one: Any, other: Any) -> float:
    """Return how similar two plain values are, in [0, 1]; 1 if they are equal."""
    if one == other:
        return 1.0
    if is_number(one) and is_number(other):
        return max(0.0, 1 - abs(one - other) / max(abs(one), abs(other)))
    return _share_of_words(as_text(one), as_text(other))


def _share_of_words(one: str, other: str) -> float:
    """Return the Dice similarity: twice the number of common words, divided by the words of
    both."""
    left, right = (Counter(split_words(text.lower())) for text in (one, other))
    words = left.total() + right.total()
    return 2 * (left & right).total() / words if words else 0.0


class LatencyEvaluator(NodeEvaluator):
    """An evaluator that compares the duration of a node with a budget in seconds. passed = it took
    at most `budget`. score = 1 within the budget; above it, budget / measured seconds."""

    unit = "seconds"

    def __init__(self, name: str, budget: float, *, target_instructions: Targets = None) -> None:
        super().__init__(name, target_instructions)
        if not is_number(budget) or not 0 < budget < math.inf:
            raise InputError(f"evaluator '{name}': the budget must be a number above 0")
        self.budget = budget

    def evaluate(self, history: History) -> NodeOutcome:
        used: float | None = getattr(history.entries[-1][-1], self.unit)
        if used is None:
            return Failure("skipped", f"how many {self.unit} the node used is not known")
        passed = used <= self.budget
        shown = [f"{n:,}" if isinstance(n, int) else f"{n:.3g}" for n in (used, self.budget)]
        feedback = f"{shown[0]} of {shown[1]} {self.unit}"
        score = 1.0 if passed else self.budget / used
        return EvaluationResult(score, passed, feedback, {self.unit: used})


class TokenEvaluator(LatencyEvaluator):
    """An evaluator that compares the number of tokens of a node with a budget, as
    `LatencyEvaluator` compares seconds."""

    unit = "tokens"
