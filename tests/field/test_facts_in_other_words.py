"""A user tells one fact again and again, each time in other words: one memory is left, whatever the
first word of the sentence is. A first word that is another person's name makes another fact.

The model answers that the earlier note says the same already, whatever it is asked about.
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
from textevolve.memory.record import ChangeSource, DialogueTurn
from textevolve.store import kinds
from textevolve.store.repository import Store

VECTOR = np.ones(8, dtype=np.float32) / 8**0.5
WORDINGS = (
    *("Mia lives in Oslo.", "Currently Mia lives in Oslo.", "Oslo is where Mia lives."),
    *("Home for Mia is Oslo.", "These days Mia lives in Oslo.", "Nowadays Mia lives in Oslo."),
    *(
        "As of now, Mia's home is Oslo.",
        "Presently living in Oslo: Mia.",
        "Residence of Mia: Oslo.",
    ),
    *(
        "Living in Oslo, Mia is at home.",
        "Where does Mia live? In Oslo.",
        "Derzeit wohnt Mia in Oslo.",
    ),
)


async def remember(tmp_path, texts, known, compare="questions"):
    """Return the current memories of a dialogue whose turns are facts. `known`: the P(yes) of each
    question whether a note says the same already."""

    def answer(body, _number):
        text = body["messages"][1]["content"]
        if "Note the facts" in text:
            turns = re.findall(r"^(\d+) User: (.*)$", text, re.M)
            kept = {"status": "true", "importance": 5, "since": ""}
            return json.dumps({"facts": [{"turn": int(t), "fact": f, **kept} for t, f in turns]})
        if " new note]]" in text:
            relation = "same" if '"same"' in json.dumps(body["response_format"]) else "different"
            return json.dumps({"note": 1, "relation": relation, "reason": "the home"})
        return Answer(yes=0.1 if "has changed" in text else known)

    async def embed(_collection, _text):
        return VECTOR

    dialogue = [DialogueTurn("user", text) for text in texts]
    with closing(Store(tmp_path / "store.db")) as opened:
        opened.write(kinds.ensure_namespace, "home")
        spec = CollectionSpec(name="notes", embedder="t/e", dimension=len(VECTOR))
        opened.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        store = opened.memories("home")
        settings = CreationSettings(compare=compare)
        async with ScriptedServer(answer) as server, OpenAIClient(server.url, "any") as model:
            await create_memories(
                store,
                embed,
                Deciding(model, None),
                "notes",
                dialogue,
                settings,
                ChangeSource("", "chat"),
            )
        return [memory.text for memory in await store.page("notes")]


@pytest.mark.parametrize("compare", ["questions", "structured"])
async def test_twelve_wordings_leave_one(tmp_path, compare):
    assert await remember(tmp_path, WORDINGS, 0.9, compare) == [WORDINGS[0]]


@pytest.mark.parametrize("first", WORDINGS[1:])
async def test_any_wording_comes_first(tmp_path, first):
    assert await remember(tmp_path, [first, WORDINGS[0]], 0.9) == [first]


@pytest.mark.parametrize(
    "other",
    [
        *("Ben lives in Oslo.", "Mia lives in Bergen.", "Mia lives in Oslo with Ben."),
        *("Mia has lived in Oslo since 2019.", "Mia Moss lives in Oslo."),
    ],
)
async def test_other_facts_stay(tmp_path, other):
    assert await remember(tmp_path, [WORDINGS[0], other], 0.99) == [WORDINGS[0], other]


async def test_unsure_names_need_certainty(tmp_path):
    """A first word may be a name, so the model must be surer that nothing is new."""
    texts = ["Mia lives in Oslo.", "Ben and Mia live in Oslo."]
    assert await remember(tmp_path, texts, 0.7) == texts
