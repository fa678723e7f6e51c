"""Judging each step of an agent's run, beside it: never in its way, never changing it.

    from textevolve.node_eval import GENERATE, Monitor, ThresholdEvaluator

After ArbiterOS. Here live the history, the evaluators of nodes and what watches a run; LangGraph is
known to one file. Keeping a run and the command line live above. The names below are loaded when
they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textevolve.evaluation import EvaluationResult, Failure
    from textevolve.node_eval.checks import (
        ConsistencyEvaluator,
        LatencyEvaluator,
        LengthEvaluator,
        RulesEvaluator,
        SchemaEvaluator,
        TokenEvaluator,
    )
    from textevolve.node_eval.evaluators import NodeEvaluator, ThresholdEvaluator
    from textevolve.node_eval.history import History, HistoryItem
    from textevolve.node_eval.instructions import (
        ADAPT_RESPONSE,
        COMMUNICATE,
        COMPRESS,
        CONSTRAIN,
        DECOMPOSE,
        DELEGATE,
        EVALUATE_PROGRESS,
        FALLBACK,
        FILTER,
        FORM_COALITION,
        FORMULATE_EXPERIMENT,
        GENERATE,
        INFER_INTENT,
        INTERRUPT,
        LEARN_PREFERENCE,
        LOAD,
        MANAGE_TRUST,
        MODEL_USER_STATE,
        MONITOR_RESOURCES,
        NEGOTIATE,
        PREDICT_SUCCESS,
        PROPOSE_VOTE,
        REFINE_SKILL,
        REFLECT,
        RENDER,
        RESPOND,
        STORE,
        STRUCTURE,
        TOOL_BUILD,
        TOOL_CALL,
        UPDATE_KNOWLEDGE,
        VERIFY,
        Adaptive,
        Affective,
        Cognitive,
        Execution,
        Instruction,
        Memory,
        Metacognitive,
        Normative,
        Social,
    )
    from textevolve.node_eval.judging import JudgeEvaluator, NodeJudge
    from textevolve.node_eval.monitor import Monitor
    from textevolve.node_eval.open_nodes import Feedback, OpenNode
    from textevolve.node_eval.snapshots import SnapshotLimits

_HOMES = {
    "textevolve.evaluation": (
        "EvaluationResult",
        "Failure",
    ),
    "textevolve.node_eval.checks": (
        "ConsistencyEvaluator",
        "LatencyEvaluator",
        "LengthEvaluator",
        "RulesEvaluator",
        "SchemaEvaluator",
        "TokenEvaluator",
    ),
    "textevolve.node_eval.evaluators": (
        "NodeEvaluator",
        "ThresholdEvaluator",
    ),
    "textevolve.node_eval.history": (
        "History",
        "HistoryItem",
    ),
    "textevolve.node_eval.instructions": (
        "ADAPT_RESPONSE",
        "Adaptive",
        "Affective",
        "COMMUNICATE",
        "COMPRESS",
        "CONSTRAIN",
        "Cognitive",
        "DECOMPOSE",
        "DELEGATE",
        "EVALUATE_PROGRESS",
        "Execution",
        "FALLBACK",
        "FILTER",
        "FORMULATE_EXPERIMENT",
        "FORM_COALITION",
        "GENERATE",
        "INFER_INTENT",
        "INTERRUPT",
        "Instruction",
        "LEARN_PREFERENCE",
        "LOAD",
        "MANAGE_TRUST",
        "MODEL_USER_STATE",
        "MONITOR_RESOURCES",
        "Memory",
        "Metacognitive",
        "NEGOTIATE",
        "Normative",
        "PREDICT_SUCCESS",
        "PROPOSE_VOTE",
        "REFINE_SKILL",
        "REFLECT",
        "RENDER",
        "RESPOND",
        "STORE",
        "STRUCTURE",
        "Social",
        "TOOL_BUILD",
        "TOOL_CALL",
        "UPDATE_KNOWLEDGE",
        "VERIFY",
    ),
    "textevolve.node_eval.judging": (
        "JudgeEvaluator",
        "NodeJudge",
    ),
    "textevolve.node_eval.monitor": ("Monitor",),
    "textevolve.node_eval.open_nodes": (
        "Feedback",
        "OpenNode",
    ),
    "textevolve.node_eval.snapshots": ("SnapshotLimits",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ADAPT_RESPONSE",
    "COMMUNICATE",
    "COMPRESS",
    "CONSTRAIN",
    "DECOMPOSE",
    "DELEGATE",
    "EVALUATE_PROGRESS",
    "FALLBACK",
    "FILTER",
    "FORMULATE_EXPERIMENT",
    "FORM_COALITION",
    "GENERATE",
    "INFER_INTENT",
    "INTERRUPT",
    "LEARN_PREFERENCE",
    "LOAD",
    "MANAGE_TRUST",
    "MODEL_USER_STATE",
    "MONITOR_RESOURCES",
    "NEGOTIATE",
    "PREDICT_SUCCESS",
    "PROPOSE_VOTE",
    "REFINE_SKILL",
    "REFLECT",
    "RENDER",
    "RESPOND",
    "STORE",
    "STRUCTURE",
    "TOOL_BUILD",
    "TOOL_CALL",
    "UPDATE_KNOWLEDGE",
    "VERIFY",
    "Adaptive",
    "Affective",
    "Cognitive",
    "ConsistencyEvaluator",
    "EvaluationResult",
    "Execution",
    "Failure",
    "Feedback",
    "History",
    "HistoryItem",
    "Instruction",
    "JudgeEvaluator",
    "LatencyEvaluator",
    "LengthEvaluator",
    "Memory",
    "Metacognitive",
    "Monitor",
    "NodeEvaluator",
    "NodeJudge",
    "Normative",
    "OpenNode",
    "RulesEvaluator",
    "SchemaEvaluator",
    "SnapshotLimits",
    "Social",
    "ThresholdEvaluator",
    "TokenEvaluator",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
