"""Recall over a store that is nothing but lists; `tests/store` holds the real ones against it."""

from time import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_store import PlainMemories

from textevolve.errors import InputError
from textevolve.llm.prompts import count_tokens
from textevolve.memory.recall import (
    QUERY_CHARACTERS,
    RecallSource,
    make_queries,
    recall_from,
    recall_memories,
)
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, Forget, NewMemory, Origin, Supersede

WORDS = ("depot", "closes", "fee", "colour", "train", "harbour", "tea", "river")
DAY = 24 * 3600.0


def vector(text: str) -> np.ndarray:
    """A text by the words of it that are known, so that alike texts are near to each other."""
    words = text.lower().split()
    found = np.array([words.count(word) for word in WORDS] + [0.1], dtype=np.float32)
    return found / np.linalg.norm(found)


class Embedder:
    def __init__(self):
        self.asked = []

    async def __call__(self, collection, text):
        self.asked.append((collection.name, text))
        return vector(text)


embed = Embedder()


def new(text: str, **more) -> Add:
    return Add(NewMemory(text=text, embedding=vector(text), **more))


async def filled(*changes, name="facts", store=None):
    store = store or PlainMemories("default")
    store.create(name, len(WORDS) + 1)
    await store.apply(name, list(changes))
    return store


def settings(**more) -> RecallSettings:
    return RecallSettings(**{"collections": ("facts",), **more})


def texts(found) -> list[str]:
    return [memory.text for memory in found.memories]


async def test_what_fits_comes_first_with_its_source_parts_and_id():
    store = await filled(
        new("The river is cold.", origin=Origin("notes.md", 3, "Ada", 0.5)),
        new("The depot closes at 16:40.", origin=Origin("handbook.md", 2)),
    )
    found = await recall_memories(store, embed, settings(), "When is it that the depot closes ?")
    first, second = found.memories
    assert first.text == "The depot closes at 16:40."
    assert first.source == "default/facts: handbook.md, turn 2"
    assert second.source == "default/facts: notes.md, turn 3, by Ada"
    assert first.parts == {"relevance": 1.0, "importance": 1.0, "recency": first.parts["recency"]}
    assert (first.score, first.trust, second.trust) == (1.0, 1.0, 0.5)
    assert first.similarity > second.similarity
    assert (await store.get([first.id]))[0].text == first.text


async def test_importance_and_recency_weigh():
    now = time()
    store = await filled(
        new("tea one", importance=0.9, created=now - 9 * DAY),
        new("tea two", importance=0.1, created=now - DAY),
    )
    lately = await recall_memories(store, embed, settings(relevance=0, recency=1), "tea")
    gravely = await recall_memories(store, embed, settings(relevance=0, importance=1), "tea")
    assert texts(lately) == ["tea two", "tea one"]
    assert texts(gravely) == ["tea one", "tea two"]


async def test_keywords_decide_between_equally_similar_memories_alone():
    store = await filled(
        new("depot depot of old"), new("depot with a blue door"), new("blue door", importance=1)
    )
    found = await recall_memories(store, embed, settings(), "depot blue door")
    assert texts(found) == ["depot with a blue door", "depot depot of old", "blue door"]


@pytest.mark.parametrize("query", ["KX-2041", "Ann Moss"])
async def test_by_a_name_or_a_number_what_holds_it_comes_first(query):
    store = await filled(new("tea"), new("Ann Bell has KX-2042"), new(f"depot river {query}."))

    async def near_tea(collection, text):
        return vector("tea depot")

    assert texts(await recall_memories(store, near_tea, settings(), query))[0].endswith(f"{query}.")
    assert texts(await recall_memories(store, near_tea, settings(), f"about {query}"))[0] == "tea"


async def test_what_is_left_out_is_counted():
    store = await filled(*(new(f"tea {n} " + "x" * 36, importance=n / 10) for n in range(10)))
    only = settings(relevance=0, importance=1, min_score=0.35, limit=5, budget=24)
    found = await recall_memories(store, embed, only, "tea")
    assert texts(found)[0].startswith("tea 9")
    assert found.considered == 10
    assert (found.below, found.over_limit, found.over_budget) == (4, 1, 3)
    assert found.tokens <= 24


async def test_a_summary_takes_the_place_of_what_has_no_room():
    store = await filled(
        *(
            new(f"tea {n} " + "x" * 36, importance=n / 10, origin=Origin(trust=n / 10))
            for n in range(6)
        )
    )
    asked = []

    async def summarize(texts, budget):
        asked.append((list(texts), budget))
        return "many words " * 99

    only = settings(relevance=0, importance=1, budget=40, summarize=True)
    found = await recall_memories(store, embed, only, "tea", summarize=summarize)
    ((rest, room),) = asked
    assert [text[:5] for text in rest] == ["tea 4", "tea 3", "tea 2", "tea 1", "tea 0"][
        5 - len(rest) :
    ]
    assert found.summarised == len(rest) == 6 - (len(found.memories) - 1)
    assert found.memories[-1].source == f"a summary of {len(rest)} memories"
    assert found.memories[-1].trust == 0.0
    assert room >= 20
    assert found.tokens <= 40


async def test_minimum_similarity_and_trust():
    store = await filled(
        new("depot closes", origin=Origin(trust=0.2)), new("depot fee"), new("river")
    )
    near = await recall_memories(store, embed, settings(min_similarity=0.5), "depot closes")
    assert set(texts(near)) == {"depot closes", "depot fee"}
    trusted = await recall_memories(store, embed, settings(min_trust=0.5), "depot closes")
    assert set(texts(trusted)) == {"depot fee", "river"}


async def test_association_reaches_over_two_entities():
    store = await filled(
        new("depot closes", entities=("Larkspur",)),
        *(new("depot closes" + " fee" * n) for n in range(1, 61)),
        new("a harbour", entities=("larkspur", "Ada")),
        new("some tea", entities=("ada",), origin=Origin(trust=0.1)),
        new("the river", entities=("nobody",)),
    )
    plain = settings(limit=10)
    without = await recall_memories(store, embed, plain, "depot closes")
    assert not {"a harbour", "some tea"} & set(texts(without))
    wide = plain.model_copy(update={"associate": True})
    more = await recall_memories(store, embed, wide, "depot closes")
    found = {memory.text: memory for memory in more.memories}
    assert found["a harbour"].parts["relevance"] < found["depot closes"].parts["relevance"]
    assert "the river" not in found
    assert "some tea" in found
    trusted = wide.model_copy(update={"min_trust": 0.5})
    assert "some tea" not in texts(await recall_memories(store, embed, trusted, "depot closes"))


async def test_memories_that_say_the_same_come_once():
    store = await filled(new("The depot closes."), new("The river."))
    await filled(new("the  depot closes."), new("tea"), name="more", store=store)
    both = settings(collections=("facts", "default/more", "facts"))
    found = await recall_memories(store, embed, both, "depot")
    assert sorted(text.lower().replace("  ", " ") for text in texts(found)) == [
        "tea",
        "the depot closes.",
        "the river.",
    ]


async def test_a_superseded_memory_never_comes_with_the_one_in_its_place():
    store = await filled(new("depot closes at 16:40"))
    (old,) = store.memories
    later = NewMemory(text="depot closes at 17:00", embedding=vector("depot closes"))
    await store.apply("facts", [Supersede((old.id,), later)])
    assert texts(await recall_memories(store, embed, settings(), "depot")) == [later.text]
    sources = [RecallSource(store, "facts", 1), RecallSource(store, "facts", 2)]
    found = await recall_from(sources, embed, settings(), "depot")
    assert texts(found) == [later.text]
    earlier = await recall_memories(
        store, embed, settings(), "depot", versions={"default/facts": 1}
    )
    assert texts(earlier) == [old.text]


async def test_a_version_gives_the_same_for_ever():
    now = time()
    store = await filled(
        *(new(f"tea {n} river", importance=n / 9, created=now - n * DAY) for n in range(9))
    )
    versions = {"default/facts": 1}
    before = await recall_memories(store, embed, settings(limit=4), "tea", versions=versions)
    ids = [one.id for one in store.memories]
    await store.use(ids[5:], now + DAY)
    await store.apply("facts", [new("tea tea tea"), Forget(ids[0])])
    after = await recall_memories(store, embed, settings(limit=4), "tea", versions=versions)
    assert after == before
    assert await recall_memories(store, embed, settings(limit=4), "tea") != before


async def test_bad_input_is_said_in_one_line():
    store = await filled(new("tea"))
    with pytest.raises(InputError, match="no collection 'other/facts' in the namespace 'default'"):
        await recall_memories(store, embed, settings(collections="other/facts"), "tea")
    with pytest.raises(InputError, match="blank"):
        await recall_memories(store, embed, settings(), " \n")
    with pytest.raises(InputError, match="'default/facts' is not among those"):
        await recall_memories(store, embed, settings(), "tea", versions={})
    with pytest.raises(InputError, match="summarize needs a model"):
        await recall_memories(store, embed, settings(budget=16, summarize=True), "tea")
    with pytest.raises(InputError, match="all 0"):
        RecallSettings(relevance=0, importance=0, recency=0)
    with pytest.raises(InputError, match="set budget, too"):
        RecallSettings(summarize=True)


memories = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS), st.floats(0, 1), st.floats(0, 1e4)),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one[:2],
)


@given(memories, st.integers(16, 60), st.integers(1, 8), st.randoms(use_true_random=False))
async def test_bounds_budget_and_order_hold_for_any_memories(rows, budget, limit, random):
    now = time()
    made = [
        new(f"{a} {b}" + " x" * 12, importance=i, created=now - hours * 3600)
        for a, b, i, hours in rows
    ]
    only = settings(importance=1, recency=1, budget=budget, limit=limit)
    found = await recall_memories(await filled(*made), embed, only, "depot river tea", now=now)
    scores = [one.score for one in found.memories]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= one <= 1 for one in scores)
    for one in found.memories:
        assert all(0 <= part <= 1 for part in one.parts.values())
        assert one.score == pytest.approx(sum(one.parts.values()) / 3)
    assert found.tokens == sum(count_tokens(one.text) for one in found.memories) <= budget
    assert len(found.memories) <= limit
    left = found.below + found.over_limit + found.over_budget
    assert len(found.memories) + left == found.considered


@given(st.text(max_size=3000), st.lists(st.text(max_size=900), max_size=12), st.text(max_size=2000))
def test_queries_are_never_blank_and_each_stands_once(input, candidates, history):
    queries = make_queries(input, candidates, history)
    found = [one.text for one in queries]
    assert len(set(found)) == len(found)
    assert all(text and len(text) <= QUERY_CHARACTERS for text in found)
    assert sum(one.weight for one in queries) <= 2.25 + 1e-9
