"""Memories: a collection on a time line, searched, and each memory with its history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.agents.session import ChatSession
from textevolve.api.memories import AsyncMemories
from textevolve.errors import BudgetError, ConflictError, InputError, ModelError, SettingsError
from textevolve.memory.memory_spec import memory_data, take_time
from textevolve.memory.recall import Memory, Recalled, recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Collection, MemoryRecord
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.decisions.spending import spending
from textevolve.server.errors import ApiError
from textevolve.server.namespaces import desk_of
from textevolve.server.pages.drawing import draw, read_form
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import ServerState, server_of
from textevolve.store.memories import StoredMemories
from textevolve.store.sessions import StoredSessions

SHOWN = 50
"""Memories on one page."""
EMBED_SECONDS = 20.0
"""How long a page waits for the embedding of a question before it goes by keywords."""
CHAT = "chat "
"""Begins the source of memories that were made of a chat; its session's id follows."""
FACTS = {"added": "held from version", "closed": "not held from version"}
"""Fields of a memory that have other names here."""
DRAWN = frozenset(
    {
        *("id", "text", "collection", "entities", "relations", "cites", "reason"),
        *("supersedes", "superseded_by"),
    }
)
"""Those that have a place of their own."""

router = APIRouter()
Asker = Annotated[Caller, Depends(needs("run"))]


@dataclass(frozen=True, slots=True)
class Search:
    """What was found. `by_keywords`: why it was not looked for by meaning; empty where it was."""

    recalled: Recalled
    by_keywords: str = ""


@dataclass(frozen=True, slots=True)
class WantedMemories:
    """What of a collection is to be shown. `moment`: as it held then."""

    query: str
    meaning: bool
    moment: float | None
    before: str | None
    closed: bool


def read_wanted(
    q: str = "", by: str = "meaning", at: str = "", before: str = "", show: str = "all"
) -> WantedMemories:
    """What the address asks for.

    Raises:
        ApiError: `at` is no time.
    """
    try:
        moment = take_time(at.strip()) if at.strip() else None
    except ValueError as error:
        raise ApiError(400, "invalid_request", f"as of: {error}") from None
    return WantedMemories(q.strip(), by == "meaning", moment, before or None, show == "all")


@router.get("/memories/{namespace}/{collection}")
async def show_memories(
    request: Request,
    caller: RunReader,
    namespace: str,
    collection: str,
    wanted: Annotated[WantedMemories, Depends(read_wanted)],
) -> Response:
    check_namespace(caller, namespace)
    server = server_of(request)
    store = server.resources.memories(namespace)
    found = await _find_collection(store, collection)
    search = None
    if wanted.query:
        search = await _search(server, caller, store, found, wanted)
        shown = await _in_order(store, search.recalled.memories)
    else:
        shown = await _page(store, collection, wanted)
    more = shown[SHOWN - 1].id if not wanted.query and len(shown) > SHOWN else ""
    older = request.url.include_query_params(before=more).query if more else ""
    return draw(
        request,
        "memories.html",
        collection=found,
        wanted=wanted,
        at=request.query_params.get("at", "").strip(),
        search=search,
        memories=shown[:SHOWN],
        scores=_scores(search),
        older=older,
        now=time.time(),
    )


async def _find_collection(store: StoredMemories, name: str) -> Collection:
    try:
        return await store.collection(name)
    except InputError as error:
        raise ApiError(404, "not_found", str(error)) from None


async def _page(
    store: StoredMemories, collection: str, wanted: WantedMemories
) -> Sequence[MemoryRecord]:
    """One more than are shown, where there are more."""
    try:
        return await store.timeline(
            collection,
            before=wanted.before,
            limit=SHOWN + 1,
            moment=wanted.moment,
            closed=wanted.closed,
        )
    except InputError as error:  # no such memory to go on behind
        raise ApiError(404, "not_found", str(error)) from None


async def _in_order(store: StoredMemories, memories: Sequence[Memory]) -> Sequence[MemoryRecord]:
    found = {one.id: one for one in await store.find([one.id for one in memories])}
    return [found[one.id] for one in memories if one.id in found]


def _scores(search: Search | None) -> Mapping[str, Memory]:
    return {} if search is None else {one.id: one for one in search.recalled.memories}


async def _search(
    server: ServerState,
    caller: Caller,
    store: StoredMemories,
    collection: Collection,
    wanted: WantedMemories,
) -> Search:
    """By meaning where that is wanted and can be had, else by keywords alone."""
    settings = RecallSettings(collections=(collection.name,), limit=SHOWN)
    why = "" if wanted.meaning else "as you wished"
    if wanted.meaning and not caller.may("run"):
        why = "the search by meaning asks a model, and the key has no scope 'run'"
    if not why:
        try:
            return Search(await _recall(server, caller, store, settings, wanted))
        except TimeoutError:
            why = f"{collection.embedder} gave no embedding within {EMBED_SECONDS:g} s"
        except (ApiError, ModelError, SettingsError, BudgetError, InputError) as error:
            why = f"{collection.embedder} could not be asked: {error}"
    return Search(
        await recall_memories(store, None, settings, wanted.query, now=wanted.moment), why
    )


async def _recall(
    server: ServerState,
    caller: Caller,
    store: StoredMemories,
    settings: RecallSettings,
    wanted: WantedMemories,
) -> Recalled:
    await server.limits.check_tokens(caller, store.namespace)
    embed = server.serving.bench.embed
    with spending() as spent:
        try:
            async with asyncio.timeout(EMBED_SECONDS):
                return await recall_memories(
                    store, embed, settings, wanted.query, now=wanted.moment
                )
        finally:
            server.limits.note_tokens(caller, spent.usage.tokens, store.namespace)


@router.get("/memories/{namespace}/{collection}/{id}")
async def show_memory(
    request: Request, caller: RunReader, namespace: str, collection: str, id: str
) -> Response:
    """A memory with all that is known of it, and what became of it."""
    store, memory = await _find_memory(request, caller, namespace, collection, id)
    cited = {one.id: one for one in await store.find(memory.cites)}
    facts = {
        FACTS.get(name, name.replace("_", " ")): value
        for name, value in memory_data(memory).items()
        if name not in DRAWN and value not in (None, "", False)
    }
    chat = memory.origin.source.removeprefix(CHAT) if memory.origin.source.startswith(CHAT) else ""
    sessions = server_of(request).resources.sessions(namespace)
    return draw(
        request,
        "memory.html",
        namespace=namespace,
        memory=memory,
        facts=facts,
        cited=cited,
        history=await store.history(id),
        chat=await _find_chat(sessions, chat) if chat else None,
        now=time.time(),
    )


async def _find_chat(sessions: StoredSessions, id: str) -> ChatSession | None:
    """The chat that a memory came from, unless it was deleted."""
    try:
        return await asyncio.to_thread(sessions.get, id)
    except InputError:
        return None


async def _find_memory(
    request: Request, caller: Caller, namespace: str, collection: str, id: str
) -> tuple[StoredMemories, MemoryRecord]:
    """
    Raises:
        ApiError: it is not in this collection.
    """
    check_namespace(caller, namespace)
    store = server_of(request).resources.memories(namespace)
    await _find_collection(store, collection)
    found = await store.find([id])
    if not found or found[0].collection != collection:
        raise ApiError(404, "not_found", f"no memory '{id}' in {namespace}/{collection}")
    return store, found[0]


@router.post("/memories/{namespace}/{collection}/{id}/forget")
async def forget_memory(
    request: Request, caller: Asker, namespace: str, collection: str, id: str
) -> Response:
    """Closes a memory; who has the scope admin may erase it, too."""
    await _find_memory(request, caller, namespace, collection, id)
    erase = (await read_form(request)).get("erase") == "yes"
    if erase and not caller.may("admin"):
        raise ApiError(403, "permission_denied", "to erase a memory the key needs the scope admin")
    try:
        await AsyncMemories(desk_of(server_of(request), namespace), collection).forget(
            id, erase=erase
        )
    except ConflictError as error:
        raise ApiError(409, "conflict", str(error)) from None
    return RedirectResponse(f"/memories/{namespace}/{collection}/{id}", 303)
