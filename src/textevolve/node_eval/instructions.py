"""The instruction types, which say what a node does, in the eight families of ArbiterOS.

A family is a tuple of its instructions, and has each of them as an attribute, too:
`Cognitive.GENERATE` is `GENERATE`, and `target_instructions=Cognitive` selects all three.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from textevolve.errors import InputError


class Instruction(Enum):
    """The type of a node: what it does. The value of each member is its name, so that stored
    histories have readable types."""

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


(
    GENERATE,
    DECOMPOSE,
    REFLECT,
    LOAD,
    STORE,
    COMPRESS,
    FILTER,
    STRUCTURE,
    RENDER,
    TOOL_CALL,
    TOOL_BUILD,
    DELEGATE,
    RESPOND,
    VERIFY,
    CONSTRAIN,
    FALLBACK,
    INTERRUPT,
    PREDICT_SUCCESS,
    EVALUATE_PROGRESS,
    MONITOR_RESOURCES,
    UPDATE_KNOWLEDGE,
    REFINE_SKILL,
    LEARN_PREFERENCE,
    FORMULATE_EXPERIMENT,
    COMMUNICATE,
    NEGOTIATE,
    PROPOSE_VOTE,
    FORM_COALITION,
    INFER_INTENT,
    MODEL_USER_STATE,
    ADAPT_RESPONSE,
    MANAGE_TRUST,
) = Instruction
"""The instructions under their own names, in the order of the members."""


class InstructionFamily(tuple[Instruction, ...]):
    """Instructions that belong together; each can be read by its name, too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Instruction:
        for instruction in self:
            if instruction.name == name:
                return instruction
        raise AttributeError(f"the family has no instruction '{name}'")


Cognitive = CognitiveCore = InstructionFamily((GENERATE, DECOMPOSE, REFLECT))
Memory = MemoryCore = InstructionFamily((LOAD, STORE, COMPRESS, FILTER, STRUCTURE, RENDER))
Execution = ExecutionCore = InstructionFamily((TOOL_CALL, TOOL_BUILD, DELEGATE, RESPOND))
Normative = NormativeCore = InstructionFamily((VERIFY, CONSTRAIN, FALLBACK, INTERRUPT))
Metacognitive = MetacognitiveCore = InstructionFamily(
    (PREDICT_SUCCESS, EVALUATE_PROGRESS, MONITOR_RESOURCES)
)
Adaptive = AdaptiveCore = InstructionFamily(
    (UPDATE_KNOWLEDGE, REFINE_SKILL, LEARN_PREFERENCE, FORMULATE_EXPERIMENT)
)
Social = SocialCore = InstructionFamily((COMMUNICATE, NEGOTIATE, PROPOSE_VOTE, FORM_COALITION))
Affective = AffectiveCore = InstructionFamily(
    (INFER_INTENT, MODEL_USER_STATE, ADAPT_RESPONSE, MANAGE_TRUST)
)
"""The families under their own names, and under those of ArbiterOS."""


def read_instruction(given: Any) -> Instruction | None:
    """Convert an instruction type, its name, or an equally named member of another library's enum
    to an `Instruction`; None stays None.

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
