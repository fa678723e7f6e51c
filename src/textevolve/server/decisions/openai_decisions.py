"""OpenAI's Decisions API on the wire: what `POST /v1/decisions` takes and gives.

Limits are those of its reference: 1 to 400 questions, 2 to 255 choices, 2 to 10 levels. Fields
beside those of the API begin with `x_`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, field_validator

from textevolve.evaluation import Failure
from textevolve.llm.decisions import Answer, Question, choice, predicate, score
from textevolve.server.decisions.confidence import choice_confidence, score_confidence
from textevolve.server.decisions.serving import Answered
from textevolve.server.decisions.states import Conversation, state_text
from textevolve.server.decisions.system_one import (
    MOST_LEVELS,
    MOST_OPTIONS,
    MOST_QUESTIONS,
    describe_answered,
)
from textevolve.texts.chats import read_chat, write_chat

NO_IMAGES = "this server reads no images; send text"


class TextPart(BaseModel):
    type: Literal["input_text"]
    text: str


class JsonPart(BaseModel):
    type: Literal["input_json"]
    data: dict[str, Any] | list[dict[str, Any]]


QuestionPart: TypeAlias = Annotated[TextPart | JsonPart, Field(discriminator="type")]
Instructions: TypeAlias = (
    Annotated[str, Field(min_length=1)] | Annotated[list[QuestionPart], Field(min_length=1)]
)


class PredicateQuestion(BaseModel):
    type: Literal["predicate"]
    instructions: Instructions
    name: str | None = None


class ChoiceOption(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: StrictStr | StrictBool
    description: str | None = None


class DecisionChoice(BaseModel):
    type: Literal["choice"]
    instructions: Instructions
    choices: Annotated[list[ChoiceOption], Field(min_length=2, max_length=MOST_OPTIONS)]
    name: str | None = None

    @field_validator("choices")
    @classmethod
    def _refuse_doubles(cls, given: list[ChoiceOption]) -> list[ChoiceOption]:
        if len({(type(one.value), one.value) for one in given}) < len(given):
            raise ValueError("each choice must be there once")
        return given


class ScoreLevel(BaseModel):
    label: str
    description: str | None = None


class DecisionScore(BaseModel):
    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[list[ScoreLevel], Field(min_length=2, max_length=MOST_LEVELS)]
    name: str | None = None


DecisionQuestion: TypeAlias = Annotated[
    PredicateQuestion | DecisionChoice | DecisionScore, Field(discriminator="type")
]


class DecisionRequest(BaseModel):
    """`input`: what all questions are about, as text or as messages and calls of tools. Other
    fields, such as those for caches of prompts, are passed over."""

    model: str
    input: str | list[dict[str, Any]]
    questions: Annotated[list[DecisionQuestion], Field(min_length=1, max_length=MOST_QUESTIONS)]

    @field_validator("input")
    @classmethod
    def _read_input(cls, given: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """A single message of a user as its text, several items as messages of a chat."""
        if isinstance(given, str):
            return given
        messages = [_as_message(item) for item in given]
        chat = read_chat(messages)
        if chat is None:
            raise ValueError("the input must be text, or messages and calls of tools")
        if any(turn.unseen for turn in chat):
            raise ValueError(NO_IMAGES)
        return write_chat(chat) if len(messages) == 1 else messages


def _as_message(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of an input as a message of a chat: {role, content} or a call of a tool."""
    match item.get("type", "message"):
        case "message":
            return {"role": item.get("role"), "content": _as_content(item.get("content"))}
        case "function_call" | "custom_tool_call":
            return {"role": "assistant", "content": None, "tool_calls": [item]}
        case "function_call_output" | "custom_tool_call_output":
            return {"role": "tool", "content": _as_content(item.get("output"))}
        case other:
            raise ValueError(f"no item of an input has the type {other!r:.40}")


def _as_content(content: object) -> object:
    """The parts of a message, of which JSON and refusals are text."""
    if not isinstance(content, list):
        return content
    return [_as_part(cast("object", part)) for part in cast("list[Any]", content)]


def _as_part(part: object) -> object:
    if not isinstance(part, Mapping):
        return part
    found = cast("Mapping[str, Any]", part)
    match found.get("type"):
        case "input_json":
            return {"type": "text", "text": state_text(found.get("data"))}
        case "refusal":
            return {"type": "text", "text": str(found.get("refusal"))}
        case _:
            return found


def state_of(asked: DecisionRequest) -> object:
    """What all questions are about: a text, or a conversation."""
    return asked.input if isinstance(asked.input, str) else Conversation(tuple(asked.input))


def read_decision_questions(asked: DecisionRequest) -> tuple[Question, ...]:
    """The questions in their order, named by their numbers, since names may be missing."""
    return tuple(_read_question(f"q{n}", one) for n, one in enumerate(asked.questions, 1))


def _read_question(
    name: str, asked: PredicateQuestion | DecisionChoice | DecisionScore
) -> Question:
    told = _told(asked.instructions)
    match asked:
        case PredicateQuestion():
            return predicate(name, told)
        case DecisionChoice():
            described = [one.description or "" for one in asked.choices]
            return choice(name, told, dict(zip(_name_options(asked), described, strict=True)))
        case DecisionScore():
            levels = [
                f"{level.label}: {level.description}" if level.description else level.label
                for level in asked.levels
            ]
            return score(name, told, levels)


def _told(instructions: Instructions) -> str:
    if isinstance(instructions, str):
        return instructions
    told = [one.text if isinstance(one, TextPart) else state_text(one.data) for one in instructions]
    return "\n".join(told)


def _name_options(asked: DecisionChoice) -> list[str]:
    """The options as texts; true and the text "true" are two."""
    taken = {one.value for one in asked.choices if isinstance(one.value, str)}
    return [
        one.value if isinstance(one.value, str) else _name_boolean(one.value, taken)
        for one in asked.choices
    ]


def _name_boolean(value: bool, taken: Collection[str]) -> str:
    name = "true" if value else "false"
    while name in taken:
        name += " (boolean)"
    return name


def write_decision(
    asked: DecisionRequest, questions: Sequence[Question], answered: Answered
) -> dict[str, Any]:
    """The body of the response. A question without an answer is a refusal; why stands in
    `x_reason`."""
    given = answered.decision.answers
    usage = answered.spending.usage
    return {
        "answers": [
            {"name": one.name, **_write_answer(one, given[question.name])}
            for one, question in zip(asked.questions, questions, strict=True)
        ],
        "model": answered.model,
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.tokens,
        },
        **describe_answered(answered),
    }


def _write_answer(
    asked: PredicateQuestion | DecisionChoice | DecisionScore, answer: Answer | Failure
) -> dict[str, Any]:
    if isinstance(answer, Failure):
        return {"type": "refusal", "x_reason": answer.reason}
    shares = answer.probabilities
    match asked:
        case PredicateQuestion():
            return {"type": "predicate", "probability": answer.share}
        case DecisionChoice():
            values = [one.value for one in asked.choices]
            return {
                "type": "choice",
                "choice": values[answer.best],
                "confidence": choice_confidence(shares),
                "probabilities": [
                    {"value": value, "probability": share}
                    for value, share in zip(values, shares, strict=True)
                ],
            }
        case DecisionScore():
            return {
                "type": "score",
                "score": sum(level * share for level, share in enumerate(shares)),
                "confidence": score_confidence(shares),
                "probabilities": [
                    {"value": n, "label": level.label, "probability": share}
                    for n, (level, share) in enumerate(zip(asked.levels, shares, strict=True))
                ],
            }
