import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import AccessError, UnavailableError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import (
    Answer,
    ScriptedServer,
    instance,
)

SCORES = {
    "type": "object",
    "properties": {
        "argument": {"type": "string", "maxLength": 40},
        "scores": {
            "type": "array",
            "items": {"$ref": "#/$defs/Row"},
            "minItems": 2,
            "maxItems": 2,
        },
        "winner": {"enum": ["A", "B"]},
        "sure": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["argument", "scores", "winner", "sure", "note"],
    "$defs": {
        "Row": {
            "type": "object",
            "properties": {
                "accuracy": {"type": "integer", "minimum": 0, "maximum": 10},
                "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            },
            "required": ["accuracy", "share"],
        }
    },
}


def ask(text: str = "?", **more: Any) -> Request:
    return Request(messages=(Message("user", (text,)),), **more)


@given(st.integers(min_value=0, max_value=2**64))
def test_an_instance_follows_its_schema(seed: int) -> None:
    made = instance(SCORES, Random(seed))
    assert list(made) == ["argument", "scores", "winner", "sure", "note"]
    assert len(made["argument"]) <= 40
    assert len(made["scores"]) == 2
    for row in made["scores"]:
        assert row["accuracy"] in range(11)
        assert isinstance(row["accuracy"], int)
        assert 0 < row["share"] <= 1
    assert made["winner"] in ("A", "B")
    assert made["sure"] in (True, False)
    assert made["note"] is None or isinstance(made["note"], str)


async def test_capacity_and_key(server: ScriptedServer) -> None:
    async with ScriptedServer(capacity=2, latency=0.05, key="sk-right") as guarded:
        async with OpenAIClient(guarded.url, "m") as nobody:
            with pytest.raises(AccessError):
                await nobody(ask())
        assert guarded.calls == 0

    def script(_body: object, number: int) -> Answer | None:
        return Answer(delay=3600) if number <= 2 else None

    async with ScriptedServer(script, capacity=2) as small:
        async with OpenAIClient(small.url, "m") as client:
            asked = [asyncio.create_task(client(ask(str(n)))) for n in range(5)]
            while sum(call.done() for call in asked) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            refused = [call for call in asked if call.done()]
            assert all(isinstance(call.exception(), UnavailableError) for call in refused)
            for call in asked:
                call.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        assert small.stats() == {"calls": 5, "distinct": 5, "most_in_flight": 3}


def test_the_makers_own_client_of_system_one_reads_its_decisions() -> None:
    sdk = pytest.importorskip("typesafe_sdk")
    questions = {
        "late": sdk.Noul(instructions="Was it late?"),
        "tone": sdk.Choice(instructions="Which tone?", criteria={"calm": None, "angry": "loud"}),
        "damage": sdk.Score(instructions="How bad?", criteria=["none", "some"]),
    }
    with ScriptedServer(wires=["systemone"]) as server:
        root = server.url.removesuffix("/v1")
        with sdk.TypeSafeClient(api_key="key-of-a-test", base_url=root) as client:
            found = client.system_one(state={"text": "It came late."}, questions=questions)
    assert set(found.answers) == set(questions)
    assert sum(found.choices["tone"].probabilities.values()) == pytest.approx(1)
    assert found.scores["damage"].legend == {0: "none", 1: "some"}


def test_openais_own_client_reads_its_decisions() -> None:
    openai = pytest.importorskip("openai")
    questions = [
        {"type": "predicate", "name": "late", "instructions": "Was it late?"},
        {
            "type": "score",
            "name": "damage",
            "instructions": "How bad?",
            "levels": [{"label": "none"}, {"label": "some"}],
        },
    ]
    with (
        ScriptedServer(wires=["decisions"]) as server,
        openai.OpenAI(api_key="key-of-a-test", base_url=server.url) as client,
    ):
        found = client.decisions.create(model="any", input="It came late.", questions=questions)
    assert [answer.name for answer in found.answers] == ["late", "damage"]
    assert [level.label for level in found.answers[1].probabilities] == ["none", "some"]
    assert found.usage.total_tokens > 0
