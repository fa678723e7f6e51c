"""The node API as ArbiterOS publishes it (`arbiteros_alpha`), over this project's monitor.

    from textevolve.node_eval.arbiteros import ArbiterOSAlpha, ThresholdEvaluator
    from textevolve.node_eval.arbiteros.instructions import CognitiveCore

Code for the published evaluators and histories runs with the name of the package changed. Policies
are not here: nothing of ours stops a node or sends a graph elsewhere.
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
