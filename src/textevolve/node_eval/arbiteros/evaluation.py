"""The evaluators and results of this project under the module's name in ArbiterOS."""

from __future__ import annotations

from dataclasses import replace

from textevolve.evaluation import EvaluationResult
from textevolve.node_eval import evaluators as ours
from textevolve.node_eval.evaluators import NodeEvaluator
from textevolve.node_eval.history import History


class ThresholdEvaluator(ours.ThresholdEvaluator):
    """A threshold whose feedback has the published form, which scripts parse:
    `sure=0.90 (✓ threshold=0.7)`."""

    def evaluate(self, history: History) -> EvaluationResult:
        result = super().evaluate(history)
        value = result.metadata["value"]
        if not ours.is_number(value):
            return result
        mark = "✓" if result.passed else "✗"
        feedback = f"{self.key}={value:.2f} ({mark} threshold={self.threshold})"
        return replace(result, feedback=feedback)


__all__ = ["EvaluationResult", "NodeEvaluator", "ThresholdEvaluator"]
