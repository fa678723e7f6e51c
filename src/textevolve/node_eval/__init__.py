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
        FAMILIES,
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
        AdaptiveCore,
        Affective,
        AffectiveCore,
        Cognitive,
        CognitiveCore,
        Execution,
        ExecutionCore,
        Instruction,
        Memory,
        MemoryCore,
        Metacognitive,
        MetacognitiveCore,
        Normative,
        NormativeCore,
        Social,
        SocialCore,
    )
    from textevolve.node_eval.monitor import Monitor, OpenNode
    from textevolve.node_eval.snapshots import SnapshotLimits

_HOMES = {
    "textevolve.evaluation": (
        "EvaluationResult",
        "Failure",
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
        "AdaptiveCore",
        "Affective",
        "AffectiveCore",
        "COMMUNICATE",
        "COMPRESS",
        "CONSTRAIN",
        "Cognitive",
        "CognitiveCore",
        "DECOMPOSE",
        "DELEGATE",
        "EVALUATE_PROGRESS",
        "Execution",
        "ExecutionCore",
        "FALLBACK",
        "FAMILIES",
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
        "MemoryCore",
        "Metacognitive",
        "MetacognitiveCore",
        "NEGOTIATE",
        "Normative",
        "NormativeCore",
        "PREDICT_SUCCESS",
        "PROPOSE_VOTE",
        "REFINE_SKILL",
        "REFLECT",
        "RENDER",
        "RESPOND",
        "STORE",
        "STRUCTURE",
        "Social",
        "SocialCore",
        "TOOL_BUILD",
        "TOOL_CALL",
        "UPDATE_KNOWLEDGE",
        "VERIFY",
    ),
    "textevolve.node_eval.monitor": (
        "Monitor",
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
    "FAMILIES",
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
    "AdaptiveCore",
    "Affective",
    "AffectiveCore",
    "Cognitive",
    "CognitiveCore",
    "EvaluationResult",
    "Execution",
    "ExecutionCore",
    "Failure",
    "History",
    "HistoryItem",
    "Instruction",
    "Memory",
    "MemoryCore",
    "Metacognitive",
    "MetacognitiveCore",
    "Monitor",
    "NodeEvaluator",
    "Normative",
    "NormativeCore",
    "OpenNode",
    "SnapshotLimits",
    "Social",
    "SocialCore",
    "ThresholdEvaluator",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
