"""Namespaces, agents, collections, users and memories over HTTP.

The first four are called resources; `make_router` makes the paths for one kind of them. Memories
have paths of their own. The bodies of requests are the specifications of the resources.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, ClassVar, TypeAlias

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field

from textevolve.agents.resources import NamespaceSpec
from textevolve.api.namespaces import AsyncMemories, AsyncNamespace, AsyncResources
from textevolve.desk.exchange import describe, describe_versions
from textevolve.desk.memories import MemoryDesk, read_memory
from textevolve.errors import InputError, NotFoundError
from textevolve.llm.catalogue import PROVIDER
from textevolve.mappings import omit
from textevolve.memory.recall_settings import RecallScope, RecallSettings
from textevolve.memory.record import MemorySpec, Time, memory_data
from textevolve.rows import parse_row, place_lines
from textevolve.server.bodies import parse_aside
from textevolve.server.decisions.serving import RequestSpending, spending
from textevolve.server.errors import (
    ApiError,
    bad_request,
    example_body,
    refuse_idempotency_key,
    respond,
)
from textevolve.server.identity import (
    THIS_MACHINE,
    Caller,
    KeyScope,
    caller_of,
    check_namespace,
    needs,
    require_scope,
)
from textevolve.server.state import Server, ServerState
from textevolve.server.studies.runner import allowed_models
from textevolve.spec import Count, Frozen, NonEmpty, option
from textevolve.store import kinds
from textevolve.store.kinds import COLLECTIONS, KINDS, NAMESPACES, Kind

# Namespaces as a request sees them: open a namespace, if it exists and the caller may see it.
#
# A namespace that the caller may not see is answered like one that does not exist. What a namespace
# can do is in the package `api`.

SOURCE = "HTTP"


def desk_of(server: ServerState, namespace: str) -> MemoryDesk:
    """Return the access to the memories of a namespace, which embeds texts within the server's
    limits."""
    return MemoryDesk(
        server.settings,
        namespace,
        server.resources,
        AsyncExitStack(),  # nothing is opened: the models are those of the server
        SOURCE,
        opened=server.serving.bench,
    )


async def open_namespace_of(server: ServerState, caller: Caller, name: str) -> AsyncNamespace:
    """Return the namespace of a name, for a caller who may see it.

    Raises:
        ApiError: the namespace does not exist, or the caller may not see it.
    """
    check_namespace(caller, name)
    try:
        await asyncio.to_thread(server.resources.read, kinds.get, kinds.NAMESPACES, "", name)
    except NotFoundError:  # which names others, that this caller may not see
        raise ApiError(404, "not_found", f"no namespace '{name}'") from None

    return AsyncNamespace(desk_of(server, name))


@asynccontextmanager
async def charging(
    server: ServerState, caller: Caller, namespace: str = ""
) -> AsyncGenerator[RequestSpending]:
    """Check the token limits of a caller, and charge the model calls within the block to its key
    and to the namespace, as in `UsageLimits.check_tokens`.

    Raises:
        ApiError: 429, the tokens are used up.
    """
    await server.limits.check_tokens(caller, namespace)
    with spending(partial(server.limits.note_tokens, caller, namespace=namespace)) as spent:
        yield spent


def check_models(server: ServerState, caller: Caller, names: Iterable[Any]) -> None:
    """Check the models in a client's resource, which may be the same as in its studies.

    Raises:
        ApiError: the operator has not allowed one of them.
    """
    trusted = caller == THIS_MACHINE
    allowed = allowed_models(server.options, server.settings, trusted=trusted)
    for name in names:
        if isinstance(name, str) and not (name in server.serving.deciders or allowed(name)):
            raise bad_request(f"this server has no model '{name}'")


MOST_ON_A_PAGE = 500
PageLimit: TypeAlias = Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE, description="How many.")]
_Name: TypeAlias = Annotated[str, Path(description="Its name.")]

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "namespaces": {"name": "acme", "description": "The support team's."},
    "agents": {
        "name": "ada",
        "persona": "You are Ada, who answers briefly and says when she does not know.",
        "memory": {"collections": ["notes"], "limit": 5},
        "memories": "notes",
    },
    "collections": {"name": "notes", "kind": "episodic", "description": "What customers said."},
    "users": {"name": "ann", "description": "Speaks Norwegian."},
}
"""Example bodies for creating a resource of each kind."""


class Revert(Frozen):
    """Which version of a resource becomes the newest one once more."""

    version: Count = Field(description="The number of the version, as `versions` lists it.")


def _space_of(kind: Kind[Any, Any], scope: KeyScope) -> Any:
    """Return the dependency that opens the namespace in a path, for callers with the scope. A
    caller who requests a namespace itself must be able to see it, too."""

    async def walled(
        request: Request,
        server: Server,
        namespace: Annotated[str, Path(description="The namespace.")],
    ) -> AsyncNamespace:
        return await open_namespace_of(server, await needs(scope)(request), namespace)

    async def top(request: Request, server: Server) -> AsyncNamespace:
        caller = await needs(scope)(request)
        name = request.path_params.get("name")
        if name is not None:
            await open_namespace_of(server, caller, name)
        return AsyncNamespace(desk_of(server, ""))

    return Depends(walled if kind.walled else top)


def _check_quota(caller: Caller, kind: Kind[Any, Any], fields: Container[str]) -> None:
    """Check that a key which is limited to namespaces does not change their budget, which limits
    that key.

    Raises:
        ApiError: 403, the fields contain the budget of a namespace.
    """
    if kind is NAMESPACES and caller.namespaces is not None and "tokens_per_day" in fields:
        raise ApiError(
            403,
            "permission_denied",
            "tokens_per_day: only a key that is limited to no namespace may set it",
        )


def _with_body(body: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that sets the type of a handler's argument `body`, which depends on the
    kind of resource."""

    def mark(handle: Callable[..., Any]) -> Callable[..., Any]:
        handle.__annotations__["body"] = body
        return handle

    return mark


def make_router(kind: Kind[Any, Any]) -> APIRouter:
    """Make the paths of a kind of resource."""
    place = f"/v1/namespaces/{{namespace}}/{kind.command}" if kind.walled else "/v1/namespaces"
    router = APIRouter(prefix=place, tags=[kind.command])
    example = EXAMPLES[kind.command]
    changes = omit(example, (*kind.fixed, "memories"))
    reads = _space_of(kind, "read")
    admins = _space_of(kind, "admin")

    def group_of(space: AsyncNamespace) -> AsyncResources[Any, Any]:
        return getattr(space, kind.command)

    async def describe_all(space: AsyncNamespace, stored: Sequence[Any]) -> list[dict[str, Any]]:
        counts = await space.collections.count() if kind is COLLECTIONS else None
        return [describe(each, counts=counts) for each in stored]

    @router.get("")
    async def list_all(
        request: Request,
        space: Any = reads,
        limit: PageLimit = 100,
        cursor: Annotated[str, Query(description="The value of `next` in the previous page.")] = "",
    ) -> Response:
        """All of them by name, page by page."""
        visible = None if kind.walled else caller_of(request).namespaces
        most = limit + 1 if visible is None else None
        stored = await group_of(space).list(limit=most, after=cursor)
        if visible is not None:
            stored = [each for each in stored if each.spec.name in visible]
        data = await describe_all(space, stored[:limit])

        return respond({"data": data, "next": data[-1]["name"] if len(stored) > limit else None})

    @router.post("", status_code=201)
    @_with_body(Annotated[kind.spec, example_body(example)])
    async def create(request: Request, server: Server, body: Any, space: Any = admins) -> Response:
        """Make a new one."""
        caller = caller_of(request)
        if not kind.walled and not caller.sees(body.name):
            raise ApiError(403, "permission_denied", "the key is limited to other namespaces")
        check_models(server, caller, [getattr(body, name, None) for name in ("model", "embedder")])
        stored = await group_of(space).create(**body.model_dump(exclude_unset=True))
        return respond(describe(stored), 201)

    @router.get("/{name}")
    async def show(name: _Name, space: Any = reads) -> Response:
        """One of them."""
        (data,) = await describe_all(space, [await group_of(space).get(name)])
        return respond(data)

    @router.patch("/{name}")
    @_with_body(Annotated[dict[str, Any], example_body(changes)])
    async def update(
        request: Request, server: Server, name: _Name, body: Any, space: Any = admins
    ) -> Response:
        """Change the fields that are sent; the others stay."""
        if "name" in body:
            raise InputError(f"{kind.noun} '{name}': its name cannot be changed")
        _check_quota(caller_of(request), kind, body)
        check_models(server, caller_of(request), [body.get("model")])
        (data,) = await describe_all(space, [await group_of(space).update(name, **body)])
        return respond(data)

    @router.delete("/{name}", status_code=204)
    async def delete(
        name: _Name,
        space: Any = admins,
        force: Annotated[
            bool, Query(description="Delete a collection even if agents use it.")
        ] = False,
    ) -> Response:
        """Delete one with everything that belongs to it."""
        await group_of(space).delete(name, force=force)
        return Response(status_code=204)

    @router.get("/{name}/versions")
    async def list_versions(name: _Name, space: Any = reads) -> Response:
        """All versions of one, the oldest first."""
        return respond({"data": describe_versions(await group_of(space).versions(name))})

    @router.post("/{name}/revert")
    @_with_body(Annotated[Revert, example_body({"version": 1})])
    async def revert(request: Request, name: _Name, body: Any, space: Any = admins) -> Response:
        """Go back to an earlier version, which becomes the newest one."""
        _check_quota(caller_of(request), kind, NamespaceSpec.model_fields)
        (data,) = await describe_all(space, [await group_of(space).revert(name, body.version)])
        return respond(data)

    return router


NEW_MEMORY = {
    "text": "Ann drinks green tea.",
    "importance": 0.7,
    "valid_from": "2025-01-31",
    "source": "chat 3",
    "entities": ["Ann"],
}

MEMORY_LINES = (
    '{"text": "Ann drinks green tea.", "importance": 0.7}\n{"text": "Ann lives in Oslo."}\n'
)
SEARCH = {"query": "What does Ann drink?", "limit": 5}


class MemorySearch(RecallSettings):
    """A search by embedding and keywords. The score of a memory is the mean of its relevance,
    importance and recency, each scaled to [0, 1] among the candidates, weighted by the fields of
    these names."""

    # The path says the collection, all users' memories are searched, and nobody makes summaries.
    collections: ClassVar[tuple[str, ...]] = ()  # pyright: ignore[reportIncompatibleVariableOverride]
    scope: ClassVar[RecallScope] = "agent"  # pyright: ignore[reportIncompatibleVariableOverride]
    summarize: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]

    query: NonEmpty = option(description="The text to find relevant memories for.")
    as_of: Time | None = option(
        None, "Search the memories that were valid at that time; default: now."
    )


LINES = "application/x-ndjson"
"""The content type of JSON lines."""
WHERE = "/v1/namespaces/{namespace}/collections/{collection}/memories"
LABEL = "HTTP"
IMPORTED = {
    "requestBody": {
        "required": True,
        "content": {LINES: {"schema": {"type": "string"}, "example": MEMORY_LINES}},
    }
}

memories_router = APIRouter(prefix=WHERE, tags=["memories"])


def _memories_for(scope: KeyScope, *, embeds: bool = False) -> Any:
    """Return the dependency that opens the collection of a path, for callers with the scope.
    `embeds`: the request embeds texts, which is charged to the caller and the namespace."""

    async def memories(
        request: Request,
        server: Server,
        namespace: Annotated[str, Path(description="The namespace.")],
        collection: Annotated[str, Path(description="The collection's name.")],
    ) -> AsyncGenerator[AsyncMemories]:
        caller = require_scope(caller_of(request), scope)
        place = (namespace, collection)
        async with open_memories(server, caller, place, scope, embeds=embeds) as opened:
            yield opened

    return Depends(memories)


@asynccontextmanager
async def open_memories(
    server: ServerState, caller: Caller, place: tuple[str, str], scope: KeyScope, *, embeds: bool
) -> AsyncGenerator[AsyncMemories]:
    """Open the collection of a namespace, for a caller who has the scope. `place`: the names of
    both. `embeds`: as in `_memories_for`.

    Raises:
        ApiError: the caller may not see the namespace, or may not embed texts.
    """
    namespace, collection = place
    space = await open_namespace_of(server, caller, namespace)
    memories_view = space.memories(collection)
    stored_collection = await memories_view.collection()
    local = stored_collection.embedder.startswith(f"{PROVIDER}/")
    if embeds and scope == "read" and not local:
        require_scope(caller, "run")  # an endpoint charges for the embedding of the query
    async with charging(server, caller, namespace) if embeds else nullcontext():
        yield memories_view


_Read: TypeAlias = Annotated[AsyncMemories, _memories_for("read")]
_WriteTexts: TypeAlias = Annotated[AsyncMemories, _memories_for("run", embeds=True)]
_ReadByTexts: TypeAlias = Annotated[AsyncMemories, _memories_for("read", embeds=True)]
_Id: TypeAlias = Annotated[str, Path(description="The memory's id.")]


KEPT_SOURCES: Mapping[int | str, dict[str, Any]] = {
    200: {"description": "Erased; the messages in `sources` still say it."}
}


@memories_router.get("")
async def list_memories(
    memories: _Read,
    limit: PageLimit = 100,
    cursor: Annotated[
        str | None, Query(description="The value of `next` in the previous page.")
    ] = None,
    closed: Annotated[
        bool, Query(description="Include superseded and forgotten memories.")
    ] = False,
    version: Annotated[
        int | None,
        Query(
            ge=0,
            description="The number of a version of the collection, whose memories are listed;"
            " default: the newest.",
        ),
    ] = None,
) -> Response:
    """List the memories in the order of storing, page by page."""
    rows = await memories.list(limit=limit + 1, after=cursor, closed=closed, version=version)
    data = list(map(memory_data, rows[:limit]))
    return respond({"data": data, "next": data[-1]["id"] if len(rows) > limit else None})


@memories_router.post("", status_code=201)
async def add_memory(
    request: Request, memories: _WriteTexts, spec: Annotated[MemorySpec, example_body(NEW_MEMORY)]
) -> Response:
    """Store a memory."""
    refuse_idempotency_key(
        request, "use the path /import, which skips memories that are stored already"
    )
    return respond(memory_data(await memories.add(**spec.model_dump(exclude_unset=True))), 201)


@memories_router.post("/search")
async def search_memories(
    memories: _ReadByTexts,
    search: Annotated[MemorySearch, example_body(SEARCH)],
) -> Response:
    """Find memories that are relevant to a text, best first, with the parts of each score."""
    return respond(await list_found(memories, search))


async def list_found(memories: AsyncMemories, search: MemorySearch) -> dict[str, Any]:
    """Search a collection; return the memories as JSON-ready data, with the counts."""
    recalled = await memories.search(**search.model_dump(exclude_unset=True))
    counts = omit(asdict(recalled), ("memories", "summarised"))
    return {"data": list(map(asdict, recalled.memories)), **counts}


@memories_router.post("/import", openapi_extra=IMPORTED)
async def import_memories(memories: _WriteTexts, request: Request) -> Response:
    """Import memories from JSON lines, skipping existing ones, so a repeated import adds
    nothing. If a line is invalid, nothing is stored. `closed`: the number of lines that are left
    out, since their memories were superseded or forgotten where they are from."""
    raw = await request.body()
    specs, closed = await parse_aside(partial(_read_memories, raw), len(raw))
    return respond(asdict(await memories.add_all(specs, label=LABEL)) | {"closed": closed})


def _read_memories(raw: bytes) -> tuple[list[MemorySpec], int]:
    """Return the open memories of JSON lines, and the number of closed ones."""
    specs: list[MemorySpec] = []
    closed = 0
    for where, text in place_lines(raw.decode("utf-8", "surrogateescape").split("\n"), "body"):
        row = parse_row(text, where, "memory")
        if row.get("closed"):
            closed += 1
        else:
            specs.append(read_memory(where, row))

    return specs, closed


@memories_router.get("/audit")
async def audit_memories(memories: _ReadByTexts) -> Response:
    """Return the memories to look at, each with a reason: duplicates, which `forget` marks, other
    values of one statement, texts that are not understood alone, little trust, no use."""
    findings = [
        {
            "memory": memory_data(finding.memory),
            "other": finding.other and memory_data(finding.other),
            "reason": finding.reason,
            "forget": finding.forget,
        }
        for finding in await memories.audit()
    ]
    return respond({"data": findings})


@memories_router.get("/{id}")
async def show_memory(memories: _Read, id: _Id) -> Response:
    """Return one memory with its source and its current state."""
    (memory,) = await memories.get(id)
    return respond(memory_data(memory))


@memories_router.get("/{id}/history")
async def show_history(memories: _Read, id: _Id) -> Response:
    """Return a memory with the ones that it superseded and that superseded it, oldest first."""
    return respond({"data": list(map(memory_data, await memories.history(id)))})


@memories_router.delete("/{id}", status_code=204, responses=KEPT_SOURCES)
async def forget_memory(
    # Callers who may run studies may also chat, and chats write memories.
    memories: Annotated[AsyncMemories, _memories_for("run")],
    request: Request,
    id: _Id,
    erase: Annotated[
        bool, Query(description="Delete the text, too; needs a key with the scope admin.")
    ] = False,
    with_source: Annotated[
        bool,
        Query(
            description="With `erase`: delete the message of a stored chat that it is from, too;"
            " otherwise it stays."
        ),
    ] = False,
) -> Response:
    """Close a memory: it is found no more, and its history stays. If a message of a stored chat
    still says what was erased, the answer names the message (200)."""
    if erase:
        await needs("admin")(request)
    sources = await memories.forget(id, erase=erase, with_source=with_source)
    if not sources:
        return Response(status_code=204)
    kept = [
        {
            "session": source.session,
            "message": source.position,
            "erased_by": source.erasing_command(request.path_params["namespace"]),
        }
        for source in sources
    ]
    return respond({"sources": kept})


router = APIRouter()
for _kind in KINDS.values():
    router.include_router(make_router(_kind))
router.include_router(memories_router)
