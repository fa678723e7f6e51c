"""The state of a running server, which all handlers of requests share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from textevolve.desk.chats import Chats
from textevolve.server.decisions.serving import Serving
from textevolve.server.identity import Identities, UsageLimits
from textevolve.server.openai.relaying import Relays
from textevolve.server.options import ServerOptions
from textevolve.server.studies.runner import Runner
from textevolve.settings import Settings
from textevolve.store.repository import Store


@dataclass
class ServerState:
    """The shared objects of a running server.

    Attributes:
        options: The options that the server was started with.
        store: The storage of runs and their records.
        resources: The storage of namespaces, agents and memories.
        identities: Finds callers by keys and sessions.
        serving: The served models and judges.
        limits: The quotas of keys and namespaces.
        relays: The endpoints to which requests are forwarded.
        chats: The open chats with agents.
        runner: Runs the studies of clients.
    """

    options: ServerOptions
    settings: Settings
    store: Store
    resources: Store
    identities: Identities
    serving: Serving
    limits: UsageLimits
    relays: Relays
    chats: Chats
    runner: Runner


async def server_of(request: Request) -> ServerState:  # else it is run in a thread
    return request.app.state.server


Server: TypeAlias = Annotated[ServerState, Depends(server_of)]
