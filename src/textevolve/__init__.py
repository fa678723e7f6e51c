"""TextEvolve measures text by a structured debate of AI agents.

    from textevolve import evaluate

    result = evaluate("Explain tides to a child.", [first, second], rounds=2)
    result.best, result.scores, result.feedback

The names below are loaded when they are first used; importing the package does no work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textevolve.api.calibration import acalibrate, calibrate
    from textevolve.api.chains import (
        Chain,
        OpenChain,
        PromptSet,
        arun_chain,
        as_chat_model,
        as_dspy_lm,
        as_dspy_module,
        as_runnable,
        load_chain,
        open_chain,
        read_template,
        run_chain,
        to_langchain_template,
    )
    from textevolve.api.chat import aopen_chat, open_chat
    from textevolve.api.comparison import acompare, compare
    from textevolve.api.evaluation import aevaluate, aevaluate_batch, evaluate, evaluate_batch
    from textevolve.api.fitting import afit_judge, fit_judge
    from textevolve.api.loops import (
        agenerate_profile,
        aguide,
        ainnovate,
        as_metric,
        generate_profile,
        guide,
        innovate,
    )
    from textevolve.api.memory import (
        aevaluate_memory,
        ajudge_accuracy,
        ajudge_answer,
        ajudge_integrity,
        ajudge_update,
        evaluate_memory,
        judge_accuracy,
        judge_answer,
        judge_integrity,
        judge_update,
    )
    from textevolve.api.memory_work import (
        acreate_memories,
        aevolve_persona,
        aintegrate_memories,
        aread_corpus,
        create_memories,
        evolve_persona,
        integrate_memories,
        read_corpus,
    )
    from textevolve.api.namespaces import aopen_namespace, open_namespace
    from textevolve.api.nodes import judge, keep_history
    from textevolve.api.optimization import aoptimize, optimize
    from textevolve.api.quantization import acompare_quants, compare_quants
    from textevolve.api.summarization import asummarize, summarize
    from textevolve.debate.profile import Agent, Component, Profile, load_profile
    from textevolve.debate.protocol import Debate
    from textevolve.debate.result import DebateResult, Feedback, Turn
    from textevolve.debate.tensor import LabelledTensor
    from textevolve.errors import (
        AccessError,
        AnswerError,
        BudgetError,
        BusyError,
        CapabilityError,
        ClusterError,
        ConflictError,
        FatalModelError,
        InputError,
        MismatchError,
        ModelError,
        RejectedError,
        SettingsError,
        StoreError,
        TextEvolveError,
        TooLongError,
        UnavailableError,
        UnjudgedError,
    )
    from textevolve.evaluation import (
        Case,
        Evaluation,
        EvaluationResult,
        Evaluator,
        Failure,
        Usage,
    )
    from textevolve.llm.chains.steps import ask, branch, call, each, together
    from textevolve.llm.chat_formats.catalogue import chat_format
    from textevolve.llm.chat_formats.chat_format import ChatFormat, render_chat
    from textevolve.llm.chat_formats.checking import check_chat_template
    from textevolve.llm.chat_formats.detection import infer_format
    from textevolve.llm.chat_formats.jinja_template import JinjaTemplate
    from textevolve.llm.chat_formats.parsing import parse_chat
    from textevolve.llm.chat_formats.sources import read_chat_template
    from textevolve.llm.quantize import Quantized, quantize_file
    from textevolve.loops.attempt import Attempt
    from textevolve.loops.calibration.tree import CalibrationResult
    from textevolve.loops.optimization import Optimization
    from textevolve.loops.rules import Hybrid, Rules, load_rules
    from textevolve.memory.cue import Cue, Memory, Recall
    from textevolve.memory.memory_spec import MemorySpec
    from textevolve.rows.images import read_image
    from textevolve.settings import Settings
    from textevolve.studies.compare_quants import QuantComparison
    from textevolve.studies.compare_report import Comparison
    from textevolve.wiring import Limits

__version__ = "0.1.0"

_HOMES = {
    "api.evaluation": ("aevaluate", "aevaluate_batch", "evaluate", "evaluate_batch"),
    "api.calibration": ("acalibrate", "calibrate"),
    "api.comparison": ("acompare", "compare"),
    "api.chains": (
        "Chain",
        "OpenChain",
        "PromptSet",
        "arun_chain",
        "as_chat_model",
        "as_dspy_lm",
        "as_dspy_module",
        "as_runnable",
        "load_chain",
        "open_chain",
        "read_template",
        "run_chain",
        "to_langchain_template",
    ),
    "api.chat": ("aopen_chat", "open_chat"),
    "api.fitting": ("afit_judge", "fit_judge"),
    "api.loops": (
        "agenerate_profile",
        "aguide",
        "ainnovate",
        "aintegrate_memories",
        "as_metric",
        "generate_profile",
        "guide",
        "innovate",
        "integrate_memories",
    ),
    "api.memory": (
        "aevaluate_memory",
        "evaluate_memory",
        "ajudge_accuracy",
        "ajudge_answer",
        "ajudge_integrity",
        "ajudge_update",
        "judge_accuracy",
        "judge_answer",
        "judge_integrity",
        "judge_update",
    ),
    "api.namespaces": ("aopen_namespace", "open_namespace"),
    "api.memory_work": (
        "acreate_memories",
        "create_memories",
        "aevolve_persona",
        "aintegrate_memories",
        "aread_corpus",
        "evolve_persona",
        "integrate_memories",
        "read_corpus",
    ),
    "api.nodes": ("judge", "keep_history"),
    "api.optimization": ("aoptimize", "optimize"),
    "api.quantization": ("acompare_quants", "compare_quants"),
    "api.summarization": ("asummarize", "summarize"),
    "debate.profile": ("Agent", "Component", "Profile", "load_profile"),
    "debate.protocol": ("Debate",),
    "debate.result": ("DebateResult", "Feedback", "Turn"),
    "debate.tensor": ("LabelledTensor",),
    "errors": (
        "AccessError",
        "AnswerError",
        "BudgetError",
        "BusyError",
        "CapabilityError",
        "ClusterError",
        "ConflictError",
        "FatalModelError",
        "InputError",
        "MismatchError",
        "ModelError",
        "RejectedError",
        "SettingsError",
        "StoreError",
        "TextEvolveError",
        "TooLongError",
        "UnavailableError",
        "UnjudgedError",
    ),
    "evaluation": ("Case", "Evaluation", "EvaluationResult", "Evaluator", "Failure", "Usage"),
    "llm.chains.steps": ("ask", "branch", "call", "each", "together"),
    "llm.quantize": ("Quantized", "quantize_file"),
    "llm.chat_formats.catalogue": ("chat_format",),
    "llm.chat_formats.chat_format": ("ChatFormat", "render_chat"),
    "llm.chat_formats.checking": ("check_chat_template",),
    "llm.chat_formats.detection": ("infer_format",),
    "llm.chat_formats.jinja_template": ("JinjaTemplate",),
    "llm.chat_formats.parsing": ("parse_chat",),
    "llm.chat_formats.sources": ("read_chat_template",),
    "loops.attempt": ("Attempt",),
    "loops.optimization": ("Optimization",),
    "loops.rules": ("Hybrid", "Rules", "load_rules"),
    "loops.calibration.tree": ("CalibrationResult",),
    "memory.cue": ("Cue", "Memory", "Recall"),
    "memory.memory_spec": ("MemorySpec",),
    "rows.images": ("read_image",),
    "settings": ("Settings",),
    "studies.compare_report": ("Comparison",),
    "studies.compare_quants": ("QuantComparison",),
    "wiring": ("Limits",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AccessError",
    "Agent",
    "AnswerError",
    "Attempt",
    "BudgetError",
    "BusyError",
    "CalibrationResult",
    "CapabilityError",
    "Case",
    "Chain",
    "ChatFormat",
    "ClusterError",
    "Comparison",
    "Component",
    "ConflictError",
    "Cue",
    "Debate",
    "DebateResult",
    "Evaluation",
    "EvaluationResult",
    "Evaluator",
    "Failure",
    "FatalModelError",
    "Feedback",
    "Hybrid",
    "InputError",
    "JinjaTemplate",
    "LabelledTensor",
    "Limits",
    "Memory",
    "MemorySpec",
    "MismatchError",
    "ModelError",
    "OpenChain",
    "Optimization",
    "Profile",
    "PromptSet",
    "QuantComparison",
    "Quantized",
    "Recall",
    "RejectedError",
    "Rules",
    "Settings",
    "SettingsError",
    "StoreError",
    "TextEvolveError",
    "TooLongError",
    "Turn",
    "UnavailableError",
    "UnjudgedError",
    "Usage",
    "acalibrate",
    "acompare",
    "acompare_quants",
    "acreate_memories",
    "aevaluate",
    "aevaluate_batch",
    "aevaluate_memory",
    "aevolve_persona",
    "afit_judge",
    "agenerate_profile",
    "aguide",
    "ainnovate",
    "aintegrate_memories",
    "ajudge_accuracy",
    "ajudge_answer",
    "ajudge_integrity",
    "ajudge_update",
    "aopen_chat",
    "aopen_namespace",
    "aoptimize",
    "aread_corpus",
    "arun_chain",
    "as_chat_model",
    "as_dspy_lm",
    "as_dspy_module",
    "as_metric",
    "as_runnable",
    "ask",
    "asummarize",
    "branch",
    "calibrate",
    "call",
    "chat_format",
    "check_chat_template",
    "compare",
    "compare_quants",
    "create_memories",
    "each",
    "evaluate",
    "evaluate_batch",
    "evaluate_memory",
    "evolve_persona",
    "fit_judge",
    "generate_profile",
    "guide",
    "infer_format",
    "innovate",
    "integrate_memories",
    "judge",
    "judge_accuracy",
    "judge_answer",
    "judge_integrity",
    "judge_update",
    "keep_history",
    "load_chain",
    "load_profile",
    "load_rules",
    "open_chain",
    "open_chat",
    "open_namespace",
    "optimize",
    "parse_chat",
    "quantize_file",
    "read_chat_template",
    "read_corpus",
    "read_image",
    "read_template",
    "render_chat",
    "run_chain",
    "summarize",
    "to_langchain_template",
    "together",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
