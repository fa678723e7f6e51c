"""What is open while a server runs, for all that answers requests."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from textevolve.server.decisions.serving import Serving
from textevolve.server.open_chats import OpenChats
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings
from textevolve.store import ResourceStore, Store


@dataclass
class ServerState:
    """`store`: runs and their records; `resources`: namespaces, agents and memories; `serving`: the
    models and judges that answer; `chats`: those of people at pages."""

    options: ServerOptions
    settings: Settings
    store: Store
    resources: ResourceStore
    serving: Serving
    chats: OpenChats


def server_of(request: Request) -> ServerState:
    return request.app.state.server
