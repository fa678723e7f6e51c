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
    """The shared objects of a running server. `store`: runs and their records; `resources`:
    namespaces, agents and memories; `identities`: the callers of keys and sessions; `serving`: the
    served models and judges; `limits`: the quotas of keys and namespaces; `relays`: the endpoints
    of relayed models; `chats`: open chats with agents; `runner`: runs studies; `feed`: streams the
    events of runs."""

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
