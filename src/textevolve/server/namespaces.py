"""A namespace as a request sees it: whether it is there, who may see it, and what works in it.

What cannot be seen is not found. What can be done in a namespace is the business of `api`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack

from fastapi import Request

from textevolve.api.namespaces import AsyncNamespace
from textevolve.errors import NotFoundError
from textevolve.server.access import Caller, check_namespace
from textevolve.server.errors import INVALID, ApiError
from textevolve.server.state import ServerState, server_of
from textevolve.studies.memory_desk import MemoryDesk

SOURCE = "HTTP"


def desk_of(server: ServerState, namespace: str) -> MemoryDesk:
    """What works on memories in a namespace; texts are embedded within the server's own limits."""
    return MemoryDesk(
        server.settings,
        namespace,
        server.resources,
        AsyncExitStack(),  # nothing is opened: the models are those of the server
        SOURCE,
        opened=server.serving.bench,
    )


async def open_namespace_of(request: Request, caller: Caller, name: str) -> AsyncNamespace:
    """
    Raises:
        ApiError: there is none of this name, or the caller does not see it.
    """
    check_namespace(caller, name)
    server = server_of(request)
    try:
        await asyncio.to_thread(server.resources.get_namespace, name)
    except NotFoundError:  # which names others, that this caller may not see
        raise ApiError(404, "not_found", f"no namespace '{name}'") from None
    return AsyncNamespace(desk_of(server, name))


def check_models(server: ServerState, named: Iterable[str | None]) -> None:
    """A client may name models of the providers that this server knows; addresses and files are
    named by its operator alone.

    Raises:
        ApiError: a model is named by an address or a file that the operator has not named.
    """
    known = {server.settings.model, server.settings.embedder, *server.serving.deciders}
    for name in named:
        if name is None or name in known:
            continue
        own, _, model = name.partition("/")
        if "://" in name or (own.strip() == "local" and any(c in model for c in "/\\~")):
            raise ApiError(400, INVALID, f"the model '{name}' is none that this server knows")
