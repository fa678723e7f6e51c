"""The API of the package `arbiteros_alpha` (ArbiterOS), implemented with this project's monitor.

    from textevolve.node_eval.arbiteros import ArbiterOSAlpha, ThresholdEvaluator
    from textevolve.node_eval.arbiteros.instructions import CognitiveCore

Code that uses the published evaluators and histories runs once the name of the package is changed
in its imports. ArbiterOS's policies, which can stop a node or redirect a graph, are not
implemented: this package only records and judges nodes.
"""

from __future__ import annotations

from textevolve.node_eval.arbiteros.core import ArbiterOSAlpha
from textevolve.node_eval.arbiteros.evaluation import (
    EvaluationResult,
    NodeEvaluator,
    ThresholdEvaluator,
)
from textevolve.node_eval.arbiteros.history import History, HistoryItem

__all__ = [
    "ArbiterOSAlpha",
    "EvaluationResult",
    "History",
    "HistoryItem",
    "NodeEvaluator",
    "ThresholdEvaluator",
]
