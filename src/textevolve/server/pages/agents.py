"""Pages about agents and memories: the resources of each namespace, an agent with its versions,
chats with it, and collections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from textevolve.agents.chat import CHAT_SOURCE, SessionMessage
from textevolve.agents.resources import agent_collections, split_name
from textevolve.api.namespaces import AsyncMemories
from textevolve.desk.exchange import describe, draw_difference, draw_one
from textevolve.errors import NotFoundError, TextEvolveError
from textevolve.memory.recall import Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Collection, MemoryQuery, memory_data
from textevolve.server.errors import ApiError
from textevolve.server.identity import Caller, MayRead, MayRun, check_namespace
from textevolve.server.pages.drawing import Page, draw
from textevolve.server.resources_api import charging, desk_of
from textevolve.server.state import Server, ServerState
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
    agent = await read_rows(server, kinds.get, kinds.AGENTS, namespace, name)
    versions = await read_rows(server, kinds.list_versions, kinds.AGENTS, namespace, name)
    later = versions[(version if 1 <= version <= len(versions) else len(versions)) - 1]
    earlier = versions[max(later.version - 2, 0)]
    ids = dict.fromkeys(id for change in later.changes for id in change.get("memories", ()))
    memories = await server.resources.memories(namespace).find(list(ids))
    names = (split_name(each, namespace)[1] for each in agent_collections(agent.spec))
    sessions = server.resources.sessions(namespace)

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
    agent = await read_rows(server, kinds.get, kinds.AGENTS, namespace, name)
    stored = server.resources.sessions(namespace)
    chat_session = None
    messages: list[SessionMessage] = []
    if session:
        chat_session = await asyncio.to_thread(stored.get, session, agent_id=agent.id)
        messages = await asyncio.to_thread(stored.messages, chat_session.id)
    left_out = len(messages[:-MESSAGES])
    messages = messages[-MESSAGES:]
    ids = dict.fromkeys(id for message in messages for id in message.details.memories)
    memories = await server.resources.memories(namespace).find(list(ids))

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


# Pages about memories: a collection as a time line or searched, and each memory with its history.

SHOWN = 50
ASSOCIATED = 10
"""The number of associated memories that the page of a memory lists."""
EMBED_SECONDS = 20.0
"""The seconds that a page waits for the embedding of a search text before it searches by
keywords."""
FACTS = {"added": "held from version", "closed": "not held from version"}
"""The fields of a memory that the pages show under other names."""
DRAWN = (
    "id",
    "text",
    "collection",
    "entities",
    "relations",
    "cites",
    "reason",
    "supersedes",
    "superseded_by",
)
"""The fields of a memory that its page shows outside the table of details."""


@router.get("/memories/{namespace}/{collection}")
async def show_memories(
    request: Request,
    server: Server,
    caller: MayRead,
    namespace: str,
    collection: str,
    q: str = "",
    before: str = "",
) -> Response:
    """Show the memories of a collection as a time line, or the results of a search. `q`: the text
    to search for. `before`: the id of the memory after which the page of the time line begins."""
    check_namespace(caller, namespace)
    store = server.resources.memories(namespace)
    stored_collection = await store.collection(collection)
    values: dict[str, Any] = {"recalled": None, "hindrance": "", "scores": {}, "older": ""}

    if text := q.strip():
        recalled, hindrance = await _search(server, caller, stored_collection, text)
        scores = {memory.id: memory for memory in recalled.memories}
        stored = {memory.id: memory for memory in await store.find(list(scores))}
        values |= {"recalled": recalled, "hindrance": hindrance, "scores": scores}
        memories = [stored[id] for id in scores if id in stored]
    else:
        memories = await store.page(
            collection, after=before or None, limit=SHOWN + 1, closed=True, newest_first=True
        )
        if len(memories) > SHOWN:
            older = request.url.include_query_params(before=memories[SHOWN - 1].id)
            values["older"] = older.query

    return draw(
        request,
        "memories.html",
        collection=stored_collection,
        text=text,
        before=before,
        memories=memories[:SHOWN],
        now=time.time(),
        **values,
    )


async def _search(
    server: ServerState, caller: Caller, collection: Collection, text: str
) -> tuple[Recalled, str]:
    """Search by embedding if possible, otherwise by keywords alone. Return the results, and the
    reason if keywords were used."""
    store = server.resources.memories(collection.namespace)
    settings = RecallSettings(collections=(collection.name,), limit=SHOWN, scope="agent")
    recall = partial(recall_memories, store, settings=settings, cue=text)
    hindrance = "a search by meaning calls a model, and the key has no scope 'run'"

    if caller.may("run"):
        try:
            async with (
                charging(server, caller, store.namespace),
                asyncio.timeout(EMBED_SECONDS),
            ):
                return await recall(embed=server.serving.bench.embed), ""
        except (ApiError, TextEvolveError, TimeoutError) as error:
            late = f"no answer within {EMBED_SECONDS:g} s"
            hindrance = f"{collection.embedder} could not be called: {str(error) or late}"

    return await recall(embed=None), hindrance


@router.get("/memories/{namespace}/{collection}/{id}")
async def show_memory(
    request: Request, server: Server, caller: MayRead, namespace: str, collection: str, id: str
) -> Response:
    """Show a memory with all details and its history."""
    check_namespace(caller, namespace)
    memories = AsyncMemories(desk_of(server, namespace), collection)
    (memory,) = await memories.get(id)
    store = server.resources.memories(namespace)
    near = MemoryQuery(collection=collection, limit=ASSOCIATED)
    facts = {
        FACTS.get(name, name.replace("_", " ")): value
        for name, value in memory_data(memory).items()
        if name not in DRAWN and value not in (None, "", False)
    }
    chat = None
    if memory.origin.source.startswith(CHAT_SOURCE):
        sessions = server.resources.sessions(namespace)
        with suppress(NotFoundError):  # it may have been deleted
            chat = await asyncio.to_thread(
                sessions.get, memory.origin.source.removeprefix(CHAT_SOURCE)
            )

    return draw(
        request,
        "memory.html",
        namespace=namespace,
        memory=memory,
        facts=facts,
        associated=await store.associate(near, [id]),
        cited={each.id: each for each in await store.find(memory.cites)},
        history=await memories.history(id),
        chat=chat,
        now=time.time(),
    )
