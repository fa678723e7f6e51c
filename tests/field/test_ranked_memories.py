"""Memories that other tools found and put in the wrong order, or left out (mem0ai/mem0#6448,
CortexReach/memory-lancedb-pro#978, NickMonrad/kernel-ai-assistant#959, plur-ai/plur#341 and
basicmachines-co/basic-memory#1143), with models whose answers are worked out from words."""

import logging
from contextlib import closing

import numpy as np
import pytest

from textevolve.agents.resources import CollectionSpec, NamespaceSpec
from textevolve.errors import FatalModelError
from textevolve.memory.ranking import CROSS_MODEL, LATE_MODEL, MemoryModels, with_tokens
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, NewMemory
from textevolve.store import kinds
from textevolve.store.repository import Store
from word_models import WIDTH, Words, vector_of


@pytest.fixture
def store(tmp_path):
    with closing(Store(str(tmp_path / "store.db"))) as resources:
        resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="home"))
        spec = CollectionSpec(name="notes", embedder="local/minilm", dimension=WIDTH)
        resources.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        yield resources.memories("home")


def open_models(rerank, opened):
    async def model_of(name):
        return opened.setdefault(name, Words(name))

    return MemoryModels(model_of, rerank)


async def fill(store, models, vectors):
    collection = await store.collection("notes")
    adds = [Add(NewMemory(text=text, embedding=vector)) for text, vector in vectors.items()]
    await store.apply("notes", await with_tokens(models, collection, adds))


async def recall(store, models, text, **settings):
    chosen = RecallSettings(collections=("notes",), **settings)
    return [m.text for m in (await recall_memories(store, models, chosen, text)).memories]


async def test_reranking_reaches_beyond_the_limit(store):
    """The cross-encoder alone knows the right one, which the first order has last of nine."""
    opened = {CROSS_MODEL: Words(CROSS_MODEL, sign=-1)}
    models = open_models("cross", opened)
    decoys = [f"the red lorry number {n} stops here" for n in range(8)]
    right = "quite another thing"
    await fill(store, models, dict.fromkeys([*decoys, right], vector_of("same")))
    question = "which red lorry number stops"
    assert await recall(store, models, question, limit=1) == [right]
    first_order = await recall(store, open_models("auto", opened), question)
    assert first_order[-1] == right


async def test_frequent_words_do_not_outrank_meaning(store):
    """A keyword match alone is not better than the memory that has the words of the question."""
    models = open_models("auto", {})
    loud = "message message message message message"
    right = "Mike wants failed message sends tried again"
    texts = {loud: vector_of("far"), right: vector_of("near")}
    await fill(store, models, texts)
    question = "what does Mike want for failed message sends"
    assert (await recall(store, models, question))[0] == right


async def test_nothing_similar_gives_nothing(store):
    """Neither for a word that occurs nowhere, nor for names and numbers, which count for more."""
    models = open_models("auto", {})
    await fill(store, models, {"I like dark mode": vector_of("screen")})
    for question in ("aubergines", "KX-2041", "Dana Lund"):
        assert await recall(store, models, question, min_similarity=0.5) == []
    parcel = np.eye(1, WIDTH, dtype=np.float32)[0]  # where all questions are
    await fill(store, models, {"The parcel KX-2041": parcel})
    assert await recall(store, models, "KX-2041", min_similarity=0.5) == ["The parcel KX-2041"]


async def test_missing_rankers_are_asked_for_once(store, caplog):
    opened = {}
    models = open_models("auto", opened)
    await fill(store, open_models("off", opened), {"Ann has a lorry": vector_of("lorry")})
    opened[LATE_MODEL] = failing = Words(LATE_MODEL, FatalModelError("cannot be fetched"))
    failing.calls = 0

    async def counting(_request, ask=failing.__call__):
        failing.calls += 1
        return await ask(_request)

    opened[LATE_MODEL] = counting
    with caplog.at_level(logging.WARNING, "textevolve"):
        for question in ("a lorry?", "whose lorry?", "which lorry?"):
            assert await recall(store, models, question) == ["Ann has a lorry"]
    assert len(caplog.records) == 1
    assert failing.calls <= 2  # the first question, and the memory without token vectors
    assert CROSS_MODEL not in opened
