"""Pages about memories: a collection as a time line or searched, and each memory with its
history."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from textevolve.agents.chat import CHAT_SOURCE
from textevolve.api.namespaces import AsyncMemories
from textevolve.errors import NotFoundError, TextEvolveError
from textevolve.memory.recall import Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Collection, MemoryQuery, memory_data
from textevolve.server.errors import ApiError
from textevolve.server.identity import Caller, MayRead, check_namespace
from textevolve.server.pages.drawing import draw
from textevolve.server.resources_api import charging, desk_of
from textevolve.server.state import Server, ServerState

SHOWN = 50
ASSOCIATED = 10
"""The number of associated memories that the page of a memory lists."""
EMBED_SECONDS = 20.0
"""The seconds that a page waits for the embedding of a search text before it searches by
keywords."""
"""The beginning of the source of memories that were made from a chat; the session's id follows."""
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

router = APIRouter()


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
