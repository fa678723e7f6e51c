"""TypeSafe's System One on the wire: what `POST /v1/systemone` takes and gives.

Limits are those of its documentation: 2 to 255 options of a choice, 2 to 10 levels of a score.
Fields beside those of the API begin with `x_`; clients pass over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from textevolve.evaluation import Failure
from textevolve.llm.decisions import Answer, Question, choice, predicate, score
from textevolve.server.decisions.confidence import choice_confidence, score_confidence
from textevolve.server.decisions.serving import Answered
from textevolve.server.decisions.states import state_text

MOST_QUESTIONS, MOST_OPTIONS, MOST_LEVELS = 400, 255, 10

StructuredText: TypeAlias = str | dict[str, Any] | list[Any]
"""What a client may write wherever there is text to read: JSON is read as such."""
QuestionId: TypeAlias = Annotated[str, Field(min_length=1)]


class NoulCriteria(BaseModel):
    model_config = ConfigDict(extra="forbid")

    true: StructuredText | None = None
    false: StructuredText | None = None


class NoulQuestion(BaseModel):
    type: Literal["noul"]
    instructions: StructuredText | None = None
    criteria: NoulCriteria | None = None

    @model_validator(mode="after")
    def _ask_something(self) -> Self:
        if not self.instructions and (self.criteria is None or self.criteria == NoulCriteria()):
            raise ValueError("a noul needs instructions or criteria")
        return self


class ChoiceQuestion(BaseModel):
    type: Literal["choice"]
    instructions: StructuredText | None = None
    criteria: Annotated[
        dict[str, StructuredText | None], Field(min_length=2, max_length=MOST_OPTIONS)
    ]


class ScoreQuestion(BaseModel):
    type: Literal["score"]
    instructions: StructuredText | None = None
    criteria: Annotated[list[StructuredText], Field(min_length=2, max_length=MOST_LEVELS)]


SystemOneQuestion: TypeAlias = Annotated[
    NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")
]


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
    def _refuse_images(cls, given: Any) -> Any:
        if given is not None:
            raise ValueError("this server reads no images; send text")
        return given


def read_questions(asked: SystemOneRequest) -> tuple[Question, ...]:
    """The questions in their order, named by their numbers: what a client calls one must not sway
    its answer."""
    return tuple(_read_question(f"q{n}", one) for n, one in enumerate(asked.questions.values(), 1))


def _read_question(name: str, asked: NoulQuestion | ChoiceQuestion | ScoreQuestion) -> Question:
    told = _told(asked.instructions)
    match asked:
        case NoulQuestion():
            criteria = asked.criteria or NoulCriteria()
            yes, no = _told(criteria.true), _told(criteria.false)
            return predicate(name, told or "Is it so?", yes=yes, no=no)
        case ChoiceQuestion():
            options = {option: _told(text) for option, text in asked.criteria.items()}
            return choice(name, told or "Which of these applies?", options)
        case ScoreQuestion():
            levels = [state_text(level) for level in asked.criteria]
            return score(name, told or "Which of these levels applies?", levels)


def _told(text: StructuredText | None) -> str:
    return "" if text is None else state_text(text)


def write_system_one(
    asked: SystemOneRequest, questions: Sequence[Question], answered: Answered
) -> dict[str, Any]:
    """The body of the response. A question without an answer is left out, and why stands in
    `x_unanswered`: a client that looks for it must not find a number."""
    given: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for (id, one), question in zip(asked.questions.items(), questions, strict=True):
        answer = answered.decision.answers[question.name]
        if isinstance(answer, Failure):
            missing[id] = answer.reason
        else:
            given[id] = _write_answer(one, answer)
    usage = answered.spending.usage
    return {
        "model": answered.model,
        "answers": given,
        "usage": {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens},
        **({"x_unanswered": missing} if missing else {}),
        **describe_answered(answered),
    }


def _write_answer(
    asked: NoulQuestion | ChoiceQuestion | ScoreQuestion, answer: Answer
) -> dict[str, Any]:
    shares = answer.probabilities
    match asked:
        case NoulQuestion():
            return {"type": "noul", "noul": answer.share}
        case ChoiceQuestion():
            names = list(asked.criteria)
            return {
                "type": "choice",
                "choice": names[answer.best],
                "probabilities": dict(zip(names, shares, strict=True)),
                "confidence": choice_confidence(shares),
            }
        case ScoreQuestion():
            return {
                "type": "score",
                "score": sum(level * share for level, share in enumerate(shares)),
                "legend": {str(n): level for n, level in enumerate(asked.criteria)},
                "probabilities": {str(n): share for n, share in enumerate(shares)},
                "confidence": score_confidence(shares),
            }


def describe_answered(answered: Answered) -> dict[str, Any]:
    """What is to be known of an answer beside what the APIs have fields for: read out of a chat
    model, part of the state left out, calls that the journal answered."""
    decision = answered.decision
    told: dict[str, Any] = {
        "x_emulated": decision.emulated,
        "x_state_cut": decision.cut,
        "x_replayed_calls": answered.spending.replayed,
    }
    return {name: value for name, value in told.items() if value}
