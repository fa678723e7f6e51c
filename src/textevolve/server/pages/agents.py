"""Agents: what each namespace has, and an agent with the versions of its persona."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.agents.resources import (
    SpecVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    agent_collections,
    split_name,
)
from textevolve.errors import ConflictError, InputError
from textevolve.memory.record import Collection, MemoryRecord
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.errors import ApiError
from textevolve.server.pages.drawing import Page, draw, read_form
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import server_of
from textevolve.store import Store, kinds
from textevolve.studies.resource_report import describe, draw_difference, draw_one

T = TypeVar("T")
SPACES = 20
"""Namespaces on one page."""
SESSIONS = 20
"""Of an agent, those that were gone on with last."""

router = APIRouter()
Owner = Annotated[Caller, Depends(needs("admin"))]


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace with what is in it."""

    stored: StoredNamespace
    agents: Sequence[StoredAgent]
    collections: Sequence[Collection]
    users: Sequence[StoredUser]


async def look_up(find: Callable[[], T]) -> T:
    """What `find` reads or changes in the store.

    Raises:
        ApiError: 404, what it looks for is not there; 409, somebody was faster.
    """
    try:
        return await asyncio.to_thread(find)
    except ConflictError as error:
        raise ApiError(409, "conflict", str(error)) from None
    except InputError as error:
        raise ApiError(404, "not_found", str(error)) from None


@router.get("/agents")
async def show_agents(request: Request, caller: RunReader, page: int = 1) -> Response:
    resources = server_of(request).resources

    def read() -> tuple[Page, list[Space]]:
        seen = [
            one
            for one in resources.read(kinds.list_all, kinds.NAMESPACES)
            if caller.sees(one.spec.name)
        ]
        shown = Page(request, max(1, page), SPACES, len(seen))
        return shown, [_space(resources, one) for one in seen[shown.start :][:SPACES]]

    shown, spaces = await look_up(read)
    return draw(request, "agents.html", spaces=spaces, page=shown)


def _space(resources: Store, stored: StoredNamespace) -> Space:
    name = stored.spec.name
    return Space(
        stored,
        resources.read(kinds.list_all, kinds.AGENTS, name),
        resources.read(kinds.list_all, kinds.COLLECTIONS, name),
        resources.read(kinds.list_all, kinds.USERS, name),
    )


@router.get("/agents/{namespace}/collections/counts")
async def show_counts(request: Request, caller: RunReader, namespace: str) -> Response:
    """How many memories each collection holds: a part of the page that comes after it, since they
    have to be counted."""
    check_namespace(caller, namespace)
    resources = server_of(request).resources
    counts = await look_up(lambda: resources.read(kinds.count_memories, namespace))
    return draw(request, "counts.html", namespace=namespace, counts=counts)


@router.get("/agents/{namespace}/{name}")
async def show_agent(
    request: Request, caller: RunReader, namespace: str, name: str, a: int = 0, b: int = 0
) -> Response:
    """`a`, `b`: the versions that are compared; else the last two."""
    check_namespace(caller, namespace)
    resources = server_of(request).resources
    agent = await look_up(lambda: resources.read(kinds.get, kinds.AGENTS, namespace, name))
    versions = await look_up(
        lambda: resources.read(kinds.list_versions, kinds.AGENTS, namespace, name)
    )
    newest = len(versions)
    later = b if 1 <= b <= newest else newest
    earlier = a if 1 <= a <= newest else max(1, later - 1)
    between = versions[min(earlier, later) : max(earlier, later)]
    sessions = resources.sessions(namespace)
    return draw(
        request,
        "agent.html",
        agent=agent,
        versions=versions,
        between=(earlier, later),
        difference=draw_difference(versions[earlier - 1], versions[later - 1]),
        made=between,
        behind=await _read_behind(resources, namespace, between),
        facts=draw_one(kinds.AGENTS, describe(agent), ()).facts,
        collections=_names(agent),
        sessions=await look_up(lambda: sessions.list(agent_id=agent.id, limit=SESSIONS)),
    )


def _names(agent: StoredAgent) -> list[str]:
    named = (split_name(one, agent.namespace)[1] for one in agent_collections(agent.spec))
    return list(dict.fromkeys(named))


async def _read_behind(
    resources: Store, namespace: str, versions: Sequence[SpecVersion]
) -> Mapping[str, MemoryRecord]:
    """Read the memories behind the changes of versions, by id; those that are gone are left out."""
    changes = [change for version in versions for change in version.changes]
    ids = dict.fromkeys(id for change in changes for id in change.get("memories", ()))
    found = await resources.memories(namespace).find(list(ids))
    return {one.id: one for one in found}


@router.post("/agents/{namespace}/{name}/revert")
async def revert_agent(request: Request, caller: Owner, namespace: str, name: str) -> Response:
    """Make an earlier version of an agent the newest one once more."""
    check_namespace(caller, namespace)
    version = (await read_form(request)).get("version", "")
    if not (version.isascii() and version.isdigit()):
        raise ApiError(400, "invalid_request", f"'{version[:40]}' is no version of an agent")
    resources = server_of(request).resources
    await look_up(
        lambda: resources.write(kinds.revert, kinds.AGENTS, namespace, name, int(version))
    )
    return RedirectResponse(f"/agents/{namespace}/{name}", 303)
