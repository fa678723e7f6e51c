"""Namespaces, agents, collections and users over HTTP: one set of paths, made for each of the four
from what `resource_report.VIEWS` says of it.

Memories have paths of their own, in `memories_api.py`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from textevolve.api.namespaces import AsyncNamespace
from textevolve.rows import place_lines
from textevolve.server.access import Caller, KeyScope, caller_of, needs
from textevolve.server.errors import INVALID, ApiError, respond
from textevolve.server.namespaces import check_models, desk_of, open_namespace_of
from textevolve.server.resource_shapes import (
    CHANGES,
    EXAMPLES,
    EXPORTED,
    LINES,
    TOLD,
    Personas,
    Revert,
    changes_example,
    example_body,
    lines_body,
    page_of,
)
from textevolve.server.state import server_of
from textevolve.studies.exchange import export_lines, import_content, take_content
from textevolve.studies.resource_report import VIEWS, ResourceView, describe

MOST_ON_A_PAGE = 500
PageLimit: TypeAlias = Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE, description="How many.")]
_Name: TypeAlias = Annotated[str, Path(description="Its name.")]
_Cursor: TypeAlias = Annotated[str, Query(description="The `next` of the page before.")]
_Embeddings: TypeAlias = Annotated[
    bool, Query(description="With embeddings, which else are computed again.")
]
_NewName: TypeAlias = Annotated[str | None, Query(description="What it is called here.")]
_Force: TypeAlias = Annotated[bool, Query(description="Also where agents name it.")]


@dataclass(frozen=True)
class Verb:
    """A path that each kind has, or those `only` that are named. `takes`: beside what the request
    and the namespace are, its parameters by name: the type, and what stands where it is left out.
    """

    method: str
    path: str
    scope: KeyScope
    work: Callable[..., Awaitable[Response]]
    takes: Callable[[ResourceView], Mapping[str, Any]] = lambda _: {}
    gives: Callable[[ResourceView], type[BaseModel]] | None = None
    status: int = 200
    only: tuple[str, ...] = ()


async def create(view: ResourceView, request: Request, space: AsyncNamespace, spec: Any) -> Any:
    """Make a new {noun}."""
    _check_new_name(view, caller_of(request), spec.name)
    check_models(request, [getattr(spec, name, None) for name in ("model", "embedder")])
    made = await view.group(space).create(**spec.model_dump(exclude_unset=True))
    return respond(describe(made), 201)


async def list_all(
    view: ResourceView, request: Request, space: AsyncNamespace, limit: int, cursor: str
) -> Response:
    """The {many}, by name, page by page."""
    group = view.group(space)
    seen = None if view.walled else caller_of(request).namespaces
    if seen is None:
        found = await group.list(limit=limit + 1, after=cursor)
    else:
        found = [one for one in await group.list(after=cursor) if one.spec.name in seen]
    data = await _describe(view, space, found[:limit])
    return respond({"data": data, "next": data[-1]["name"] if len(found) > limit else None})


async def show(view: ResourceView, request: Request, space: AsyncNamespace, name: str) -> Response:
    """One {noun}."""
    (data,) = await _describe(view, space, [await view.group(space).get(name)])
    return respond(data)


async def update(
    view: ResourceView, request: Request, space: AsyncNamespace, name: str, changes: BaseModel
) -> Response:
    """Change what is given of the {noun}; the rest stays."""
    given = changes.model_dump(exclude_unset=True)
    check_models(request, [given.get("model")])
    changed = await view.group(space).update(name, **given)
    (data,) = await _describe(view, space, [changed])
    return respond(data)


async def delete(
    view: ResourceView, request: Request, space: AsyncNamespace, name: str, **forced: bool
) -> Response:
    """Delete the {noun} with all that belongs to it."""
    await view.group(space).delete(name, **forced)
    return Response(status_code=204)


async def export(
    view: ResourceView, request: Request, space: AsyncNamespace, name: str, embeddings: bool = False
) -> Response:
    """One of the {many} with all that belongs to it, as lines of JSON: `import` reads them."""
    await view.group(space).get(name)  # what is not there is said before the answer begins
    desk = desk_of(server_of(request), space.name)
    lines = export_lines(desk, view.command, name, embeddings=embeddings)
    return stream_lines(lines)


async def import_lines(
    view: ResourceView, request: Request, space: AsyncNamespace, name: str | None
) -> Response:
    """Take in what `export` wrote, all or nothing; memories without embeddings are embedded."""
    server, placed = server_of(request), read_body_lines(await request.body())
    content = take_content(placed, view.command, "body")
    if (content.namespace is None) is not view.walled:
        raise ApiError(400, INVALID, f"body: is no export of one of the {view.command}")
    if content.namespace is not None:
        _check_new_name(view, caller_of(request), name or content.namespace.spec.name)
    named = [one.agent.spec.model for one in content.agents]
    check_models(request, [*named, *(one.collection.embedder for one in content.collections)])
    desk = desk_of(server, space.name)
    await import_content(desk, content, name=name, progress=lambda _done, _all: None)
    return Response(status_code=204)


async def list_personas(
    view: ResourceView, request: Request, space: AsyncNamespace, name: str
) -> Response:
    """All versions of an agent's persona, the oldest first."""
    agent = await space.agents.get(name)
    told = describe(agent, await space.agents.personas(name))
    return respond({"data": told["personas"]})


async def revert(
    view: ResourceView, request: Request, space: AsyncNamespace, name: str, asked: Revert
) -> Response:
    """Give an agent an earlier persona again, as its newest version."""
    return respond(describe(await space.agents.revert(name, asked.version)))


def stream_lines(lines: AsyncGenerator[Mapping[str, Any]]) -> StreamingResponse:
    """Lines of JSON as they come; an answer that breaks off has no end, and so is seen to."""

    async def written() -> AsyncGenerator[bytes]:
        async for line in lines:
            yield json.dumps(line, ensure_ascii=False).encode() + b"\n"

    return StreamingResponse(written(), media_type=LINES)


def read_body_lines(body: bytes) -> Any:
    """The lines of a body of JSON lines, each with its place."""
    return place_lines(body.decode("utf-8", "surrogateescape").split("\n"), "body")


def _check_new_name(view: ResourceView, caller: Caller, name: str) -> None:
    if not view.walled and not caller.sees(name):
        raise ApiError(403, "permission_denied", "the key is for other namespaces")


async def _describe(
    view: ResourceView, space: AsyncNamespace, found: Sequence[Any]
) -> list[dict[str, Any]]:
    """As JSON-ready data; collections with how many memories they hold."""
    held = await space.collections.count() if found and view.command == "collections" else None
    told = [describe(one) for one in found]
    return told if held is None else [{**one, "memories": held[one["name"]]} for one in told]


def _take_delete(view: ResourceView) -> Mapping[str, Any]:
    return {"name": _Name, **({"force": (_Force, False)} if view.command == "collections" else {})}


def _take_export(view: ResourceView) -> Mapping[str, Any]:
    held = view.command in ("namespaces", "collections")
    return {"name": _Name, **({"embeddings": (_Embeddings, False)} if held else {})}


def _take_create(view: ResourceView) -> Mapping[str, Any]:
    return {"spec": Annotated[view.spec, example_body(EXAMPLES[view.command])]}


def _take_update(view: ResourceView) -> Mapping[str, Any]:
    changes = Annotated[CHANGES[view.command], example_body(changes_example(view))]
    return {"name": _Name, "changes": changes}


def _take_revert(_view: ResourceView) -> Mapping[str, Any]:
    return {"name": _Name, "asked": Annotated[Revert, example_body({"version": 1})]}


def _take_name(_view: ResourceView) -> Mapping[str, Any]:
    return {"name": _Name}


def _take_page(_view: ResourceView) -> Mapping[str, Any]:
    return {"limit": (PageLimit, 100), "cursor": (_Cursor, "")}


def _take_import(_view: ResourceView) -> Mapping[str, Any]:
    return {"name": (_NewName, None)}


def _one(view: ResourceView) -> type[BaseModel]:
    return TOLD[view.command]


def _page(view: ResourceView) -> type[BaseModel]:
    return page_of(TOLD[view.command])


_AGENTS = ("agents",)
VERBS: Sequence[Verb] = (
    Verb("GET", "", "read", list_all, _take_page, _page),
    Verb("POST", "", "admin", create, _take_create, _one, 201),
    Verb("POST", "/import", "admin", import_lines, _take_import, None, 204),
    Verb("GET", "/{name}", "read", show, _take_name, _one),
    Verb("PATCH", "/{name}", "admin", update, _take_update, _one),
    Verb("DELETE", "/{name}", "admin", delete, _take_delete, None, 204),
    Verb("GET", "/{name}/export", "read", export, _take_export),
    Verb(
        "GET",
        "/{name}/personas",
        "read",
        list_personas,
        _take_name,
        lambda _: Personas,
        200,
        _AGENTS,
    ),
    Verb("POST", "/{name}/revert", "admin", revert, _take_revert, _one, 200, _AGENTS),
)


def _space_of(view: ResourceView, scope: KeyScope) -> Any:
    """The namespace that a path names, for a caller who has the scope. Of namespaces themselves the
    one that the path is about has to be seen, too."""

    async def walled(
        request: Request, namespace: Annotated[str, Path(description="The namespace.")]
    ) -> AsyncNamespace:
        return await open_namespace_of(request, await needs(scope)(request), namespace)

    async def top(request: Request) -> AsyncNamespace:
        caller, name = await needs(scope)(request), request.path_params.get("name")
        if name is not None:
            await open_namespace_of(request, caller, name)
        return AsyncNamespace(desk_of(server_of(request), ""))

    return Annotated[AsyncNamespace, Depends(walled if view.walled else top)]


def _add_path(router: APIRouter, view: ResourceView, verb: Verb) -> None:
    async def handle(**given: Any) -> Response:
        return await verb.work(view, **given)

    takes = {"request": Request, "space": _space_of(view, verb.scope), **verb.takes(view)}
    keyword, none = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    handle.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter(name, keyword, annotation=kind, default=default)
            for name, (kind, default) in (
                (name, cast(Any, given) if isinstance(given, tuple) else (given, none))
                for name, given in takes.items()
            )
        ]
    )
    handle.__name__ = f"{verb.work.__name__}_{view.command}"
    handle.__doc__ = (verb.work.__doc__ or "").format(noun=view.noun, many=view.command)
    where = "/v1/namespaces/{namespace}/" + view.command if view.walled else "/v1/namespaces"
    router.add_api_route(
        where + verb.path,
        handle,
        methods=[verb.method],
        status_code=verb.status,
        response_model=None if verb.gives is None else verb.gives(view),
        tags=[view.command],
        openapi_extra=lines_body("What `export` wrote.", EXPORTED)
        if verb.work is import_lines
        else None,
    )


router = APIRouter()
for _view in VIEWS.values():
    for _verb in VERBS:
        if not _verb.only or _view.command in _verb.only:
            _add_path(router, _view, _verb)
