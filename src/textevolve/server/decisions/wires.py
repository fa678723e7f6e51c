"""The bodies of requests and answers of the decision API, TypeSafe's System One.

The limits are those of its documentation. Fields that the API does not have begin with `x_`;
clients ignore them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

from fastapi import APIRouter, Response
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from textevolve.evaluation import Failure
from textevolve.llm.decisions import Answer, Decision, Question, choice, predicate, score
from textevolve.mappings import drop_empty, map_values
from textevolve.server.decisions.deciders import RequestSpending, spending, state_text
from textevolve.server.decisions.serving import failure_error
from textevolve.server.errors import SYSTEM_ONE, ApiError, example_body, no_model, respond
from textevolve.server.identity import MayRun
from textevolve.server.state import Server

MOST_QUESTIONS = 400
MOST_OPTIONS = 255
MOST_LEVELS = 10
NO_IMAGES = "this server reads no images; send text"


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Return how far the largest of n probabilities lies above 1/n, from 0 to 1:
    (max p - 1/n) / (1 - 1/n). The formula is TypeSafe's, as `jevcompat` writes it out (SPEC.md,
    section 4.5)."""
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


StructuredText: TypeAlias = str | dict[str, Any] | list[Any]
"""A text, or JSON that is read as text."""


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
            raise ValueError("a question of the type noul needs instructions or criteria")
        return self

    def read(self, name: str) -> Question:
        text = _text(self.instructions)
        criteria = self.criteria or NoulCriteria()
        yes = _text(criteria.true)
        no = _text(criteria.false)
        return predicate(name, text or "Is it so?", yes=yes, no=no)

    def write(self, answer: Answer) -> dict[str, Any]:
        return {"type": "noul", "noul": answer.share}


class ChoiceQuestion(BaseModel):
    type: Literal["choice"]
    instructions: StructuredText | None = None
    criteria: Annotated[
        dict[str, StructuredText | None], Field(min_length=2, max_length=MOST_OPTIONS)
    ]

    def read(self, name: str) -> Question:
        options = map_values(_text, self.criteria)
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
        text = _text(self.instructions) or "Which of these levels applies?"
        return score(name, text, [state_text(level) for level in self.criteria])

    def write(self, answer: Answer) -> dict[str, Any]:
        shares = answer.probabilities
        return {
            "type": "score",
            "score": sum(level * share for level, share in enumerate(shares)),
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
    def _reject_images(cls, assets: Any) -> Any:
        if assets is not None:
            raise ValueError(NO_IMAGES)
        return assets

    def read(self) -> tuple[Question, ...]:
        """Return the questions in order, named by number, since a client's name must not sway the
        answer."""
        return tuple(
            question.read(f"q{n}") for n, question in enumerate(self.questions.values(), 1)
        )

    def write(self, model: str, decision: Decision, spent: RequestSpending) -> dict[str, Any]:
        """Return the body of the response. A question without an answer is left out, with its
        reason in `x_unanswered`: a client that looks for it must not find a number. Further facts
        that the API has no fields for are left out if they are false or 0: whether the answers were
        derived from a chat model, how much of the state was left out, and how many calls the
        journal answered.

        Raises:
            ApiError: no question has an answer.
        """
        answers: dict[str, Any] = {}
        failures: dict[str, Failure] = {}

        for n, (id, question) in enumerate(self.questions.items(), 1):
            answer = decision.answers[f"q{n}"]
            if isinstance(answer, Failure):
                failures[id] = answer
            else:
                answers[id] = question.write(answer)

        if not answers:
            raise failure_error(next(iter(failures.values())), spent)
        facts: dict[str, Any] = {
            "x_unanswered": {id: failure.reason for id, failure in failures.items()},
            "x_emulated": decision.emulated,
            "x_state_cut": decision.cut,
            "x_replayed_calls": spent.replayed,
        }

        return {
            "model": model,
            "answers": answers,
            "usage": {
                "input_tokens": spent.usage.prompt_tokens,
                "output_tokens": spent.usage.completion_tokens,
            },
            **drop_empty(facts),
        }


router = APIRouter()
EXAMPLE = {
    "model": "judge/probe+rules",
    "state": {"input": "What is 2 + 2?", "output": "4"},
    "questions": {"right": {"type": "noul", "instructions": "Is the output right?"}},
}
Body: TypeAlias = Annotated[SystemOneRequest, example_body(EXAMPLE)]


@router.post(SYSTEM_ONE, responses={422: {"description": "The body cannot be used."}})
async def answer_system_one(body: Body, server: Server, caller: MayRun) -> Response:
    """Answer typed questions about a state, as TypeSafe's System One does."""
    serving = server.serving
    await server.limits.check_tokens(caller)
    with serving.place(), spending() as spent:
        try:
            async with serving.in_time():
                decider = serving.find(body.model)
                if decider is None:
                    raise no_model(body.model)
                decision = await decider(body.state, body.read())
        except asyncio.CancelledError:
            raise ApiError(503, "server_unavailable", "the server is shutting down") from None

    server.limits.note_tokens(caller, spent.usage.tokens)
    model = serving.aliases.get(body.model, body.model)

    return respond(body.write(model, decision, spent))
