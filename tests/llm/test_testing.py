from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.llm.testing import (
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
