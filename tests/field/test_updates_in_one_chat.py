"""A chat tells a fact in January and its change in March; as of February the first is right.

A later fact of a dialogue closes the earlier one with its own dates, as it does where the two stand
in two dialogues. A change of which the model is as good as undecided closes nothing.
"""

import json
import re
from contextlib import closing

import numpy as np
import pytest

from textevolve.agents.resources import CollectionSpec
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.verdicts import Deciding
from textevolve.memory.creation import create_memories
from textevolve.memory.extraction import CreationSettings
from textevolve.memory.record import ChangeSource, DialogueTurn, MemoryQuery
from textevolve.store import kinds
from textevolve.store.repository import Store
from textevolve.texts.dates import read_moment

VECTOR = np.ones(8, dtype=np.float32) / 8**0.5
JANUARY, MARCH, MAY = ("2026-01-05", "2026-03-05", "2026-05-05")


@pytest.fixture
def store(tmp_path):
    with closing(Store(tmp_path / "store.db")) as opened:
        opened.write(kinds.ensure_namespace, "home")
        spec = CollectionSpec(name="notes", embedder="t/e", dimension=len(VECTOR))
        opened.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        yield opened.memories("home")


def answer_as_model(probability, relation="replaces"):
    """Return a model that notes each turn as a fact, and relates every two of them in one way."""

    def answer(body, _number):
        text = body["messages"][1]["content"]
        if "Note the facts" in text:
            turns = re.findall(r"^(\d+) \([\d-]+\) User: (.*)$", text, re.M)
            kept = {"status": "true", "importance": 5, "since": ""}
            facts = [{"turn": int(turn), "fact": fact, **kept} for turn, fact in turns]
            return json.dumps({"facts": facts})
        if " new note]]" not in text:
            return Answer(yes=probability if "has changed" in text else 0.0)
        if '"text"' in json.dumps(body.get("response_format")):
            return json.dumps({"text": "Mia lives in Graz with Tom and a dog."})
        return json.dumps({"note": 1, "relation": relation, "reason": "newer"})

    return answer


async def remember(store, answer, *turns, compare="questions"):
    async def embed(_collection, _text):
        return VECTOR

    dialogue = [DialogueTurn("user", text, date) for date, text in turns]
    settings = CreationSettings(compare=compare)
    async with ScriptedServer(answer) as server, OpenAIClient(server.url, "any") as model:
        deciding = Deciding(model, None)
        source = ChangeSource("", "chat 1")
        return await create_memories(store, embed, deciding, "notes", dialogue, settings, source)


async def texts_at(store, date=None):
    time = None if date is None else read_moment(date).timestamp()
    query = MemoryQuery(collection="notes", embedding=VECTOR, time=time)
    return {match.memory.text for match in await store.search(query)}


OSLO, BERGEN, GRAZ = (f"Mia lives in {city}." for city in ("Oslo", "Bergen", "Graz"))


async def test_updates_keep_earlier_facts(store):
    turns = ((JANUARY, OSLO), (MARCH, BERGEN), (MAY, GRAZ))
    made = await remember(store, answer_as_model(0.9), *turns)
    assert [decision.action for decision in made.decisions] == ["add", "update", "update"]
    assert len({decision.id for decision in made.decisions}) == 3

    assert await texts_at(store, "2026-02-01") == {OSLO}
    assert await texts_at(store, "2026-04-01") == {BERGEN}
    assert await texts_at(store) == {GRAZ}


async def test_one_chat_equals_several(store):
    for turn in ((JANUARY, OSLO), (MARCH, BERGEN), (MAY, GRAZ)):
        await remember(store, answer_as_model(0.9), turn)
    assert await texts_at(store, "2026-02-01") == {OSLO}
    assert await texts_at(store, "2026-04-01") == {BERGEN}
    assert await texts_at(store) == {GRAZ}


async def test_merges_keep_earlier_facts(store):
    turns = ((JANUARY, "Mia lives in Graz with Tom."), (MARCH, "Mia has a dog."))
    made = await remember(store, answer_as_model(0, "adds"), *turns, compare="structured")
    assert [decision.action for decision in made.decisions] == ["add", "merge"]

    assert await texts_at(store, "2026-02-01") == {"Mia lives in Graz with Tom."}
    assert await texts_at(store) == {"Mia lives in Graz with Tom and a dog."}


async def test_stored_facts_close_in_turn(store):
    await remember(store, answer_as_model(0.9), (JANUARY, OSLO))
    await remember(store, answer_as_model(0.9), (MARCH, BERGEN), (MAY, GRAZ))
    assert await texts_at(store, "2026-02-01") == {OSLO}
    assert await texts_at(store, "2026-04-01") == {BERGEN}

    (graz,) = await store.page("notes")
    history = await store.history(graz.id)
    assert [memory.text for memory in history] == [OSLO, BERGEN, GRAZ]
    assert [memory.closed for memory in history] == [2, 2, None]


@pytest.mark.parametrize(
    ("probability", "texts"),
    [(0.46, {OSLO, BERGEN}), (0.5, {OSLO, BERGEN}), (0.51, {OSLO, BERGEN}), (0.53, {BERGEN})],
)
async def test_undecided_changes_close_nothing(store, probability, texts):
    turns = ((JANUARY, OSLO), (MARCH, BERGEN))
    made = await remember(store, answer_as_model(probability), *turns)
    assert await texts_at(store) == texts
    assert ("both are kept" in made.decisions[1].reason) == (len(texts) == 2)
