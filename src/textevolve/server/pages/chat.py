"""A chat with an agent: its sessions and messages. The page's script sends a message as any client
does, to `/v1/chat/completions`, and the page shows afterwards what was recalled and learned."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from textevolve.agents.session import SessionMessage
from textevolve.server.access import check_namespace
from textevolve.server.pages.agents import read_rows
from textevolve.server.pages.drawing import draw
from textevolve.server.pages.memories import Asker
from textevolve.server.state import server_of
from textevolve.store import kinds

MESSAGES = 200
"""Of a session, the last ones are shown."""
SESSIONS = 30

router = APIRouter()


@router.get("/chat/{namespace}/{name}")
async def show_chat(
    request: Request, caller: Asker, namespace: str, name: str, session: str = ""
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
        user=shown.user if shown else "",
        users=await read_rows(request, kinds.list_all, kinds.USERS, namespace),
        messages=messages,
        left_out=left_out,
        memories={memory.id: memory for memory in memories},
        sessions=await asyncio.to_thread(stored.list, agent_id=agent.id, limit=SESSIONS),
    )
