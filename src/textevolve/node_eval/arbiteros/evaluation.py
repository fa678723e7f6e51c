"""Evaluators and results under the names of ArbiterOS; they are this project's own."""

from __future__ import annotations

from textevolve.evaluation import EvaluationResult
from textevolve.node_eval.evaluators import NodeEvaluator, ThresholdEvaluator

__all__ = ["EvaluationResult", "NodeEvaluator", "ThresholdEvaluator"]
