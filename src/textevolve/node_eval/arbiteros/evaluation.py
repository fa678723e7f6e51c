"""Evaluators as ArbiterOS publishes them: their results can be changed, and bear check marks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from textevolve.node_eval import evaluators as ours
from textevolve.node_eval.evaluators import NodeEvaluator

__all__ = ["EvaluationResult", "NodeEvaluator", "ThresholdEvaluator"]


@dataclass(slots=True)
class EvaluationResult:
    """As `textevolve.EvaluationResult`, but its parts can be set."""

    score: float
    passed: bool
    feedback: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class ThresholdEvaluator(ours.ThresholdEvaluator):
    """As ours, but the feedback reads as the published one: `sure=0.90 (✓ threshold=0.7)`."""

    def evaluate(self, history: Any) -> Any:
        found = super().evaluate(history)
        value, feedback = found.metadata["value"], found.feedback
        if ours.is_number(value):
            mark = "✓" if found.passed else "✗"
            feedback = f"{self.key}={value:.2f} ({mark} threshold={self.threshold})"
        return EvaluationResult(found.score, found.passed, feedback, dict(found.metadata))
