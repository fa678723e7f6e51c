"""The decision APIs: `POST /v1/systemone`, `POST /v1/decisions`, and the list of what is served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from textevolve.llm.decisions import Question
from textevolve.server.access import Caller, needs
from textevolve.server.decisions.openai_decisions import (
    DecisionRequest,
    read_decision_questions,
    state_of,
    write_decision,
)
from textevolve.server.decisions.serving import JUDGE, Answered, Serving, refuse_unanswered
from textevolve.server.decisions.system_one import (
    SystemOneRequest,
    read_questions,
    write_system_one,
)
from textevolve.server.errors import DECISIONS, SYSTEM_ONE, respond
from textevolve.server.state import server_of

router = APIRouter()
Asking: TypeAlias = Annotated[Caller, Depends(needs("run"))]


async def _answer(
    request: Request, caller: Caller, model: str, state: object, questions: Sequence[Question]
) -> Answered:
    server = server_of(request)
    await server.limits.check_tokens(caller)
    answered = await server.serving.answer(model, state, questions)
    server.limits.note_tokens(caller, answered.spending.usage.tokens)
    return answered


@router.post(SYSTEM_ONE)
async def answer_system_one(asked: SystemOneRequest, request: Request, caller: Asking) -> Response:
    """Answer typed questions about a state, as TypeSafe's System One does."""
    questions = read_questions(asked)
    answered = await _answer(request, caller, asked.model, asked.state, questions)
    refuse_unanswered(answered)
    return respond(write_system_one(asked, questions, answered))


@router.post(DECISIONS)
async def answer_decisions(asked: DecisionRequest, request: Request, caller: Asking) -> Response:
    """Answer typed questions about an input, as OpenAI's Decisions API does."""
    questions = read_decision_questions(asked)
    answered = await _answer(request, caller, asked.model, state_of(asked), questions)
    if answered.spending.causes:  # else the model itself has refused, which has a form here
        refuse_unanswered(answered)
    return respond(write_decision(asked, questions, answered))


@router.get("/v1/models")
async def list_models(request: Request) -> Response:
    """What is served, in the shapes of both APIs at once."""
    serving = server_of(request).serving
    began = serving.began
    data = [
        {
            "id": name,
            "object": "model",
            "created": int(began.timestamp()),
            "owned_by": "textevolve",
        }
        for name in serving.names
    ]
    models = [
        {
            "name": name,
            "description": _describe(serving, name),
            "release_date": began.date().isoformat(),
        }
        for name in serving.names
    ]
    return respond({"object": "list", "data": data, "models": models})


def _describe(serving: Serving, name: str) -> str:
    if name in serving.aliases:
        return f"Another name of {serving.aliases[name]}."
    if not name.startswith(JUDGE):
        return "A model that answers typed questions."
    takes = getattr(serving.deciders[name], "takes_rubric", False)
    return f"A judge by {'the question that is asked' if takes else 'questions of its own'}."
