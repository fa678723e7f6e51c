"""Pages about agents: the resources of each namespace, an agent with its versions, and chats with
it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from textevolve.agents.chat import SessionMessage
from textevolve.agents.resources import agent_collections, split_name
from textevolve.desk.exchange import describe, draw_difference, draw_one
from textevolve.server.identity import MayRead, MayRun, check_namespace
from textevolve.server.pages.drawing import Page, draw
from textevolve.server.state import Server
from textevolve.store import kinds

T = TypeVar("T")
SPACES = 20
"""The number of namespaces on one page."""
SESSIONS = 20
"""The number of an agent's latest sessions that its page lists."""
MESSAGES = 200
CHATS = 30
"""The numbers of a session's latest messages, and of the agent's latest sessions, on the page of a
chat."""

router = APIRouter()


async def read_rows(server: Server, query: Callable[..., T], *arguments: Any) -> T:
    """Run a query of the store in a thread, and return its result."""
    return await asyncio.to_thread(server.resources.read, query, *arguments)


@router.get("/agents")
async def show_agents(request: Request, server: Server, caller: MayRead, page: int = 1) -> Response:
    every = await read_rows(server, kinds.list_all, kinds.NAMESPACES)
    visible = [each for each in every if caller.sees(each.spec.name)]
    paging = Page(request, max(1, page), SPACES, len(visible))
    spaces: list[dict[str, Any]] = []

    for namespace in visible[paging.start :][:SPACES]:
        space: dict[str, Any] = {"stored": namespace}
        for kind in (kinds.AGENTS, kinds.COLLECTIONS, kinds.USERS):
            rows = await read_rows(server, kinds.list_all, kind, namespace.spec.name)
            space[kind.command] = rows
        spaces.append(space)

    return draw(request, "agents.html", spaces=spaces, page=paging)


@router.get("/agents/{namespace}/collections/counts")
async def show_counts(
    request: Request, server: Server, caller: MayRead, namespace: str
) -> Response:
    """Return the number of memories in each collection, as a part that the page loads later, since
    counting takes a while."""
    check_namespace(caller, namespace)
    counts = await read_rows(server, kinds.count_memories, namespace)
    return draw(request, "counts.html", namespace=namespace, counts=counts)


@router.get("/agents/{namespace}/{name}")
async def show_agent(
    request: Request,
    server: Server,
    caller: MayRead,
    namespace: str,
    name: str,
    version: int = 0,
) -> Response:
    """Show an agent with its chats, and one version of it compared with the version before.
    `version`: the number of that version; 0: the newest."""
    check_namespace(caller, namespace)
    resources = server.resources
    agent = await read_rows(server, kinds.get, kinds.AGENTS, namespace, name)
    versions = await read_rows(server, kinds.list_versions, kinds.AGENTS, namespace, name)
    later = versions[(version if 1 <= version <= len(versions) else len(versions)) - 1]
    earlier = versions[max(later.version - 2, 0)]
    ids = dict.fromkeys(id for change in later.changes for id in change.get("memories", ()))
    memories = await resources.memories(namespace).find(list(ids))
    names = (split_name(each, namespace)[1] for each in agent_collections(agent.spec))
    sessions = resources.sessions(namespace)

    return draw(
        request,
        "agent.html",
        agent=agent,
        versions=versions,
        later=later,
        difference=draw_difference(earlier, later),
        behind={memory.id: memory for memory in memories},
        facts=draw_one(kinds.AGENTS, describe(agent), ()).facts,
        collections=list(dict.fromkeys(names)),
        sessions=await asyncio.to_thread(sessions.list, agent_id=agent.id, limit=SESSIONS),
    )


@router.get("/chat/{namespace}/{name}")
async def show_chat(
    request: Request,
    server: Server,
    caller: MayRun,
    namespace: str,
    name: str,
    session: str = "",
) -> Response:
    """Show a chat with an agent: its sessions and messages. The page's script sends messages to
    `/v1/chat/completions` like any client, and the page then shows the recalled and the new
    memories."""
    check_namespace(caller, namespace)
    resources = server.resources
    agent = await read_rows(server, kinds.get, kinds.AGENTS, namespace, name)
    stored = resources.sessions(namespace)
    chat_session = None
    messages: list[SessionMessage] = []
    if session:
        chat_session = await asyncio.to_thread(stored.get, session, agent_id=agent.id)
        messages = await asyncio.to_thread(stored.messages, chat_session.id)
    left_out = len(messages[:-MESSAGES])
    messages = messages[-MESSAGES:]
    ids = dict.fromkeys(id for message in messages for id in message.details.memories)
    memories = await resources.memories(namespace).find(list(ids))

    return draw(
        request,
        "chat.html",
        agent=agent,
        session=chat_session,
        user=chat_session.user if chat_session else "",
        users=await read_rows(server, kinds.list_all, kinds.USERS, namespace),
        messages=messages,
        left_out=left_out,
        memories={memory.id: memory for memory in memories},
        sessions=await asyncio.to_thread(stored.list, agent_id=agent.id, limit=CHATS),
    )
