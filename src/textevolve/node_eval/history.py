"""What an agent did: supersteps, each with the nodes that ran in it side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.instructions import Instruction


@dataclass(slots=True, kw_only=True)
class HistoryItem:
    """One node that ran. It grows while its evaluators finish, and by nothing else.

    `timestamp`: Unix time when it began. States are snapshots; `output_state` is None where the
    node failed, and `error` says how. `evaluation_results`: by the evaluator's name. `path`: the
    graphs that it ran in, the outermost first, empty without any. `seconds` it took; `tokens` it
    used, None where unknown.
    """

    timestamp: float
    instruction: Instruction | None = None
    input_state: Any = None
    output_state: Any = None
    evaluation_results: dict[str, EvaluationResult | Failure] = field(
        default_factory=dict[str, EvaluationResult | Failure]
    )
    node: str = ""
    path: tuple[str, ...] = ()
    seconds: float | None = None
    tokens: int | None = None
    error: str | None = None


@dataclass(slots=True)
class History:
    """`entries`: a list of supersteps, each a list of items; the node that ran last is
    `entries[-1][-1]`."""

    entries: list[list[HistoryItem]] = field(default_factory=list[list[HistoryItem]])

    @property
    def items(self) -> Iterator[HistoryItem]:
        """Every node in order, whatever superstep it stands in."""
        return (item for step in self.entries for item in step)
