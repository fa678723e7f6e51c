"""The memories of a collection over HTTP: kept, found with every part of each score, looked at, and
forgotten.

What keeps and finds them is the business of `api.memories`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from textevolve.api.memories import AsyncMemories
from textevolve.memory.memory_spec import MemorySpec, memory_data
from textevolve.rows import parse_row
from textevolve.server.access import KeyScope, needs
from textevolve.server.errors import respond
from textevolve.server.namespaces import open_namespace_of
from textevolve.server.resource_shapes import (
    MEMORY_LINES,
    NEW_MEMORY,
    SEARCH,
    MemorySearch,
    example_body,
    lines_body,
)
from textevolve.server.resources_api import PageLimit, read_body_lines
from textevolve.studies.memory_files import read_memory, recalled_data

WHERE = "/v1/namespaces/{namespace}/collections/{collection}/memories"
LABEL = "HTTP"

router = APIRouter(prefix=WHERE, tags=["memories"])


def _memories_for(scope: KeyScope) -> Any:
    """The memories that a path names, for a caller who has the scope."""

    async def memories(
        request: Request,
        namespace: Annotated[str, Path(description="The namespace.")],
        collection: Annotated[str, Path(description="The collection's name.")],
    ) -> AsyncMemories:
        space = await open_namespace_of(request, await needs(scope)(request), namespace)
        found = space.memories(collection)
        await found.collection()
        return found

    return Depends(memories)


_Read: TypeAlias = Annotated[AsyncMemories, _memories_for("read")]
_Write: TypeAlias = Annotated[AsyncMemories, _memories_for("run")]
"""Whoever may chat may write memories: chats do."""
_NewMemory: TypeAlias = Annotated[MemorySpec, example_body(NEW_MEMORY)]
_Search: TypeAlias = Annotated[MemorySearch, example_body(SEARCH)]
_Closed: TypeAlias = Annotated[
    bool, Query(description="Also those that were superseded or forgotten.")
]
_Version: TypeAlias = Annotated[
    int | None, Query(ge=0, description="As this version of the collection held them.")
]
_Cursor: TypeAlias = Annotated[str | None, Query(description="The `next` of the page before.")]
_Id: TypeAlias = Annotated[str, Path(description="The memory's id.")]
_Erase: TypeAlias = Annotated[bool, Query(description="Delete the text, too; needs admin.")]


@router.get("")
async def list_memories(
    memories: _Read,
    limit: PageLimit = 100,
    cursor: _Cursor = None,
    closed: _Closed = False,
    version: _Version = None,
) -> Response:
    """The memories in the order in which they were kept, page by page."""
    found = await memories.list(limit=limit + 1, after=cursor, closed=closed, version=version)
    data = [memory_data(one) for one in found[:limit]]
    return respond({"data": data, "next": data[-1]["id"] if len(found) > limit else None})


@router.post("", status_code=201)
async def add_memory(memories: _Write, spec: _NewMemory) -> Response:
    """Keep a memory."""
    kept = await memories.add(**spec.model_dump(exclude_unset=True))
    return respond(memory_data(kept), 201)


@router.post("/search")
async def search_memories(
    memories: _Read,
    asked: _Search,
) -> Response:
    """Find what bears on a text, best first, with the parts of each score."""
    found = await memories.search(**asked.model_dump(exclude_unset=True))
    told = {n: v for n, v in asdict(found).items() if n not in ("memories", "summarised")}
    return respond({"data": [recalled_data(one) for one in found.memories], **told})


@router.post("/import", openapi_extra=lines_body("Memories.", MEMORY_LINES))
async def import_memories(memories: _Write, request: Request) -> Response:
    """Keep the memories of JSON lines; what is there already is left out, so that the same again
    adds nothing. Where a line is none, nothing is kept."""
    lines = read_body_lines(await request.body())
    rows = [(where, parse_row(text, where, "memory")) for where, text in lines]
    specs = [read_memory(where, row) for where, row in rows if not row.get("closed")]
    done = await memories.add_all(specs, label=LABEL)
    return respond(asdict(done))


@router.get("/{id}")
async def show_memory(memories: _Read, id: _Id) -> Response:
    """One memory: where it is from, and what became of it."""
    (found,) = await memories.get(id)
    return respond(memory_data(found))


@router.get("/{id}/history")
async def show_history(memories: _Read, id: _Id) -> Response:
    """A memory with what it took the place of, and what took its own, oldest first."""
    return respond({"data": [memory_data(one) for one in await memories.history(id)]})


@router.delete("/{id}", status_code=204)
async def forget_memory(
    memories: _Write, request: Request, id: _Id, erase: _Erase = False
) -> Response:
    """Close a memory: it is found no more, and its history stays."""
    if erase:
        await needs("admin")(request)
    await memories.forget(id, erase=erase)
    return Response(status_code=204)
