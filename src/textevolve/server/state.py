"""The shared state of a running server, for all handlers of requests."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from textevolve.server.decisions.serving import Serving
from textevolve.server.identity import Identities
from textevolve.server.limits import UsageLimits
from textevolve.server.openai.relaying import Relays
from textevolve.server.options import ServerOptions
from textevolve.server.studies.feed import Feed
from textevolve.server.studies.runner import Runner
from textevolve.settings import Settings
from textevolve.store import Store
from textevolve.studies.chats import Chats


@dataclass
class ServerState:
    """`store`: runs and their records; `resources`: namespaces, agents and memories; `identities`:
    whom keys and sessions stand for; `serving`: the models and judges that answer; `limits`: what
    keys and namespaces may take; `relays`: models that requests are passed on to; `chats`: those of
    clients and of people at pages with agents; `runner`: works on studies; `feed`: tells watchers
    of runs."""

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
    feed: Feed

    def end(self) -> None:
        """Prepare for shutdown: end all streams, and let studies start no more calls."""
        self.feed.ending.set()
        self.runner.ending = True


def server_of(request: Request) -> ServerState:
    return request.app.state.server
