import pytest

from textevolve.llm.testing import ScriptedServer


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
        response = client.decisions.create(model="any", input="It came late.", questions=questions)
    assert [answer.name for answer in response.answers] == ["late", "damage"]
    assert [level.label for level in response.answers[1].probabilities] == ["none", "some"]
    assert response.usage.total_tokens > 0


def test_a_server_is_printed_before_it_runs() -> None:
    assert "ScriptedServer" in repr(ScriptedServer())
