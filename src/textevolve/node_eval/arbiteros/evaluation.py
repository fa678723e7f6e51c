"""The evaluators and results of this project under the module's name in ArbiterOS."""

from __future__ import annotations

from textevolve.evaluation import EvaluationResult
from textevolve.node_eval.evaluators import NodeEvaluator, ThresholdEvaluator

__all__ = ["EvaluationResult", "NodeEvaluator", "ThresholdEvaluator"]
