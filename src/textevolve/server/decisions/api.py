"""The decision API: `POST /v1/systemone`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from textevolve.server.access import Caller, needs
from textevolve.server.api_document import example_body
from textevolve.server.decisions.serving import refuse_unanswered
from textevolve.server.decisions.wires import SystemOneRequest
from textevolve.server.errors import SYSTEM_ONE, respond
from textevolve.server.state import server_of

router = APIRouter()
EXAMPLE = {
    "model": "judge/probe+rules",
    "state": {"input": "What is 2 + 2?", "output": "4"},
    "questions": {"right": {"type": "noul", "instructions": "Is the output right?"}},
}
Question: TypeAlias = Annotated[SystemOneRequest, example_body(EXAMPLE)]
Asking: TypeAlias = Annotated[Caller, Depends(needs("run"))]


@router.post(SYSTEM_ONE, responses={422: {"description": "The body cannot be used."}})
async def answer_system_one(asked: Question, request: Request, caller: Asking) -> Response:
    """Answer typed questions about a state, as TypeSafe's System One does."""
    server = server_of(request)
    await server.limits.check_tokens(caller)
    answered = await server.serving.answer(asked.model, asked.state, asked.read())
    server.limits.note_tokens(caller, answered.spending.usage.tokens)
    refuse_unanswered(answered)
    return respond(asked.write(answered))
