"""Recall over the real stores: what `tests/memory/test_recall.py` says of lists holds for them."""

from time import time

import numpy as np
import pytest

from textevolve.memory.cue import Cue
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, Forget, NewMemory, Origin, Supersede

WORDS = ("depot", "closes", "fee", "river")
DAY = 24 * 3600.0


def vector(text):
    words = text.lower().replace(".", " ").replace("?", " ").split()
    found = np.array([words.count(word) + 0.01 for word in WORDS], dtype=np.float32)
    return found / np.linalg.norm(found)


async def embed(_collection, text):
    return vector(text)


def new(text, **more):
    return NewMemory(text=text, embedding=vector(text), **more)


def settings(**more):
    return RecallSettings(**{"collections": ("facts",), **more})


@pytest.fixture
async def store(place):
    place.create("home", "facts")
    store = place.open("home")
    now = time()
    rows = [
        new("The depot closes at 16:40.", entities=("Larkspur",), created=now - 9 * DAY),
        new("The fee is 4 crowns.", importance=0.9, created=now - DAY),
        new("A river runs there.", origin=Origin("the web", trust=0.2), created=now),
        new("Ada holds the key.", entities=("larkspur",), created=now - 3 * DAY),
    ]
    await store.apply("facts", [Add(row) for row in rows])
    return store


def texts(found):
    return [memory.text for memory in found.memories]


async def test_relevance_importance_and_recency_each_put_another_one_first(store):
    first = {}
    for part in ("relevance", "importance", "recency"):
        only = settings(**{**dict.fromkeys(("relevance", "importance", "recency"), 0), part: 1})
        found = await recall_memories(store, embed, only, "When is it that the depot closes?")
        first[part] = found.memories[0].text
        assert found.memories[0].score == 1.0
        assert found.considered == 4
    assert first == {
        "relevance": "The depot closes at 16:40.",
        "importance": "The fee is 4 crowns.",
        "recency": "A river runs there.",
    }


async def test_trust_and_similarity_filter(store):
    trusted = await recall_memories(store, embed, settings(min_trust=0.5), "the river")
    assert "A river runs there." not in texts(trusted)
    near = await recall_memories(store, embed, settings(min_similarity=0.9), "river")
    assert texts(near) == ["A river runs there."]


async def test_association_brings_what_shares_an_entity(store):
    narrow = settings(min_similarity=0.9, relevance=1, importance=0, recency=0)
    wide = narrow.model_copy(update={"associate": True})
    assert texts(await recall_memories(store, embed, narrow, "depot closes")) == [
        "The depot closes at 16:40."
    ]
    assert texts(await recall_memories(store, embed, wide, "depot closes")) == [
        "The depot closes at 16:40.",
        "Ada holds the key.",
    ]


async def test_a_version_gives_the_same_for_ever(store):
    cue, versions = Cue("A", (), "depot?", ("closes", "the fee")), {"home/facts": 1}
    before = await recall_memories(store, embed, settings(), cue, versions=versions)
    by_text = {memory.text: memory.id for memory in before.memories}
    await store.use([by_text["The fee is 4 crowns."]], time() + DAY)
    await store.apply(
        "facts",
        [
            Supersede((by_text["The depot closes at 16:40."],), new("The depot closes at 17:00.")),
            Forget(by_text["A river runs there."]),
            Add(new("depot closes fee")),
        ],
    )
    assert await recall_memories(store, embed, settings(), cue, versions=versions) == before
    now = texts(await recall_memories(store, embed, settings(), cue))
    assert "The depot closes at 17:00." in now
    assert "The depot closes at 16:40." not in now
    assert "A river runs there." not in now


async def test_reading_writes_nothing(store):
    before = await store.page("facts")
    await recall_memories(store, embed, settings(associate=True), "depot closes")
    assert await store.page("facts") == before
    assert (await store.collection("facts")).version == 1
