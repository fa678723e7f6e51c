"""A Japanese chat becomes memories, insights and changes of a persona: the requests ask for the
language of the material, since their own words are English. Of an English chat nothing is said.

What is right was read in the reports: memories in another language than the chat were not found.
"""

import json

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.prompts import load_template
from textevolve.llm.testing import ScriptedServer
from textevolve.memory.extraction import CreationSettings, extract_points
from textevolve.memory.record import DialogueTurn

WISH = "in the language of its turn"


@pytest.mark.parametrize(
    ("text", "fact", "is_foreign"),
    [
        ("私は三月に大阪へ引っ越しました。", "利用者は三月に大阪へ引っ越した。", True),
        ("Я живу в Казани.", "Пользователь живёт в Казани.", True),
        ("I moved to Osaka in March.", "The user moved to Osaka in March.", False),
    ],
)
async def test_facts_keep_the_language_of_their_turn(text, fact, is_foreign):
    answer = {"turn": 1, "fact": fact, "status": "true", "importance": 5, "since": ""}
    bodies = []

    def script(body, _number):
        bodies.append(str(body))
        return json.dumps({"facts": [answer]})

    turns = [DialogueTurn("user", text, "2026-04-02")]
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "any") as model:
        (point,) = await extract_points(model, turns, CreationSettings(), 0)
    assert [WISH in body for body in bodies] == [is_foreign]
    assert is_foreign == (not point.text.isascii())


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("memory", "integration_questions"),
        ("memory", "integration_insights"),
        ("memory", "voice"),
        ("agents", "persona_changes"),
        ("agents", "persona_new"),
        ("llm", "compress"),
    ],
)
def test_requests_for_new_texts_name_the_language(room, name):
    template = load_template(f"textevolve.{room}", name)
    assert "language" in template.render(**dict.fromkeys(template.variables, ""))
