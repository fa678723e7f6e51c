"""The decision APIs: `POST /v1/systemone` and `POST /v1/decisions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from textevolve.llm.decisions import Question
from textevolve.server.access import Caller, needs
from textevolve.server.decisions.serving import Answered, refuse_unanswered
from textevolve.server.decisions.wires import DecisionRequest, SystemOneRequest
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


@router.post(SYSTEM_ONE, responses={422: {"description": "The body cannot be used."}})
async def answer_system_one(asked: SystemOneRequest, request: Request, caller: Asking) -> Response:
    """Answer typed questions about a state, as TypeSafe's System One does."""
    answered = await _answer(request, caller, asked.model, asked.state, asked.read())
    refuse_unanswered(answered)
    return respond(asked.write(answered))


@router.post(DECISIONS)
async def answer_decisions(asked: DecisionRequest, request: Request, caller: Asking) -> Response:
    """Answer typed questions about an input, as OpenAI's Decisions API does."""
    answered = await _answer(request, caller, asked.model, asked.state, asked.read())
    if answered.spending.causes:  # else the model itself has refused, which has a form here
        refuse_unanswered(answered)
    return respond(asked.write(answered))
