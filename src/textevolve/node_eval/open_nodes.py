"""A node of an agent from its beginning until something is said of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.history import HistoryItem
from textevolve.node_eval.instructions import Instruction
from textevolve.node_eval.run_records import NodeRun
from textevolve.node_eval.workers import EvaluationJob


@dataclass(slots=True, eq=False)
class OpenNode:
    """A node that has begun. `item` is there once it has ended, and its `job` where it counts."""

    name: str
    instruction: Instruction | None
    input_state: Any
    step: Hashable | None
    path: tuple[str, ...]
    run: NodeRun
    timestamp: float
    ignored: bool
    began: float
    item: HistoryItem | None = None
    job: EvaluationJob | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the evaluators said of a node. `results`: by the evaluator's name, those that are there
    by now. `error`: how the node itself failed. `run_id`: the run that it belongs to."""

    node: str
    results: Mapping[str, EvaluationResult | Failure]
    error: str | None = None
    run_id: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether every score passed; None where there is no score."""
        scored = [one.passed for one in self.results.values() if isinstance(one, EvaluationResult)]
        return all(scored) if scored else None

    @property
    def text(self) -> str:
        """A line for each evaluator that the node did not pass, to be shown to whoever tries again;
        empty where there is none."""
        lines = [f"{self.node}: {self.error}"] if self.error else []
        lines += [
            f"{name}: {one.feedback or 'not passed'}"
            for name, one in self.results.items()
            if isinstance(one, EvaluationResult) and not one.passed
        ]
        return "\n".join(lines)
