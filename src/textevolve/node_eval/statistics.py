"""What evaluators said in all, counted while nodes go by: by evaluator, and by type of node."""

from __future__ import annotations

from dataclasses import dataclass, field

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.history import HistoryItem


@dataclass(slots=True)
class EvaluatorStatistics:
    """The outcomes of one evaluator. `failed`: asked without a usable answer; `skipped`: not
    asked. `reason`: why the first that has no score has none."""

    scored: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    total: float = 0.0
    reason: str = ""

    @property
    def mean(self) -> float | None:
        """The mean score of the nodes that have one; None without any."""
        return self.total / self.scored if self.scored else None

    def add(self, outcome: EvaluationResult | Failure, node: str) -> None:
        if isinstance(outcome, Failure):
            self.failed += outcome.kind == "failed"
            self.skipped += outcome.kind == "skipped"
            self.reason = self.reason or f"{node}: {outcome.reason}"
        else:
            self.scored += 1
            self.passed += outcome.passed
            self.total += outcome.score


@dataclass(slots=True)
class TypeStatistics:
    """Nodes of one type, and what each evaluator said of them."""

    nodes: int = 0
    by_evaluator: dict[str, EvaluatorStatistics] = field(
        default_factory=dict[str, EvaluatorStatistics]
    )

    def add(self, item: HistoryItem) -> None:
        self.nodes += 1
        for name, outcome in item.evaluation_results.items():
            self.by_evaluator.setdefault(name, EvaluatorStatistics()).add(outcome, item.node)


@dataclass(slots=True)
class NodeStatistics:
    """Episodes, the nodes that failed themselves, and what was said `of_all` nodes and of those of
    each type, by its name; nodes of no type are under an empty one."""

    episodes: int = 0
    errors: int = 0
    of_all: TypeStatistics = field(default_factory=TypeStatistics)
    by_type: dict[str, TypeStatistics] = field(default_factory=dict[str, TypeStatistics])
    _episode: str | None = None

    def add(self, episode: str, item: HistoryItem) -> None:
        """Count one more node; the nodes of an episode stand together."""
        self.episodes += episode != self._episode
        self._episode = episode
        self.errors += item.error is not None and not item.interrupted
        name = item.instruction.name if item.instruction else ""
        for one in (self.of_all, self.by_type.setdefault(name, TypeStatistics())):
            one.add(item)
