"""Recall by late interaction and by a cross-encoder, with models whose answers are known."""

import logging
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.agents.resources import CollectionSpec, NamespaceSpec
from textevolve.errors import FatalModelError
from textevolve.llm.embeddings import pack_tokens, unpack_tokens
from textevolve.memory.ranking import (
    CROSS_MODEL,
    LATE_MODEL,
    MemoryModels,
    token_vectors,
    with_tokens,
)
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, Forget, MemoryQuery, NewMemory, Origin, TokenVectors
from textevolve.store import kinds
from textevolve.store.repository import Store
from word_models import WIDTH, Words, vector_of

RECALL = RecallSettings(collections=("notes",))


@pytest.fixture
def words():
    return {name: Words(name) for name in ("local/minilm", LATE_MODEL, CROSS_MODEL, "other/model")}


@pytest.fixture
def models(words):
    def make(rerank="auto"):
        async def model_of(name):
            return words[name]

        return MemoryModels(model_of, rerank)

    return make


@pytest.fixture
def store(tmp_path):
    with closing(Store(str(tmp_path / "store.db"))) as resources:
        resources.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="home"))
        for name, embedder in (("notes", "local/minilm"), ("others", "other/model")):
            spec = CollectionSpec(name=name, embedder=embedder, dimension=WIDTH)
            resources.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        yield resources.memories("home")


async def fill(store, models, *texts, name="notes", source=""):
    collection = await store.collection(name)
    adds = [
        Add(
            NewMemory(
                text=text,
                embedding=await models(collection, text),
                created=1e9 - place,
                origin=Origin(source, place + 1 if source else None),
            )
        )
        for place, text in enumerate(texts)
    ]
    return (await store.apply(name, await with_tokens(models, collection, adds))).ids


async def recalled(store, models, text, **settings):
    chosen = RECALL.model_copy(update=settings)
    return [m.text for m in (await recall_memories(store, models, chosen, text)).memories]


NOTES = ("Bob mends a red lorry", "Ann likes very strong tea", "Ann has a lorry that is red")


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_packed_tokens_keep_their_directions(seed, number):
    drawn = np.random.default_rng(seed).standard_normal((number, 384)).astype(np.float32)
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    unpacked = unpack_tokens(pack_tokens(vectors))
    assert pack_tokens(vectors).shape == (number, 96)
    assert np.allclose(np.linalg.norm(unpacked, axis=1), 1, atol=1e-5)
    assert (np.einsum("ij,ij->i", vectors, unpacked) > 0.9).all()


async def test_shared_tokens_rank_first(store, models):
    await fill(store, models(), *NOTES)
    assert (await recalled(store, models(), "has Ann a red lorry?"))[0] == NOTES[2]
    assert (await recalled(store, models(), "which tea likes Ann?"))[0] == NOTES[1]


async def test_stored_tokens_are_not_computed_again(store, models, words):
    await fill(store, models(), *NOTES)
    words[LATE_MODEL].texts.clear()
    await recalled(store, models(), "red lorry?")
    assert words[LATE_MODEL].texts == ["red lorry?"]


async def test_older_memories_rank_the_same(store, models, words):
    await fill(store, models("off"), *NOTES)
    order = await recalled(store, models(), "has Ann a red lorry?")
    assert words[LATE_MODEL].texts == ["has ann a red lorry?", *(note.lower() for note in NOTES)]
    assert order[0] == NOTES[2]


async def test_an_answer_follows_its_question(store, models):
    talk = ("Shall we eat pasta in Rome tonight", "Yes gladly", "No never")
    await fill(store, models(), *talk, source="chat")
    await fill(store, models(), "Yes surely", source="elsewhere")
    order = await recalled(store, models(), "eat pasta in Rome?")
    assert order[:2] == [talk[0], talk[1]]


async def test_endpoints_keep_their_own_order(store, models, words):
    await fill(store, models(), *NOTES, name="others")
    await recalled(store, models(), "red lorry?", collections=("others",))
    assert not words[LATE_MODEL].texts
    await recalled(store, models("late"), "red lorry?", collections=("others",))
    assert words[LATE_MODEL].texts


async def test_a_cross_encoder_decides_last(store, models, words):
    await fill(store, models("cross"), *NOTES)
    assert (await recalled(store, models("cross"), "has ann a lorry that is red"))[0] == NOTES[2]
    assert len(words[CROSS_MODEL].texts) == 2 * len(NOTES)


async def test_missing_weights_are_told_once(store, models, words, caplog):
    words[LATE_MODEL].failure = FatalModelError("colbert-small cannot be fetched")
    lacking = models()
    with caplog.at_level(logging.WARNING, "textevolve"):
        await fill(store, lacking, *NOTES)
        assert len(await recalled(store, lacking, "lorry?")) == len(NOTES)
    assert [record.message.count("cannot be fetched") for record in caplog.records] == [1]
    with pytest.raises(FatalModelError, match="colbert-small"):
        await recalled(store, models("late"), "lorry?")


async def test_tokens_leave_with_erased_memories(store, models):
    ids = await fill(store, models(), *NOTES)
    query = MemoryQuery(collection="notes", text="lorry", token_model=LATE_MODEL)
    assert all(match.tokens is not None for match in await store.search(query))
    await store.apply("notes", [Forget(ids[0], erase=True)])
    count = "SELECT count(*) FROM token_vectors"
    rows = store.database().read(lambda connection: connection.exec_driver_sql(count).scalar())
    assert rows == len(NOTES) - 1


async def test_another_embedder_replaces_tokens(store, models):
    ids = await fill(store, models(), *NOTES)
    vectors = {id: vector_of(id) for id in ids}
    fresh = {ids[0]: TokenVectors(LATE_MODEL, pack_tokens(vector_of("new")[None]))}
    await store.replace_embeddings("notes", 1, "other/model", WIDTH, vectors, fresh)
    query = MemoryQuery(collection="notes", text="lorry tea", token_model=LATE_MODEL)
    tokens = {match.memory.id: match.tokens for match in await store.search(query)}
    assert [tokens[id] is None for id in ids] == [False, True, True]
    assert np.array_equal(tokens[ids[0]], fresh[ids[0]].packed)


async def test_estimates_need_no_tokens(store, words):
    async def model_of(name):
        return words[name]

    rehearsed = MemoryModels(model_of, "late", made_up=True)
    assert await token_vectors(rehearsed, await store.collection("notes"), ["Ann"]) == []
