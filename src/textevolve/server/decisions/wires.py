"""`POST /v1/systemone`: typed questions, answered as TypeSafe's System One does.

Fields of the answer that the API does not have begin with `x_`; clients ignore them.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Response

from textevolve.evaluation import Failure
from textevolve.llm.decisions import Decision
from textevolve.mappings import drop_empty
from textevolve.protocol.decisions import SystemOneRequest, write_decision, write_systemone_usage
from textevolve.server.bodies import BodyRoute
from textevolve.server.decisions.serving import RequestSpending, failure_error
from textevolve.server.errors import SYSTEM_ONE, ApiError, example_body, no_model, respond
from textevolve.server.identity import MayRun
from textevolve.server.resources_api import charging
from textevolve.server.state import Server


def write_answers(
    request: SystemOneRequest, model: str, decision: Decision, spent: RequestSpending
) -> dict[str, Any]:
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

    for n, (id, question) in enumerate(request.questions.items(), 1):
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
        # Its specification lets answers have further fields of their own after x_ alone.
        "x_left_out": ", ".join(sorted(request.model_extra or {})),
    }

    return write_decision(model, answers, write_systemone_usage(spent.usage), **drop_empty(facts))


router = APIRouter(route_class=BodyRoute)
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
    async with charging(server, caller) as spent:
        try:
            with serving.place():
                async with serving.in_time():
                    decider = serving.find(body.model)
                    if decider is None:
                        raise no_model(body.model)
                    decision = await decider(body.state, body.read())
        except asyncio.CancelledError:
            raise ApiError(503, "server_unavailable", "the server is shutting down") from None

    model = serving.aliases.get(body.model, body.model)

    return respond(write_answers(body, model, decision, spent))
