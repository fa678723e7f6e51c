"""Totals of evaluators' results, added up node by node."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from textevolve.evaluation import EvaluationResult, Failure, empty_default
from textevolve.node_eval.history import HistoryItem

MOST_REASONS = 20
"""The maximum number of different reasons that are counted."""


@dataclass(slots=True)
class EvaluatorStatistics:
    """The outcomes of one evaluator. `scored`: the number of nodes with a score, `passed`: of those
    that passed. `failed`: the number of evaluations that gave no usable result; `skipped`: of those
    that were not made. `total`: the sum of the scores. `reason`: the reason of the first outcome
    without a score."""

    scored: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    total: float = 0.0
    reason: str = ""

    @property
    def mean(self) -> float | None:
        """Return the mean score of the nodes that have a score; None without any."""
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
class NodeStatistics:
    """The numbers of episodes, nodes and failed nodes (`errors`), and the results of each
    evaluator. `failed`: the number of nodes for which an evaluator failed. Of the other nodes,
    `judged` have a score, and `skipped` have evaluations that were all skipped. `without_output`:
    the number of nodes without a recorded output. `reasons`: the first reasons of outcomes without
    a score, with their numbers."""

    episodes: int = 0
    nodes: int = 0
    errors: int = 0
    judged: int = 0
    failed: int = 0
    skipped: int = 0
    without_output: int = 0
    reasons: Counter[str] = empty_default(Counter)
    by_evaluator: dict[str, EvaluatorStatistics] = empty_default(dict)
    _episode: str | None = None

    def add(self, episode: str, item: HistoryItem) -> None:
        """Count one more node; the nodes of an episode must come one after another."""
        self.episodes += episode != self._episode
        self._episode = episode
        self.nodes += 1
        self.errors += item.error is not None and not item.interrupted
        self.without_output += item.output_state is None
        outcomes = item.evaluation_results
        failures = [each for each in outcomes.values() if isinstance(each, Failure)]

        if any(failure.kind == "failed" for failure in failures):
            self.failed += 1
        elif len(failures) < len(outcomes):
            self.judged += 1
        elif failures:
            self.skipped += 1

        for failure in failures:
            if failure.reason in self.reasons or len(self.reasons) < MOST_REASONS:
                self.reasons[failure.reason] += 1
        for name, outcome in outcomes.items():
            self.by_evaluator.setdefault(name, EvaluatorStatistics()).add(outcome, item.node)
