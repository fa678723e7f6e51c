"""The decision APIs: `POST /v1/systemone` and `POST /v1/decisions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from textevolve.server.decisions.openai_decisions import (
    DecisionRequest,
    read_decision_questions,
    state_of,
    write_decision,
)
from textevolve.server.decisions.serving import Serving, refuse_unanswered
from textevolve.server.decisions.system_one import (
    SystemOneRequest,
    read_questions,
    write_system_one,
)
from textevolve.server.errors import DECISIONS, SYSTEM_ONE, respond
from textevolve.server.state import server_of

router = APIRouter()


def _serving(request: Request) -> Serving:
    return server_of(request).serving


@router.post(SYSTEM_ONE)
async def answer_system_one(asked: SystemOneRequest, request: Request) -> Response:
    """Answer typed questions about a state, as TypeSafe's System One does."""
    questions = read_questions(asked)
    answered = await _serving(request).answer(asked.model, asked.state, questions)
    refuse_unanswered(answered)
    return respond(write_system_one(asked, questions, answered))


@router.post(DECISIONS)
async def answer_decisions(asked: DecisionRequest, request: Request) -> Response:
    """Answer typed questions about an input, as OpenAI's Decisions API does."""
    questions = read_decision_questions(asked)
    answered = await _serving(request).answer(asked.model, state_of(asked), questions)
    if answered.spending.causes:  # else the model itself has refused, which has a form here
        refuse_unanswered(answered)
    return respond(write_decision(asked, questions, answered))
