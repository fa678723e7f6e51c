"""TextEvolve scores and improves text with structured debates of AI agents.

    from textevolve import evaluate

    result = evaluate("Explain tides to a child.", [first, second], rounds=2)
    result.best, result.scores, result.feedback

The names below are loaded when they are first used, so that importing the package is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textevolve.loading import load_module

if TYPE_CHECKING:
    from textevolve.api.client import (
        AsyncClient,
        Client,
        as_metric,
        calibrate,
        chat,
        compare,
        compare_quants,
        create_memories,
        evaluate,
        evaluate_batch,
        evaluate_memory,
        evolve_persona,
        fit_judge,
        generate_profile,
        guide,
        innovate,
        integrate_memories,
        judge,
        keep_history,
        namespace,
        open_chain,
        optimize,
        read_corpus,
        run,
        run_chain,
        summarize,
    )
    from textevolve.api.opened import Chain, PromptSet, load_chain
    from textevolve.api.results import CaseResult, Debate
    from textevolve.debate.profile import Agent, Component, Profile, load_profile
    from textevolve.debate.result import DebateResult
    from textevolve.errors import (
        BudgetError,
        InputError,
        ModelError,
        SettingsError,
        StoreError,
        TextEvolveError,
    )
    from textevolve.evaluation import (
        Case,
        Evaluation,
        EvaluationResult,
        Evaluator,
        Failure,
        Figure,
        Result,
        Usage,
    )
    from textevolve.llm.chains.steps import ask, call
    from textevolve.loops.rules import Hybrid, Rules, load_rules
    from textevolve.memory.cue import Cue, Memory, Recall
    from textevolve.memory.record import MemorySpec
    from textevolve.rows.images import read_image
    from textevolve.settings import Settings
    from textevolve.wiring import Limits

__version__ = "0.1.0"

_HOMES = {  # all other names are of `api.client`
    "api.opened": (
        "Chain",
        "PromptSet",
        "load_chain",
    ),
    "api.results": (
        "CaseResult",
        "Debate",
    ),
    "debate.profile": (
        "Agent",
        "Component",
        "Profile",
        "load_profile",
    ),
    "debate.result": ("DebateResult",),
    "errors": (
        "BudgetError",
        "InputError",
        "ModelError",
        "SettingsError",
        "StoreError",
        "TextEvolveError",
    ),
    "evaluation": (
        "Case",
        "Evaluation",
        "EvaluationResult",
        "Evaluator",
        "Failure",
        "Figure",
        "Result",
        "Usage",
    ),
    "llm.chains.steps": (
        "ask",
        "call",
    ),
    "loops.rules": (
        "Hybrid",
        "Rules",
        "load_rules",
    ),
    "memory.cue": (
        "Cue",
        "Memory",
        "Recall",
    ),
    "memory.record": ("MemorySpec",),
    "rows.images": ("read_image",),
    "settings": ("Settings",),
    "wiring": ("Limits",),
}

__all__ = [
    "Agent",
    "AsyncClient",
    "BudgetError",
    "Case",
    "CaseResult",
    "Chain",
    "Client",
    "Component",
    "Cue",
    "Debate",
    "DebateResult",
    "Evaluation",
    "EvaluationResult",
    "Evaluator",
    "Failure",
    "Figure",
    "Hybrid",
    "InputError",
    "Limits",
    "Memory",
    "MemorySpec",
    "ModelError",
    "Profile",
    "PromptSet",
    "Recall",
    "Result",
    "Rules",
    "Settings",
    "SettingsError",
    "StoreError",
    "TextEvolveError",
    "Usage",
    "as_metric",
    "ask",
    "calibrate",
    "call",
    "chat",
    "compare",
    "compare_quants",
    "create_memories",
    "evaluate",
    "evaluate_batch",
    "evaluate_memory",
    "evolve_persona",
    "fit_judge",
    "generate_profile",
    "guide",
    "innovate",
    "integrate_memories",
    "judge",
    "keep_history",
    "load_chain",
    "load_profile",
    "load_rules",
    "namespace",
    "open_chain",
    "optimize",
    "read_corpus",
    "read_image",
    "run",
    "run_chain",
    "summarize",
]

_MODULES = dict.fromkeys(__all__, "api.client") | {
    name: module for module, names in _HOMES.items() for name in names
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        old_names: dict[str, str] = load_module(f"{__name__}.terms").OLD_NAMES
        advice = f"; {old_names[name]}" if name in old_names else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
    return getattr(load_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
