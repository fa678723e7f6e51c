"""The paths of OpenAI's API: `/v1/chat/completions`, `/v1/responses`, `/v1/embeddings` and
`/v1/models`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from textevolve.json_texts import is_object
from textevolve.protocol.chat import DONE, JsonObject, write_event
from textevolve.server.bodies import parse_aside
from textevolve.server.decisions.serving import JUDGE, DecidingModel, Serving
from textevolve.server.errors import no_model, refuse_idempotency_key, respond
from textevolve.server.identity import Caller, MayRun, caller_of
from textevolve.server.openai.relaying import RelayedAnswer
from textevolve.server.openai.requests import (
    HEEDED,
    JUDGES_CANNOT,
    JUDGES_HEED,
    NoteTokens,
    ServedAnswer,
    describe_unheeded,
    read_json_body,
    read_own_request,
)
from textevolve.server.openai.responses import as_chat, read_responses, write_events, write_response
from textevolve.server.openai.served import (
    SESSION,
    answer_as_agent,
    answer_as_judge,
    embed_for,
    is_agent,
)
from textevolve.server.state import Server, ServerState
from textevolve.server.streams import WhileConnected, event_of, respond_events
from textevolve.store import kinds

ALIAS = ":"
"""The separator of namespace and agent for clients that interpret the part of a name before a slash
themselves."""


async def find_answer(
    server: ServerState, caller: Caller, body: Mapping[str, Any]
) -> ServedAnswer | RelayedAnswer:
    """Find the model, judge or agent that answers a chat completion, in this order.

    Raises:
        ApiError: the caller sees no model, judge or agent of this name, or it cannot answer such a
            request.
    """
    name: str = body["model"]
    decider = server.serving.find(name)
    if isinstance(decider, DecidingModel):
        note = await _charge(server, caller)
        return RelayedAnswer(server.relays, decider.model.name, body, note)

    agent = name if "/" in name else name.replace(ALIAS, "/", 1)

    if decider is not None:
        own_request = await parse_aside(partial(read_own_request, body, JUDGES_CANNOT))
        heeded = JUDGES_HEED
        note = await _charge(server, caller)
        pieces = answer_as_judge(server.serving, decider, own_request, note)
    elif await is_agent(server, caller, agent):
        own_request = await parse_aside(partial(read_own_request, body))
        heeded = HEEDED
        note = await _charge(server, caller, agent.partition("/")[0])
        pieces = answer_as_agent(server, agent, own_request, note)
    else:
        raise no_model(name)

    return ServedAnswer(name, pieces, own_request, describe_unheeded(body, heeded))


async def _charge(server: ServerState, caller: Caller, namespace: str = "") -> NoteTokens:
    """Check the caller's token limits; return a function that charges tokens to the caller."""
    await server.limits.check_tokens(caller, namespace)
    return lambda tokens: server.limits.note_tokens(caller, tokens, namespace)


async def list_names(server: ServerState, caller: Caller) -> list[str]:
    """List the names that this caller may use, each once: models, judges and their aliases, then
    agents, each as NAMESPACE/AGENT and as NAMESPACE:AGENT."""

    def look_up() -> list[str]:
        seen = server.resources.namespace_names()
        return [
            name
            for namespace in filter(caller.sees, seen)
            for agent in server.resources.read(kinds.list_all, kinds.AGENTS, namespace)
            for name in (agent.full_name, agent.full_name.replace("/", ALIAS))
        ]

    # A key that may neither read agents nor chat with them does not learn their names.
    knows_agents = caller.may("read") or caller.may("run")
    agents = await asyncio.to_thread(look_up) if knows_agents else []

    return list(dict.fromkeys((*server.serving.names, *agents)))


router = APIRouter(tags=["OpenAI"])


def _described(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of a body. The body is parsed by hand, since most of its
    fields are passed on unchanged."""
    content = {"application/json": {"schema": {"type": "object"}, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


CHAT = {"model": "acme/guide", "messages": [{"role": "user", "content": "Where do I live?"}]}
RESPONSE = {"model": "acme/guide", "input": "Where do I live?"}
EMBEDDING = {"model": "local/minilm", "input": ["a text", "another"]}


@router.post("/v1/chat/completions", openapi_extra=_described(CHAT))
async def complete_chat(request: Request, server: Server, caller: MayRun) -> Response:
    """Answer a conversation: an agent, a judge, or a model that is served by its name."""
    body = await read_json_body(request)
    _refuse_key_of_session(request, body)

    async def make() -> Response:
        answer = await find_answer(server, caller, body)
        if isinstance(answer, RelayedAnswer):
            return await answer.respond()
        if not body.get("stream"):
            async with server.serving.in_time():
                return respond(await answer.complete())
        return await respond_events(_events(answer), server.serving)

    return _answer(server, caller, body, make)


def _refuse_key_of_session(request: Request, body: JsonObject) -> None:
    """Refuse a promise that a session cannot keep: a message that was answered is a new one when it
    comes again."""
    metadata: Any = body.get("metadata")
    if is_object(metadata) and metadata.get(SESSION):
        refuse_idempotency_key(
            request,
            "a message whose answer was interrupted can be sent again, and stands in its session"
            " once; leave the header out",
        )


def _answer(
    server: ServerState, caller: Caller, body: JsonObject, make: Callable[[], Awaitable[Response]]
) -> Response:
    """Answer while the client is connected; a stream counts towards the limit of its key."""
    place = server.limits.stream_place(caller) if body.get("stream") else nullcontext()
    return WhileConnected(make, place)


async def _events(answer: ServedAnswer) -> AsyncGenerator[bytes]:
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            yield event_of(chunk)
    yield write_event(DONE)


@router.post("/v1/responses", openapi_extra=_described(RESPONSE))
async def create_response(request: Request, server: Server, caller: MayRun) -> Response:
    """Answer in the format of OpenAI's Responses. Responses are not stored and cannot be
    continued."""
    body = await read_json_body(request)
    _refuse_key_of_session(request, body)
    responses_request = await parse_aside(partial(read_responses, body))

    async def make() -> Response:
        answer = await find_answer(server, caller, as_chat(responses_request))
        if responses_request.stream:
            return await respond_events(write_events(responses_request, answer), server.serving)
        async with server.serving.in_time():
            return respond(write_response(responses_request, await answer.complete()))

    return _answer(server, caller, body, make)


@router.post("/v1/embeddings", openapi_extra=_described(EMBEDDING))
async def create_embeddings(request: Request, server: Server, caller: MayRun) -> Response:
    """Vectors of texts."""
    body = await read_json_body(request)

    async def make() -> Response:
        decider = server.serving.find(body["model"])
        if not isinstance(decider, DecidingModel):
            raise no_model(body["model"])
        async with server.serving.in_time():
            note = await _charge(server, caller)
            return respond(await embed_for(decider.model, body, note))

    return _answer(server, caller, body, make)


@router.get("/v1/models")
async def list_models(request: Request, server: Server) -> Response:
    """List the served models in the formats of OpenAI's API (`data`) and of System One (`models`,
    without agents)."""
    serving = server.serving
    names = await list_names(server, caller_of(request))
    models = [
        {
            "name": name,
            "description": _describe(serving, name),
            "release_date": serving.began.date().isoformat(),
        }
        for name in serving.names
    ]
    data = [_write_model(server, name) for name in names]

    return respond({"object": "list", "data": data, "models": models})


@router.get("/v1/models/{name:path}")
async def show_model(name: str, request: Request, server: Server) -> Response:
    """One of them."""
    if name not in await list_names(server, caller_of(request)):
        raise no_model(name)
    return respond(_write_model(server, name))


def _write_model(server: ServerState, name: str) -> JsonObject:
    created = int(server.serving.began.timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": "textevolve"}


def _describe(serving: Serving, name: str) -> str:
    if name in serving.aliases:
        return f"Another name of {serving.aliases[name]}."
    if not name.startswith(JUDGE):
        return "A model that answers typed questions."
    takes = getattr(serving.deciders[name], "takes_rubric", False)
    return f"A judge by {'the question that is asked' if takes else 'questions of its own'}."
