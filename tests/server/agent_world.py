"""A namespace with an agent that remembers, its memories and their history; a reader of pages."""

import json
from dataclasses import dataclass

import numpy as np
from plain_http import fetch

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec, UserSpec
from textevolve.engine import sync
from textevolve.llm.testing import Answer
from textevolve.memory.record import Add, Forget, NewMemory, Origin, Supersede
from textevolve.store import kinds
from textevolve.store.repository import Store

DIMENSION = 32


def answer_chats(body, _number):
    """A script: who says that they live in Oslo is remembered so."""
    last = str(body["messages"][-1]["content"])
    if "facts" in str(body.get("response_format", "")):
        fact = {"turn": 1, "fact": "Ann lives in Oslo.", "status": "true"}
        fact |= {"importance": 8, "since": ""}
        return json.dumps({"facts": [fact] if "live in Oslo" in last else []})
    if "Count." in last:
        return Answer(text=" ".join(map(str, range(1, 2000))), pace=0.05)
    return None if body.get("response_format") else f"I hear you: {last[-20:]}"


def vector(number=0):
    values = np.zeros(DIMENSION, dtype="<f4")
    values[number % DIMENSION] = 1
    return values


@dataclass
class World:
    """Ids of memories: `new` superseded another, `foreign` is in another namespace."""

    resources: Store
    new: str
    foreign: str

    def keep(self, *texts, **fields):
        """Memories of acme/chats; their ids."""
        adds = [
            Add(NewMemory(text=one, embedding=vector(n), **fields)) for n, one in enumerate(texts)
        ]
        return sync.run(self.resources.memories("acme").apply("chats", adds)).ids


def make_world(location, embedder):
    """Closes nothing: whoever makes it does."""
    resources = Store(str(location))
    spec = CollectionSpec(name="chats", embedder=embedder, dimension=DIMENSION)
    for name in ("acme", "other"):
        space = NamespaceSpec(name=name, description=f"That of {name}.")
        resources.write(kinds.create, kinds.NAMESPACES, "", space)
        resources.write(kinds.create, kinds.COLLECTIONS, name, spec)
        persona = "You are patient.\nYou like boats."
        agent = AgentSpec(name="guide", persona=persona, memories="chats")
        resources.write(kinds.create, kinds.AGENTS, name, agent)
    ann = UserSpec(name="ann", description="Ann is a sailor.")
    resources.write(kinds.create, kinds.USERS, "acme", ann)
    store, other = resources.memories("acme"), resources.memories("other")

    def change(where, *changes):
        return sync.run(where.apply("chats", changes)).ids

    (old,) = change(store, Add(NewMemory(text="Ann likes the sea.", embedding=vector())))
    origin = Origin("talk.txt", 3, "Ann", 0.5)
    newer = NewMemory(
        text="Ann loves the sea.", embedding=vector(1), origin=origin, reason="Newer."
    )
    (new,) = change(store, Supersede((old,), newer))
    (gone,) = change(store, Add(NewMemory(text="Bo has a boat.", embedding=vector(2))))
    change(store, Forget(gone))
    (foreign,) = change(other, Add(NewMemory(text="A secret.", embedding=vector())))
    reason = {"action": "replace", "sentence": 2, "before": "You like boats."}
    reason |= {"text": "You love the sea.", "reason": "She said so.", "memories": [new, "me_none"]}
    better = {"persona": "You are patient.\nYou love the sea."}
    resources.write(kinds.update, kinds.AGENTS, "acme", "guide", better, "run 7", [reason])
    return World(resources, new, foreign)


class Browser:
    """Opens pages; `key`: sent with each request, as programs do."""

    def __init__(self, url, key=None):
        self.url = url
        self._headers = {"Accept": "text/html"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path):
        reply = fetch(self.url + path, **self._headers)
        return reply.status, reply.text
