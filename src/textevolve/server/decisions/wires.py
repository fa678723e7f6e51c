"""The two decision APIs on the wire: TypeSafe's System One and OpenAI's Decisions API.

Both are read into the same questions and written from the same answers. Limits are those of their
documentation. Fields that the APIs do not have begin with `x_`; clients pass over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    field_validator,
    model_validator,
)

from textevolve.evaluation import Failure
from textevolve.llm.decisions import Answer, Question, choice, predicate, score
from textevolve.rows.chats import read_chat, write_chat
from textevolve.server.decisions.serving import Answered
from textevolve.server.decisions.states import Conversation, state_text

MOST_QUESTIONS, MOST_OPTIONS, MOST_LEVELS = 400, 255, 10
NO_IMAGES = "this server reads no images; send text"


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Return how far the largest of n probabilities lies above 1/n, from 0 to 1:
    (max p - 1/n) / (1 - 1/n). The formula is TypeSafe's, as `jevcompat` writes it out (SPEC.md,
    section 4.5); OpenAI documents none, and gets the same."""
    even = 1 / len(probabilities)
    return _bounded((max(probabilities) - even) / (1 - even))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return how near the probabilities lie to the most probable level m, from 0 to 1:
    1 - sum(p |i - m|) / u, where u is the mean distance of n levels to their middle."""
    n = len(probabilities)
    most = max(range(n), key=probabilities.__getitem__)
    spread = sum(p * abs(level - most) for level, p in enumerate(probabilities))
    even = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    return _bounded(1 - spread / even)


def _bounded(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _expected_level(probabilities: Sequence[float]) -> float:
    return sum(level * share for level, share in enumerate(probabilities))


def describe_answered(answered: Answered) -> dict[str, Any]:
    """Return the facts of an answer that the APIs have no fields for: decisions read out of a chat
    model, a part of the state left out, calls that the journal answered."""
    facts: dict[str, Any] = {
        "x_emulated": answered.decision.emulated,
        "x_state_cut": answered.decision.cut,
        "x_replayed_calls": answered.spending.replayed,
    }
    return {name: value for name, value in facts.items() if value}


# System One

StructuredText: TypeAlias = str | dict[str, Any] | list[Any]
"""Text, or JSON that is read as text."""


def _text(text: StructuredText | None) -> str:
    return "" if text is None else state_text(text)


class NoulCriteria(BaseModel):
    model_config = ConfigDict(extra="forbid")

    true: StructuredText | None = None
    false: StructuredText | None = None


class NoulQuestion(BaseModel):
    type: Literal["noul"]
    instructions: StructuredText | None = None
    criteria: NoulCriteria | None = None

    @model_validator(mode="after")
    def _require_question(self) -> Self:
        if not self.instructions and (self.criteria is None or self.criteria == NoulCriteria()):
            raise ValueError("a noul needs instructions or criteria")
        return self

    def read(self, name: str) -> Question:
        told, criteria = _text(self.instructions), self.criteria or NoulCriteria()
        yes, no = _text(criteria.true), _text(criteria.false)
        return predicate(name, told or "Is it so?", yes=yes, no=no)

    def write(self, answer: Answer) -> dict[str, Any]:
        return {"type": "noul", "noul": answer.share}


class ChoiceQuestion(BaseModel):
    type: Literal["choice"]
    instructions: StructuredText | None = None
    criteria: Annotated[
        dict[str, StructuredText | None], Field(min_length=2, max_length=MOST_OPTIONS)
    ]

    def read(self, name: str) -> Question:
        options = {option: _text(text) for option, text in self.criteria.items()}
        return choice(name, _text(self.instructions) or "Which of these applies?", options)

    def write(self, answer: Answer) -> dict[str, Any]:
        names = list(self.criteria)
        return {
            "type": "choice",
            "choice": names[answer.best],
            "probabilities": dict(zip(names, answer.probabilities, strict=True)),
            "confidence": choice_confidence(answer.probabilities),
        }


class ScoreQuestion(BaseModel):
    type: Literal["score"]
    instructions: StructuredText | None = None
    criteria: Annotated[list[StructuredText], Field(min_length=2, max_length=MOST_LEVELS)]

    def read(self, name: str) -> Question:
        told = _text(self.instructions) or "Which of these levels applies?"
        return score(name, told, [state_text(level) for level in self.criteria])

    def write(self, answer: Answer) -> dict[str, Any]:
        shares = answer.probabilities
        return {
            "type": "score",
            "score": _expected_level(shares),
            "legend": {str(n): level for n, level in enumerate(self.criteria)},
            "probabilities": {str(n): share for n, share in enumerate(shares)},
            "confidence": score_confidence(shares),
        }


SystemOneQuestion: TypeAlias = Annotated[
    NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")
]
QuestionId: TypeAlias = Annotated[str, Field(min_length=1)]


class SystemOneRequest(BaseModel):
    """`state`: what all questions are about. Other fields are passed over."""

    model: str
    state: StructuredText
    questions: Annotated[
        dict[QuestionId, SystemOneQuestion], Field(min_length=1, max_length=MOST_QUESTIONS)
    ]
    assets: Any = None

    @field_validator("assets")
    @classmethod
    def _refuse_images(cls, assets: Any) -> Any:
        if assets is not None:
            raise ValueError(NO_IMAGES)
        return assets

    def read(self) -> tuple[Question, ...]:
        """Return the questions in their order. They are named by number: the name that a client
        chose must not sway the answer."""
        return tuple(one.read(f"q{n}") for n, one in enumerate(self.questions.values(), 1))

    def write(self, answered: Answered) -> dict[str, Any]:
        """Return the body of the response. A question without an answer is left out, with its
        reason in `x_unanswered`: a client that looks for it must not find a number."""
        answers: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for n, (id, question) in enumerate(self.questions.items(), 1):
            answer = answered.decision.answers[f"q{n}"]
            if isinstance(answer, Failure):
                missing[id] = answer.reason
            else:
                answers[id] = question.write(answer)
        usage = answered.spending.usage
        return {
            "model": answered.model,
            "answers": answers,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "output_tokens": usage.completion_tokens,
            },
            **({"x_unanswered": missing} if missing else {}),
            **describe_answered(answered),
        }


# OpenAI's Decisions API


class QuestionPart(BaseModel):
    type: Literal["input_text", "input_json"]
    text: str = ""
    data: dict[str, Any] | list[dict[str, Any]] | None = None


Instructions: TypeAlias = (
    Annotated[str, Field(min_length=1)] | Annotated[list[QuestionPart], Field(min_length=1)]
)


def _instructions(parts: Instructions) -> str:
    if isinstance(parts, str):
        return parts
    return "\n".join(part.text if part.data is None else state_text(part.data) for part in parts)


class PredicateQuestion(BaseModel):
    type: Literal["predicate"]
    instructions: Instructions
    name: str | None = None

    def read(self, name: str) -> Question:
        return predicate(name, _instructions(self.instructions))

    def write(self, answer: Answer) -> dict[str, Any]:
        return {"type": "predicate", "probability": answer.share}


class ChoiceOption(BaseModel):
    value: StrictStr | StrictBool
    description: str | None = None

    @property
    def name(self) -> str:
        return self.value if isinstance(self.value, str) else str(self.value).lower()


class DecisionChoice(BaseModel):
    type: Literal["choice"]
    instructions: Instructions
    choices: Annotated[list[ChoiceOption], Field(min_length=2, max_length=MOST_OPTIONS)]
    name: str | None = None

    @field_validator("choices")
    @classmethod
    def _refuse_doubles(cls, choices: list[ChoiceOption]) -> list[ChoiceOption]:
        if len({option.name for option in choices}) < len(choices):
            raise ValueError("each choice must be there once")
        return choices

    def read(self, name: str) -> Question:
        options = {option.name: option.description or "" for option in self.choices}
        return choice(name, _instructions(self.instructions), options)

    def write(self, answer: Answer) -> dict[str, Any]:
        pairs = zip(self.choices, answer.probabilities, strict=True)
        return {
            "type": "choice",
            "choice": self.choices[answer.best].value,
            "confidence": choice_confidence(answer.probabilities),
            "probabilities": [{"value": one.value, "probability": p} for one, p in pairs],
        }


class ScoreLevel(BaseModel):
    label: str
    description: str | None = None


class DecisionScore(BaseModel):
    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[list[ScoreLevel], Field(min_length=2, max_length=MOST_LEVELS)]
    name: str | None = None

    def read(self, name: str) -> Question:
        levels = [
            f"{level.label}: {level.description}" if level.description else level.label
            for level in self.levels
        ]
        return score(name, _instructions(self.instructions), levels)

    def write(self, answer: Answer) -> dict[str, Any]:
        pairs = zip(self.levels, answer.probabilities, strict=True)
        return {
            "type": "score",
            "score": _expected_level(answer.probabilities),
            "confidence": score_confidence(answer.probabilities),
            "probabilities": [
                {"value": n, "label": level.label, "probability": share}
                for n, (level, share) in enumerate(pairs)
            ],
        }


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
    def _read_input(cls, items: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Read a single message of a user as its text, several items as messages of a chat."""
        if isinstance(items, str):
            return items
        messages = [_as_message(item) for item in items]
        chat = read_chat(messages)
        if chat is None:
            raise ValueError("the input must be text, or messages and calls of tools")
        if any(turn.unseen for turn in chat):
            raise ValueError(NO_IMAGES)
        return write_chat(chat) if len(messages) == 1 else messages

    @property
    def state(self) -> object:
        return self.input if isinstance(self.input, str) else Conversation(tuple(self.input))

    def read(self) -> tuple[Question, ...]:
        """Return the questions in their order, named by number, since names may be missing."""
        return tuple(one.read(f"q{n}") for n, one in enumerate(self.questions, 1))

    def write(self, answered: Answered) -> dict[str, Any]:
        """Return the body of the response. A question without an answer is a refusal, with its
        reason in `x_reason`."""
        answers: list[dict[str, Any]] = []
        for n, question in enumerate(self.questions, 1):
            answer = answered.decision.answers[f"q{n}"]
            refusal = {"type": "refusal", "x_reason": getattr(answer, "reason", "")}
            written = question.write(answer) if isinstance(answer, Answer) else refusal
            answers.append({"name": question.name, **written})
        usage = answered.spending.usage
        return {
            "answers": answers,
            "model": answered.model,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": 0,
                },
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.tokens,
            },
            **describe_answered(answered),
        }


def _as_message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item of an input as a message of a chat: {role, content}, or a call of a tool."""
    match item.get("type", "message"):
        case "message":
            return {"role": item.get("role"), "content": _as_content(item.get("content"))}
        case "function_call" | "custom_tool_call":
            return {"role": "assistant", "content": None, "tool_calls": [item]}
        case "function_call_output" | "custom_tool_call_output":
            return {"role": "tool", "content": _as_content(item.get("output"))}
        case other:
            raise ValueError(f"no item of an input has the type {other!r:.40}")


def _fields_of(part: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}


def _as_content(content: object) -> object:
    """Return the parts of a message, with JSON and refusals as text."""
    if not isinstance(content, list):
        return content
    parts: list[object] = []
    for part in cast("list[object]", content):
        fields = _fields_of(part)
        match fields.get("type"):
            case "input_json":
                parts.append({"type": "text", "text": state_text(fields.get("data"))})
            case "refusal":
                parts.append({"type": "text", "text": str(fields.get("refusal"))})
            case _:
                parts.append(part)
    return parts
