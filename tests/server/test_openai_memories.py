"""What agents learn of chats over HTTP: each exchange once, and only where that was wanted."""

import asyncio
import json

import pytest
from plain_http import wait_for

from textevolve.agents.resources import AgentSpec, CollectionSpec
from textevolve.llm.testing import Answer
from textevolve.store import kinds

OSLO = ["I live in Oslo."]
BERGEN = [*OSLO, "Fine.", "I work in Bergen."]


class Notes:
    """A script: notes as facts the cities that the user names. `noted`: how often it was asked."""

    def __init__(self):
        self.noted = 0
        self.answer = "Fine."
        self.prompts = []

    def __call__(self, body, _number):
        last = body["messages"][-1]["content"]
        schema = str(body.get("response_format", ""))
        if "facts" in schema:
            self.noted += 1
            texts = [city for city in ("Oslo", "Bergen") if city in last]
            facts = [
                {"turn": 2 * n + 1, "fact": f"They named {city}.", "status": "true", "since": ""}
                | {"importance": 8}
                for n, city in enumerate(texts)
            ]
            return json.dumps({"facts": facts})
        if schema or body.get("logprobs"):
            return Answer(yes=0.01) if body.get("logprobs") else None
        self.prompts.append(last)
        return self.answer


@pytest.fixture
def notes(server):
    server.script = Notes()
    return server.script


@pytest.fixture
def acme(resources, model):
    resources.ensure_namespace("acme")
    chats = CollectionSpec(name="chats", embedder=model, dimension=32)
    resources.write(kinds.create, kinds.COLLECTIONS, "acme", chats)
    guide = AgentSpec(name="guide", persona="A guide.", memories="chats")
    resources.write(kinds.create, kinds.AGENTS, "acme", guide)
    return resources


@pytest.fixture
def say(ask, serve, acme, notes):
    """Sends the conversation with these texts, by turns; `say.url`: of the server."""
    url = serve()

    def send(texts, **more):
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
        request = {"model": "acme/guide", "messages": messages, **more}
        status, answer = ask(f"{url}/v1/chat/completions", request)
        assert status == 200
        return answer

    return send


def memories_of(store):
    async def read():
        return await store.memories("acme").page("chats", limit=100)

    return sorted(one.text for one in asyncio.run(read()))


def test_each_exchange_is_learned_once(say, serve, acme, notes):
    say(OSLO)
    wait_for(lambda: memories_of(acme) == ["They named Oslo."])
    for _ in range(2):
        say(BERGEN)  # the same conversation with one more turn, and then asked anew
        wait_for(lambda: memories_of(acme) == ["They named Bergen.", "They named Oslo."])
    notes.answer = "Another answer."
    say(BERGEN)
    say([*BERGEN, "Fine.", "Good night."])
    wait_for(lambda: notes.noted == 3)
    assert memories_of(acme) == ["They named Bergen.", "They named Oslo."]
    assert acme.sessions("acme").list() == []


def test_memories_are_recalled_as_asked_for(say, acme, notes):
    say(OSLO)
    wait_for(lambda: memories_of(acme))
    prompts = ["Where do I live?"]
    say(prompts, metadata={"memory": "recall"})
    assert "They named Oslo." in notes.prompts[-1]
    say(prompts, metadata={"memory": "recall", "memory.min_trust": "1"})
    assert "They named Oslo." not in notes.prompts[-1]
    say(prompts, metadata={"memory": "off"})
    assert "They named Oslo." not in notes.prompts[-1]
