"""What the tests of agents share: a store with a namespace, a collection and two agents."""

import json
from contextlib import closing
from functools import partial

import pytest

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.settings import Retries, Settings
from textevolve.store import kinds
from textevolve.store.repository import Store


class Guide:
    """A script: answers a chat, and notes the user's messages as facts. `said`: what it answers,
    by the end of the message; `noted`: how often facts were asked for."""

    def __init__(self) -> None:
        self.said = {}
        self.noted = 0
        self.prompts = []

    def __call__(self, body, _number):
        last = body["messages"][-1]["content"]
        schema = str(body.get("response_format", ""))
        if "facts" in schema:
            self.noted += 1
            facts = [
                {"turn": n + 1, "fact": fact, "status": "true", "importance": 8, "since": ""}
                for n, fact in enumerate(["Ann lives in Oslo."] if "Oslo" in last else [])
            ]
            return json.dumps({"facts": facts})
        if schema:
            return None
        self.prompts.append(body["messages"])
        found = [answer for end, answer in self.said.items() if last.rstrip().endswith(end)]
        return found[0] if found else f"I hear you: {last[-20:]}"


@pytest.fixture
def guide():
    return Guide()


@pytest.fixture
def server(guide):
    with ScriptedServer(guide) as started:
        yield started


@pytest.fixture
def settings(home, server):
    return Settings(
        model=f"{server.url}#scripted",
        store=home / "store.db",
        embedder=f"{server.url}#embeds",
        retries=Retries(attempts=2, first=0.0),
    )


@pytest.fixture
def resources(settings):
    with closing(Store(settings.memory_location)) as opened:
        create = partial(opened.write, kinds.create)
        create(kinds.NAMESPACES, "", NamespaceSpec(name="acme"))
        create(kinds.NAMESPACES, "", NamespaceSpec(name="other"))
        collection = CollectionSpec(name="chats", embedder=settings.embedder, dimension=32)
        create(kinds.COLLECTIONS, "acme", collection)
        guide = AgentSpec(name="guide", persona="You are a patient guide.", memories="chats")
        create(kinds.AGENTS, "acme", guide)
        create(kinds.AGENTS, "acme", AgentSpec(name="plain", persona="You are plain."))
        create(kinds.AGENTS, "other", AgentSpec(name="guide", persona="You are another."))
        create(kinds.USERS, "acme", UserSpec(name="ann", description="Ann is a sailor."))
        yield opened


@pytest.fixture
def stalled():
    """An answer of which the beginning comes and no end."""
    return Answer(text="One two three four five six seven eight.", transport="stall")
