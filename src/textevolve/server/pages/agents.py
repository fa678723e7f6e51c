"""Agents: what each namespace has, and an agent with the versions of its persona."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from textevolve.agents.resources import (
    PersonaVersion,
    StoredAgent,
    StoredNamespace,
    StoredUser,
    agent_collections,
    split_name,
)
from textevolve.errors import ConflictError, InputError
from textevolve.memory.record import Collection, MemoryRecord
from textevolve.report.blocks import Diff
from textevolve.server.access import Caller, check_namespace, needs
from textevolve.server.errors import ApiError
from textevolve.server.pages.drawing import Page, draw, read_form
from textevolve.server.pages.runs import RunReader
from textevolve.server.state import server_of
from textevolve.store import ResourceStore, kinds
from textevolve.studies.resource_report import describe, draw_one

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


def _space(resources: ResourceStore, stored: StoredNamespace) -> Space:
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
    """`a`, `b`: the versions of the persona that are held against each other; else the last two."""
    check_namespace(caller, namespace)
    resources = server_of(request).resources
    agent = await look_up(lambda: resources.read(kinds.get, kinds.AGENTS, namespace, name))
    personas = await look_up(lambda: resources.read(kinds.list_personas, agent.id))
    newest = len(personas)
    later = b if 1 <= b <= newest else newest
    earlier = a if 1 <= a <= newest else max(1, later - 1)
    made = [one for one in personas if min(earlier, later) < one.version <= max(earlier, later)]
    sessions = resources.sessions(namespace)
    title = f"From version {earlier} to version {later}"
    return draw(
        request,
        "agent.html",
        agent=agent,
        personas=personas,
        between=(earlier, later),
        difference=[Diff(title, personas[earlier - 1].text, personas[later - 1].text)],
        made=made,
        behind=await _read_behind(resources, namespace, made),
        facts=draw_one(kinds.AGENTS, describe(agent), (), whole=False).facts,
        collections=_names(agent),
        sessions=await look_up(lambda: sessions.list(agent_id=agent.id, limit=SESSIONS)),
    )


def _names(agent: StoredAgent) -> list[str]:
    named = (split_name(one, agent.namespace)[1] for one in agent_collections(agent.spec))
    return list(dict.fromkeys(named))


async def _read_behind(
    resources: ResourceStore, namespace: str, personas: Sequence[PersonaVersion]
) -> Mapping[str, MemoryRecord]:
    """The memories behind the changes of personas, by id, as far as they are there still."""
    changes = [change for one in personas for change in one.changes]
    ids = dict.fromkeys(id for change in changes for id in change.get("memories", ()))
    found = await resources.memories(namespace).find(list(ids))
    return {one.id: one for one in found}


@router.post("/agents/{namespace}/{name}/revert")
async def revert_persona(request: Request, caller: Owner, namespace: str, name: str) -> Response:
    """Makes an earlier persona the newest one once more."""
    check_namespace(caller, namespace)
    wanted = (await read_form(request)).get("version", "")
    if not (wanted.isascii() and wanted.isdigit()):
        raise ApiError(400, "invalid_request", f"'{wanted[:40]}' is no version of a persona")
    resources = server_of(request).resources
    await look_up(lambda: resources.write(kinds.revert, namespace, name, int(wanted)))
    return RedirectResponse(f"/agents/{namespace}/{name}", 303)
