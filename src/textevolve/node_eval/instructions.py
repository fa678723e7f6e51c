"""What a node does: the instruction types, in eight families, under the names of ArbiterOS.

A family is a tuple of its instructions, and has each of them under its name: `Cognitive.GENERATE`
is `GENERATE`, and `target_instructions=Cognitive` means all three.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from textevolve.errors import InputError


class Instruction(Enum):
    """Each member's value is its name, so that a history reads the same in every place."""

    GENERATE = "GENERATE"
    DECOMPOSE = "DECOMPOSE"
    REFLECT = "REFLECT"
    LOAD = "LOAD"
    STORE = "STORE"
    COMPRESS = "COMPRESS"
    FILTER = "FILTER"
    STRUCTURE = "STRUCTURE"
    RENDER = "RENDER"
    TOOL_CALL = "TOOL_CALL"
    TOOL_BUILD = "TOOL_BUILD"
    DELEGATE = "DELEGATE"
    RESPOND = "RESPOND"
    VERIFY = "VERIFY"
    CONSTRAIN = "CONSTRAIN"
    FALLBACK = "FALLBACK"
    INTERRUPT = "INTERRUPT"
    PREDICT_SUCCESS = "PREDICT_SUCCESS"
    EVALUATE_PROGRESS = "EVALUATE_PROGRESS"
    MONITOR_RESOURCES = "MONITOR_RESOURCES"
    UPDATE_KNOWLEDGE = "UPDATE_KNOWLEDGE"
    REFINE_SKILL = "REFINE_SKILL"
    LEARN_PREFERENCE = "LEARN_PREFERENCE"
    FORMULATE_EXPERIMENT = "FORMULATE_EXPERIMENT"
    COMMUNICATE = "COMMUNICATE"
    NEGOTIATE = "NEGOTIATE"
    PROPOSE_VOTE = "PROPOSE_VOTE"
    FORM_COALITION = "FORM_COALITION"
    INFER_INTENT = "INFER_INTENT"
    MODEL_USER_STATE = "MODEL_USER_STATE"
    ADAPT_RESPONSE = "ADAPT_RESPONSE"
    MANAGE_TRUST = "MANAGE_TRUST"


GENERATE = Instruction.GENERATE
DECOMPOSE = Instruction.DECOMPOSE
REFLECT = Instruction.REFLECT
LOAD = Instruction.LOAD
STORE = Instruction.STORE
COMPRESS = Instruction.COMPRESS
FILTER = Instruction.FILTER
STRUCTURE = Instruction.STRUCTURE
RENDER = Instruction.RENDER
TOOL_CALL = Instruction.TOOL_CALL
TOOL_BUILD = Instruction.TOOL_BUILD
DELEGATE = Instruction.DELEGATE
RESPOND = Instruction.RESPOND
VERIFY = Instruction.VERIFY
CONSTRAIN = Instruction.CONSTRAIN
FALLBACK = Instruction.FALLBACK
INTERRUPT = Instruction.INTERRUPT
PREDICT_SUCCESS = Instruction.PREDICT_SUCCESS
EVALUATE_PROGRESS = Instruction.EVALUATE_PROGRESS
MONITOR_RESOURCES = Instruction.MONITOR_RESOURCES
UPDATE_KNOWLEDGE = Instruction.UPDATE_KNOWLEDGE
REFINE_SKILL = Instruction.REFINE_SKILL
LEARN_PREFERENCE = Instruction.LEARN_PREFERENCE
FORMULATE_EXPERIMENT = Instruction.FORMULATE_EXPERIMENT
COMMUNICATE = Instruction.COMMUNICATE
NEGOTIATE = Instruction.NEGOTIATE
PROPOSE_VOTE = Instruction.PROPOSE_VOTE
FORM_COALITION = Instruction.FORM_COALITION
INFER_INTENT = Instruction.INFER_INTENT
MODEL_USER_STATE = Instruction.MODEL_USER_STATE
ADAPT_RESPONSE = Instruction.ADAPT_RESPONSE
MANAGE_TRUST = Instruction.MANAGE_TRUST


class _Cognitive(NamedTuple):
    GENERATE: Instruction = Instruction.GENERATE
    DECOMPOSE: Instruction = Instruction.DECOMPOSE
    REFLECT: Instruction = Instruction.REFLECT


class _Memory(NamedTuple):
    LOAD: Instruction = Instruction.LOAD
    STORE: Instruction = Instruction.STORE
    COMPRESS: Instruction = Instruction.COMPRESS
    FILTER: Instruction = Instruction.FILTER
    STRUCTURE: Instruction = Instruction.STRUCTURE
    RENDER: Instruction = Instruction.RENDER


class _Execution(NamedTuple):
    TOOL_CALL: Instruction = Instruction.TOOL_CALL
    TOOL_BUILD: Instruction = Instruction.TOOL_BUILD
    DELEGATE: Instruction = Instruction.DELEGATE
    RESPOND: Instruction = Instruction.RESPOND


class _Normative(NamedTuple):
    VERIFY: Instruction = Instruction.VERIFY
    CONSTRAIN: Instruction = Instruction.CONSTRAIN
    FALLBACK: Instruction = Instruction.FALLBACK
    INTERRUPT: Instruction = Instruction.INTERRUPT


class _Metacognitive(NamedTuple):
    PREDICT_SUCCESS: Instruction = Instruction.PREDICT_SUCCESS
    EVALUATE_PROGRESS: Instruction = Instruction.EVALUATE_PROGRESS
    MONITOR_RESOURCES: Instruction = Instruction.MONITOR_RESOURCES


class _Adaptive(NamedTuple):
    UPDATE_KNOWLEDGE: Instruction = Instruction.UPDATE_KNOWLEDGE
    REFINE_SKILL: Instruction = Instruction.REFINE_SKILL
    LEARN_PREFERENCE: Instruction = Instruction.LEARN_PREFERENCE
    FORMULATE_EXPERIMENT: Instruction = Instruction.FORMULATE_EXPERIMENT


class _Social(NamedTuple):
    COMMUNICATE: Instruction = Instruction.COMMUNICATE
    NEGOTIATE: Instruction = Instruction.NEGOTIATE
    PROPOSE_VOTE: Instruction = Instruction.PROPOSE_VOTE
    FORM_COALITION: Instruction = Instruction.FORM_COALITION


class _Affective(NamedTuple):
    INFER_INTENT: Instruction = Instruction.INFER_INTENT
    MODEL_USER_STATE: Instruction = Instruction.MODEL_USER_STATE
    ADAPT_RESPONSE: Instruction = Instruction.ADAPT_RESPONSE
    MANAGE_TRUST: Instruction = Instruction.MANAGE_TRUST


Cognitive = CognitiveCore = _Cognitive()
Memory = MemoryCore = _Memory()
Execution = ExecutionCore = _Execution()
Normative = NormativeCore = _Normative()
Metacognitive = MetacognitiveCore = _Metacognitive()
Adaptive = AdaptiveCore = _Adaptive()
Social = SocialCore = _Social()
Affective = AffectiveCore = _Affective()
"""Each family under its own name, and under the one that ArbiterOS gives it."""


def read_instruction(given: Any) -> Instruction | None:
    """An instruction, its name, or a member of that name of another library's enum; None stays.

    Raises:
        InputError: there is no such instruction type.
    """
    if given is None or isinstance(given, Instruction):
        return given
    name = given if isinstance(given, str) else getattr(given, "name", None)
    try:
        return Instruction(name)
    except ValueError:
        known = ", ".join(one.name for one in Instruction)
        raise InputError(f"no instruction type {str(given)[:40]!r}; there are: {known}") from None
