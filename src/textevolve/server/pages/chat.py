"""A chat with an agent: the page, and the turns that its script sends and is told of.

The events of a turn: `begun` (the session), `recalled`, `shortened`, `piece`, `answer`, `failed`,
and in the end `learned`. Texts are JSON strings; what is drawn on the server is escaped there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from textevolve.agents.chat import ChatAnswer, HistoryShortened, Learned
from textevolve.agents.session import SessionMessage
from textevolve.errors import TextEvolveError
from textevolve.llm.streaming import AnswerPiece
from textevolve.memory.recall import Recalled
from textevolve.memory.record import MemoryRecord
from textevolve.server.access import check_namespace
from textevolve.server.errors import ApiError, as_api_error, respond
from textevolve.server.open_chats import TurnBegun, TurnEvent
from textevolve.server.pages.agents import look_up
from textevolve.server.pages.drawing import draw, read_form
from textevolve.server.pages.memories import Asker
from textevolve.server.state import ServerState, server_of
from textevolve.store import kinds
from textevolve.studies.chats import ChatOptions

MESSAGES = 200
"""Of a session, the last ones are shown."""
SESSIONS = 30

router = APIRouter()


@router.get("/chat/{namespace}/{name}")
async def show_chat(
    request: Request, caller: Asker, namespace: str, name: str, session: str = "", user: str = ""
) -> Response:
    check_namespace(caller, namespace)
    resources = server_of(request).resources
    agent = await look_up(lambda: resources.read(kinds.get, kinds.AGENTS, namespace, name))
    kept = resources.sessions(namespace)
    shown = None
    messages: list[SessionMessage] = []
    if session:
        shown = await look_up(lambda: kept.get(session, agent_id=agent.id))
        messages = await look_up(lambda: kept.messages(shown.id))
    left_out, messages = len(messages[:-MESSAGES]), messages[-MESSAGES:]
    return draw(
        request,
        "chat.html",
        agent=agent,
        session=shown,
        user=shown.user if shown else user,
        users=await look_up(lambda: resources.read(kinds.list_all, kinds.USERS, namespace)),
        messages=messages,
        left_out=left_out,
        memories=await _read_recalled(server_of(request), namespace, messages),
        sessions=await look_up(lambda: kept.list(agent_id=agent.id, limit=SESSIONS)),
    )


async def _read_recalled(
    server: ServerState, namespace: str, messages: Sequence[SessionMessage]
) -> Mapping[str, MemoryRecord]:
    """The memories that were recalled for these messages, by id, as far as they are there."""
    ids = list(dict.fromkeys(id for one in messages for id in one.details.memories))
    return {one.id: one for one in await server.resources.memories(namespace).find(ids)}


@router.post("/chat/{namespace}/{name}/say")
async def say(request: Request, caller: Asker, namespace: str, name: str) -> Response:
    """A turn, whose events are streamed. The form's fields: `text`, `user` and `session`; with
    `again` the last message, which has no answer, is answered."""
    check_namespace(caller, namespace)
    server, form = server_of(request), await read_form(request)
    agent = await look_up(lambda: server.resources.read(kinds.get, kinds.AGENTS, namespace, name))

    async def tell() -> AsyncGenerator[bytes]:
        try:
            with ExitStack() as place:
                place.enter_context(server.limits.stream_place(caller))
                options = ChatOptions(
                    agent=agent.full_name,
                    user=form.get("user", "").strip(),
                    session=form.get("session") or None,
                )
                held = await server.open_chats.open(options)
                text = None if form.get("again") else form.get("text", "")
                async with aclosing(await server.open_chats.begin(caller, held, text)) as events:
                    async for event in events:
                        yield await _write(request, namespace, event)
                        if isinstance(event, ChatAnswer):  # what is learned holds up nothing
                            place.close()
        except (ApiError, TextEvolveError) as error:
            yield _event("failed", message=as_api_error(error).message)

    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    return StreamingResponse(tell(), headers=headers, media_type="text/event-stream")


@router.post("/chat/{namespace}/{name}/stop")
async def stop(request: Request, caller: Asker, namespace: str, name: str) -> Response:
    """Ends the answer that is being written in a session."""
    check_namespace(caller, namespace)
    session = (await read_form(request)).get("session", "")
    held = server_of(request).open_chats.find(session)
    if held is None or held.agent.full_name != f"{namespace}/{name}":
        raise ApiError(404, "not_found", f"no chat '{session[:60]}' is open")
    held.stop()
    return respond({"stopped": session})


def _event(name: str, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


async def _write(request: Request, namespace: str, event: TurnEvent) -> bytes:
    def drawn(**values: Any) -> str:
        made = draw(request, "turn.html", namespace=namespace, **values)
        return bytes(made.body).decode()

    match event:
        case TurnBegun():
            return _event("begun", session=event.session)
        case Recalled():
            return _event("recalled", html=drawn(recalled=event) if event.memories else "")
        case HistoryShortened():
            return _event("shortened", html=drawn(shortened=event))
        case AnswerPiece():
            return _event("piece", text=event.text, anew=event.anew)
        case ChatAnswer():
            html = drawn(answer=event)
            return _event("answer", text=event.text, position=event.position, html=html)
        case Learned():
            store = server_of(request).resources.memories(namespace)
            html = drawn(learned=event, kept=await store.find(event.ids))
            where = {"session": event.turn.session, "position": event.turn.position}
            return _event("learned", **where, html=html)
        case ApiError():
            return _event("failed", message=event.message)
