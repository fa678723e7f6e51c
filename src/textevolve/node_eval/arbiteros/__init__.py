"""The node API as ArbiterOS publishes it (`arbiteros_alpha`), over this project's monitor.

    from textevolve.node_eval.arbiteros import ArbiterOSAlpha, ThresholdEvaluator
    from textevolve.node_eval.arbiteros.instructions import CognitiveCore

Code for the published evaluators and histories runs with the name of the package changed. Policies
are not here: nothing of ours stops a node or sends a graph elsewhere.
"""

from __future__ import annotations

from typing import Any

from textevolve.errors import InputError
from textevolve.node_eval.arbiteros.core import NO_POLICIES, ArbiterOSAlpha
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


def __getattr__(name: str) -> Any:
    if "Policy" in name:
        raise InputError(f"{name}: {NO_POLICIES}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
