"""A chat with an agent: the page, and the turns that its script sends and is told of.

The events of a turn: `begun` (the session), `recalled`, `shortened`, `piece`, `answer`, `failed`,
and in the end `learned`. Texts are JSON strings; what is drawn on the server is escaped there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, nullcontext
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from textevolve.agents.chat import ChatAnswer, ChatEvent, HistoryShortened
from textevolve.agents.session import SessionMessage
from textevolve.llm.streaming import AnswerPiece
from textevolve.memory.recall import Recalled
from textevolve.server.access import Caller, check_namespace
from textevolve.server.decisions.spending import spending
from textevolve.server.errors import as_api_error
from textevolve.server.openai.streams import EventResponse, WhileConnected, event_of
from textevolve.server.pages.agents import read_rows
from textevolve.server.pages.drawing import draw, read_form
from textevolve.server.pages.memories import Asker
from textevolve.server.state import server_of
from textevolve.store import kinds
from textevolve.studies.chats import ChatOptions, ChatRequest

MESSAGES = 200
"""Of a session, the last ones are shown."""
SESSIONS = 30

log = logging.getLogger("textevolve.server")
router = APIRouter()


@router.get("/chat/{namespace}/{name}")
async def show_chat(
    request: Request, caller: Asker, namespace: str, name: str, session: str = "", user: str = ""
) -> Response:
    check_namespace(caller, namespace)
    resources = server_of(request).resources
    agent = await read_rows(request, kinds.get, kinds.AGENTS, namespace, name)
    stored = resources.sessions(namespace)
    shown, messages = None, list[SessionMessage]()
    if session:
        shown = await asyncio.to_thread(stored.get, session, agent_id=agent.id)
        messages = await asyncio.to_thread(stored.messages, shown.id)
    left_out, messages = len(messages[:-MESSAGES]), messages[-MESSAGES:]
    ids = dict.fromkeys(id for message in messages for id in message.details.memories)
    memories = await resources.memories(namespace).find(list(ids))
    return draw(
        request,
        "chat.html",
        agent=agent,
        session=shown,
        user=shown.user if shown else user,
        users=await read_rows(request, kinds.list_all, kinds.USERS, namespace),
        messages=messages,
        left_out=left_out,
        memories={memory.id: memory for memory in memories},
        sessions=await asyncio.to_thread(stored.list, agent_id=agent.id, limit=SESSIONS),
    )


@router.post("/chat/{namespace}/{name}/say")
async def say(request: Request, caller: Asker, namespace: str, name: str) -> Response:
    """A turn, whose events are streamed. The form's fields: `text`, `user` and `session`; with
    `again` the last message, which has no answer, is answered. Who leaves stops the answer."""
    check_namespace(caller, namespace)
    server, form = server_of(request), await read_form(request)
    await read_rows(request, kinds.get, kinds.AGENTS, namespace, name)
    options = ChatOptions(
        agent=f"{namespace}/{name}",
        user=form.get("user", "").strip(),
        session=form.get("session") or None,
    )
    text = None if form.get("again") else form.get("text", "")

    async def answer() -> Response:
        return EventResponse(_follow(request, caller, options, text), server.serving)

    return WhileConnected(answer, 0.0, nullcontext())


async def _follow(
    request: Request, caller: Caller, options: ChatOptions, text: str | None
) -> AsyncGenerator[bytes]:
    """Write the events of a turn. A failure is the last of them."""
    server, namespace = server_of(request), options.agent.partition("/")[0]
    note = partial(server.limits.note_tokens, caller, namespace=namespace)
    try:
        with ExitStack() as place, spending(note):
            place.enter_context(server.limits.stream_place(caller))
            await server.limits.check_tokens(caller, namespace)
            plan = await server.chats.plan(ChatRequest(options=options))
            chat = await server.chats.open(plan)
            if text is not None:
                await chat.begin(text)
            yield event_of({"session": chat.session}, "begun")
            turn = chat.answer() if text is None else chat.say(text)
            async with aclosing(turn) as events:
                async for event in events:
                    yield _write(request, namespace, event)
            place.close()  # what is learned holds up nothing
            await chat.finish()
            store = server.resources.memories(namespace)
            for learned in chat.learned():
                html = _draw(
                    request, namespace, learned=learned, kept=await store.find(learned.ids)
                )
                where = {"session": learned.turn.session, "position": learned.turn.position}
                yield event_of({**where, "html": html}, "learned")
    except Exception as error:
        failure = as_api_error(error)
        if failure.status == 500:
            log.error("a chat with %s failed", options.agent, exc_info=error)
        yield event_of({"message": failure.message}, "failed")


def _draw(request: Request, namespace: str, **values: Any) -> str:
    return bytes(draw(request, "turn.html", namespace=namespace, **values).body).decode()


def _write(request: Request, namespace: str, event: ChatEvent) -> bytes:
    match event:
        case Recalled():
            html = _draw(request, namespace, recalled=event) if event.memories else ""
            return event_of({"html": html}, "recalled")
        case HistoryShortened():
            return event_of({"html": _draw(request, namespace, shortened=event)}, "shortened")
        case AnswerPiece():
            return event_of({"text": event.text, "anew": event.anew}, "piece")
        case ChatAnswer():
            html = _draw(request, namespace, answer=event)
            return event_of(
                {"text": event.text, "position": event.position, "html": html}, "answer"
            )
