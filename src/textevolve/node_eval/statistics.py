"""What evaluators said in all, counted while episodes go by."""

from __future__ import annotations

from dataclasses import dataclass, field

from textevolve.evaluation import EvaluationResult, Failure
from textevolve.node_eval.episodes import Episode


@dataclass(slots=True)
class Tally:
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
class Tallies:
    """Episodes, nodes, the nodes that failed themselves, and a `Tally` for each evaluator."""

    episodes: int = 0
    nodes: int = 0
    errors: int = 0
    by_evaluator: dict[str, Tally] = field(default_factory=dict[str, Tally])

    def add(self, episode: Episode) -> None:
        self.episodes += 1
        for item in episode.history.items:
            self.nodes += 1
            self.errors += item.error is not None and not item.interrupted
            for name, outcome in item.evaluation_results.items():
                self.by_evaluator.setdefault(name, Tally()).add(outcome, item.node)
