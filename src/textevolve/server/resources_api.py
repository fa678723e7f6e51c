"""Namespaces, agents, collections and users over HTTP: one function makes the paths of a kind.

Memories have paths of their own, in `memories_api.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from textevolve.api.namespaces import AsyncNamespace
from textevolve.api.resources import AsyncResources
from textevolve.rows import place_lines
from textevolve.server.access import KeyScope, caller_of, needs
from textevolve.server.errors import ApiError, respond
from textevolve.server.namespaces import check_models, desk_of, open_namespace_of
from textevolve.server.resource_shapes import (
    EXAMPLES,
    Revert,
    changes_of,
    example_body,
)
from textevolve.server.state import server_of
from textevolve.store.kinds import COLLECTIONS, KINDS, Kind
from textevolve.studies.resource_report import describe, describe_versions

MOST_ON_A_PAGE = 500
PageLimit: TypeAlias = Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE, description="How many.")]
_Name: TypeAlias = Annotated[str, Path(description="Its name.")]
_Cursor: TypeAlias = Annotated[str, Query(description="The `next` of the page before.")]
_Force: TypeAlias = Annotated[bool, Query(description="Also where agents name it.")]


Route: TypeAlias = Callable[..., Callable[[Callable[..., Any]], None]]


def routes_of(kind: Kind[Any, Any], router: APIRouter) -> Route:
    """Return what adds a path of a kind to a router: its method, its place, the scope it needs."""
    beginning = f"/v1/namespaces/{{namespace}}/{kind.command}" if kind.walled else "/v1/namespaces"

    def route(
        method: str,
        path: str = "",
        scope: KeyScope = "read",
        *,
        status: int = 200,
        body: Any = None,
    ) -> Callable[[Callable[..., Any]], None]:
        def add(handle: Callable[..., Any]) -> None:
            handle.__annotations__ |= {"space": _space_of(kind, scope), "body": body}
            shown = inspect.signature(handle).parameters.values()
            hidden = () if kind is COLLECTIONS else ("force",)
            handle.__signature__ = inspect.Signature([p for p in shown if p.name not in hidden])  # pyright: ignore[reportFunctionMemberAccess]
            text = (handle.__doc__ or "").format(noun=kind.noun, many=kind.command)
            handle.__name__ = f"{handle.__name__}_{kind.command}"
            router.add_api_route(
                beginning + path,
                handle,
                methods=[method],
                status_code=status,
                description=text,
            )

        return add

    return route


def make_router(kind: Kind[Any, Any]) -> APIRouter:
    """Make the paths of a kind of resource."""
    router = APIRouter(tags=[kind.command])
    example = EXAMPLES[kind.command]
    changed = {n: v for n, v in example.items() if n not in (*kind.fixed, "memories")}

    route = routes_of(kind, router)

    def group_of(space: AsyncNamespace) -> AsyncResources[Any, Any]:
        return getattr(space, kind.command)

    def check_new_name(request: Request, name: str) -> None:
        if not kind.walled and not caller_of(request).sees(name):
            raise ApiError(403, "permission_denied", "the key is for other namespaces")

    async def describe_all(space: AsyncNamespace, stored: Sequence[Any]) -> list[dict[str, Any]]:
        counts = await space.collections.count() if kind is COLLECTIONS else None
        return [describe(each, counts=counts) for each in stored]

    @route("GET")
    async def list_all(
        request: Request, space: Any, limit: PageLimit = 100, cursor: _Cursor = ""
    ) -> Response:
        """The {many}, by name, page by page."""
        group = group_of(space)
        visible = None if kind.walled else caller_of(request).namespaces
        stored = await group.list(limit=limit + 1 if visible is None else None, after=cursor)
        if visible is not None:
            stored = [each for each in stored if each.spec.name in visible]
        data = await describe_all(space, stored[:limit])
        return respond({"data": data, "next": data[-1]["name"] if len(stored) > limit else None})

    @route(
        "POST",
        scope="admin",
        status=201,
        body=Annotated[kind.spec, example_body(example)],
    )
    async def create(request: Request, space: Any, body: Any) -> Response:
        """Make a new {noun}."""
        check_new_name(request, body.name)
        check_models(request, [getattr(body, name, None) for name in ("model", "embedder")])
        stored = await group_of(space).create(**body.model_dump(exclude_unset=True))
        return respond(describe(stored), 201)

    @route("GET", "/{name}")
    async def show(space: Any, name: _Name) -> Response:
        """One {noun}."""
        (data,) = await describe_all(space, [await group_of(space).get(name)])
        return respond(data)

    @route(
        "PATCH",
        "/{name}",
        "admin",
        body=Annotated[changes_of(kind), example_body(changed)],
    )
    async def update(request: Request, space: Any, name: _Name, body: Any) -> Response:
        """Change what is given of the {noun}; the rest stays."""
        changes = body.model_dump(exclude_unset=True)
        check_models(request, [changes.get("model")])
        (data,) = await describe_all(space, [await group_of(space).update(name, **changes)])
        return respond(data)

    @route("DELETE", "/{name}", "admin", status=204)
    async def delete(space: Any, name: _Name, force: _Force = False) -> Response:
        """Delete the {noun} with all that belongs to it."""
        await group_of(space).delete(name, force=force)
        return Response(status_code=204)

    @route("GET", "/{name}/versions")
    async def list_versions(space: Any, name: _Name) -> Response:
        """All versions of the {noun}, the oldest first."""
        return respond({"data": describe_versions(await group_of(space).versions(name))})

    @route(
        "POST",
        "/{name}/revert",
        "admin",
        body=Annotated[Revert, example_body({"version": 1})],
    )
    async def revert(space: Any, name: _Name, body: Any) -> Response:
        """Go back to an earlier version of the {noun}, which becomes the newest one."""
        (data,) = await describe_all(space, [await group_of(space).revert(name, body.version)])
        return respond(data)

    return router


def _space_of(kind: Kind[Any, Any], scope: KeyScope) -> Any:
    """The namespace that a path names, for a caller who has the scope. The caller has to see a
    namespace whose own path is requested, too."""

    async def walled(
        request: Request, namespace: Annotated[str, Path(description="The namespace.")]
    ) -> AsyncNamespace:
        return await open_namespace_of(request, await needs(scope)(request), namespace)

    async def top(request: Request) -> AsyncNamespace:
        caller, name = await needs(scope)(request), request.path_params.get("name")
        if name is not None:
            await open_namespace_of(request, caller, name)
        return AsyncNamespace(desk_of(server_of(request), ""))

    return Annotated[AsyncNamespace, Depends(walled if kind.walled else top)]


def read_body_lines(body: bytes) -> Any:
    """The lines of a body of JSON lines, each with its place."""
    return place_lines(body.decode("utf-8", "surrogateescape").split("\n"), "body")


router = APIRouter()
for _kind in KINDS.values():
    router.include_router(make_router(_kind))
