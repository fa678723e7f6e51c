"""Namespaces as a request sees them: open a namespace, if it exists and the caller may see it.

A namespace that the caller may not see is answered like one that does not exist. What a namespace
can do is in the package `api`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from textevolve.api.namespaces import AsyncNamespace
from textevolve.desk.memories import MemoryDesk
from textevolve.errors import NotFoundError
from textevolve.server.decisions.deciders import RequestSpending, spending
from textevolve.server.errors import ApiError, bad_request
from textevolve.server.identity import THIS_MACHINE, Caller, check_namespace
from textevolve.server.state import ServerState
from textevolve.server.studies.runner import allowed_models
from textevolve.store import kinds

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
