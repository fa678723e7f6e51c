"""Which of agents, judges and models answers a request, by the name of the model that it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from textevolve.errors import InputError
from textevolve.server.access import Caller
from textevolve.server.decisions.deciders import DecidingJudge
from textevolve.server.errors import no_model
from textevolve.server.openai.agents import answer_as_agent, is_agent
from textevolve.server.openai.completions import NoteTokens, OwnAnswer
from textevolve.server.openai.judges import answer_as_judge
from textevolve.server.openai.relaying import RelayedAnswer
from textevolve.server.openai.requests import JUDGES_CANNOT, read_own_request
from textevolve.server.state import ServerState


async def find_answer(
    server: ServerState, caller: Caller, body: Mapping[str, Any]
) -> OwnAnswer | RelayedAnswer:
    """Who answers the body of a chat completion; a model that was named goes before an agent.

    Raises:
        ApiError: nothing that the caller sees has this name, or the body is not for it.
    """
    name: str = body["model"]
    if (spec := await server.serving.find_model(name)) is not None:
        return RelayedAnswer(server.relays, spec, body, await _charge(server, caller))
    if (judge := _find_judge(server, name)) is not None:
        asked, note = read_own_request(body, JUDGES_CANNOT), await _charge(server, caller)
        return OwnAnswer(name, answer_as_judge(server.serving, judge, asked, note))
    if await is_agent(server, caller, name):
        asked = read_own_request(body)
        note = await _charge(server, caller, name.partition("/")[0])
        return OwnAnswer(name, await answer_as_agent(server, name, asked, note))
    raise no_model(name)


async def _charge(server: ServerState, caller: Caller, namespace: str = "") -> NoteTokens:
    """Notes what a caller spends who may spend something."""
    await server.limits.check_tokens(caller, namespace)
    return lambda tokens: server.limits.note_tokens(caller, tokens, namespace)


def _find_judge(server: ServerState, name: str) -> DecidingJudge | None:
    try:
        return server.serving.find_judge(name)
    except InputError:
        return None


async def list_names(server: ServerState, caller: Caller) -> list[str]:
    """All that this caller can ask: models and judges, then agents, each once."""

    def look_up() -> list[str]:
        seen = [one.spec.name for one in server.resources.list_namespaces()]
        return [
            agent.full_name
            for namespace in filter(caller.sees, seen)
            for agent in server.resources.list_agents(namespace)
        ]

    agents = await asyncio.to_thread(look_up)
    return list(dict.fromkeys((*server.serving.names, *agents)))
