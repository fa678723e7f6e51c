"""Recall over a store that is nothing but lists; `tests/store` holds the real ones against it."""

from time import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_store import PlainMemories

from textevolve.errors import InputError
from textevolve.llm.prompts import count_tokens
from textevolve.memory.cue import Cue
from textevolve.memory.recall import (
    QUERY_CHARACTERS,
    Recalled,
    RecallSource,
    decay,
    fit_budget,
    make_queries,
    name_source,
    normalise,
    recall_from,
    recall_memories,
    weigh,
)
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, Forget, NewMemory, Origin, Supersede

WORDS = ("depot", "closes", "fee", "colour", "train", "harbour", "tea", "river")
DAY = 24 * 3600.0


def vector(text: str) -> np.ndarray:
    """A text by the words of it that are known, so that alike texts are near to each other."""
    words = text.lower().split()
    counts = np.array([words.count(word) for word in WORDS] + [0.1], dtype=np.float32)
    return counts / np.linalg.norm(counts)


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


def texts(recalled) -> list[str]:
    return [memory.text for memory in recalled.memories]


async def test_relevant_memories_come_first():
    store = await filled(
        new("The river is cold.", origin=Origin("notes.md", 3, "Ada", 0.5)),
        new("The depot closes at 16:40.", origin=Origin("handbook.md", 2)),
    )
    recalled = await recall_memories(store, embed, settings(), "When is it that the depot closes ?")
    depot, river = recalled.memories
    assert depot.text == "The depot closes at 16:40."
    assert depot.source == "default/facts: handbook.md, turn 2"
    assert river.source == "default/facts: notes.md, turn 3, by Ada"
    assert depot.parts == {"relevance": 1.0, "importance": 1.0, "recency": depot.parts["recency"]}
    assert (depot.score, depot.trust, river.trust) == (1.0, 1.0, 0.5)
    assert depot.similarity > river.similarity
    assert (await store.get([depot.id]))[0].text == depot.text


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


async def test_keywords_only_break_ties():
    store = await filled(
        new("depot depot of old"), new("depot with a blue door"), new("blue door", importance=1)
    )
    recalled = await recall_memories(store, embed, settings(), "depot blue door")
    assert texts(recalled) == ["depot with a blue door", "depot depot of old", "blue door"]


@pytest.mark.parametrize(
    ("query", "within"), [("KX-2041", "depot river KX-2041."), ("Ann Moss", "tea")]
)
async def test_named_memories_come_first(query, within):
    # A number outranks meaning within a question, too; a name only where it stands alone.
    store = await filled(new("tea"), new("Ann Bell has KX-2042"), new(f"depot river {query}."))

    async def near_tea(collection, text):
        return vector("tea depot")

    assert texts(await recall_memories(store, near_tea, settings(), query))[0].endswith(f"{query}.")
    assert texts(await recall_memories(store, near_tea, settings(), f"about {query}"))[0] == within


async def test_omitted_memories_are_counted():
    store = await filled(*(new(f"tea {n} " + "x" * 36, importance=n / 10) for n in range(10)))
    only = settings(relevance=0, importance=1, min_score=0.35, limit=5, budget=24)
    recalled = await recall_memories(store, embed, only, "tea")
    assert texts(recalled)[0].startswith("tea 9")
    assert recalled.considered == 10
    assert (recalled.below, recalled.over_limit, recalled.over_budget) == (4, 1, 3)
    assert recalled.tokens <= 24


async def test_summaries_replace_the_overflow():
    store = await filled(
        *(
            new(f"tea {n} " + "x" * 36, importance=n / 10, origin=Origin(trust=n / 10))
            for n in range(6)
        )
    )
    requests = []

    async def summarize(texts, budget):
        requests.append((list(texts), budget))
        return "many words " * 99

    only = settings(relevance=0, importance=1, budget=40, summarize=True)
    recalled = await recall_memories(store, embed, only, "tea", summarize=summarize)
    ((overflow, room),) = requests
    assert [text[:5] for text in overflow] == ["tea 4", "tea 3", "tea 2", "tea 1", "tea 0"][
        5 - len(overflow) :
    ]
    assert recalled.summarised == len(overflow) == 6 - (len(recalled.memories) - 1)
    assert recalled.memories[-1].source == f"a summary of {len(overflow)} memories"
    assert recalled.memories[-1].trust == 0.0
    assert room >= 20
    assert recalled.tokens <= 40


async def test_minimum_similarity_and_trust():
    store = await filled(
        new("depot closes", origin=Origin(trust=0.2)), new("depot fee"), new("river")
    )
    near = await recall_memories(store, embed, settings(min_similarity=0.5), "depot closes")
    assert set(texts(near)) == {"depot closes", "depot fee"}
    trusted = await recall_memories(store, embed, settings(min_trust=0.5), "depot closes")
    assert set(texts(trusted)) == {"depot fee", "river"}


def test_association_is_gone():
    """What earlier versions wrote is read; who asks for it learns what there is instead."""
    assert RecallSettings(collections=("facts",), associate=False).limit == 10
    with pytest.raises(InputError, match="memories graph"):
        RecallSettings(associate=True)


async def test_equal_memories_come_once():
    store = await filled(new("The depot closes."), new("The river."))
    await filled(new("the  depot closes."), new("tea"), name="more", store=store)
    both = settings(collections=("facts", "default/more", "facts"))
    recalled = await recall_memories(store, embed, both, "depot")
    assert sorted(text.lower().replace("  ", " ") for text in texts(recalled)) == [
        "tea",
        "the depot closes.",
        "the river.",
    ]


async def test_superseded_memories_are_left_out():
    store = await filled(new("depot closes at 16:40"))
    (old,) = store.memories
    later = NewMemory(text="depot closes at 17:00", embedding=vector("depot closes"))
    await store.apply("facts", [Supersede((old.id,), later)])
    assert texts(await recall_memories(store, embed, settings(), "depot")) == [later.text]
    sources = [RecallSource(store, "facts", 1), RecallSource(store, "facts", 2)]
    recalled = await recall_from(sources, embed, settings(), "depot")
    assert texts(recalled) == [later.text]
    earlier = await recall_memories(
        store, embed, settings(), "depot", versions={"default/facts": 1}
    )
    assert texts(earlier) == [old.text]


async def test_versions_always_recall_the_same():
    now = time()
    store = await filled(
        *(new(f"tea {n} river", importance=n / 9, created=now - n * DAY) for n in range(9))
    )
    versions = {"default/facts": 1}
    before = await recall_memories(store, embed, settings(limit=4), "tea", versions=versions)
    ids = [memory.id for memory in store.memories]
    await store.use(ids[5:], now + DAY)
    await store.apply("facts", [new("tea tea tea"), Forget(ids[0])])
    after = await recall_memories(store, embed, settings(limit=4), "tea", versions=versions)
    assert after == before
    assert await recall_memories(store, embed, settings(limit=4), "tea") != before


async def test_bad_input_is_refused():
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
    unique_by=lambda pair: pair[:2],
)


@given(memories, st.integers(16, 60), st.integers(1, 8), st.randoms(use_true_random=False))
async def test_scores_and_budgets_hold(rows, budget, limit, random):
    now = time()
    changes = [
        new(f"{a} {b}" + " x" * 12, importance=i, created=now - hours * 3600)
        for a, b, i, hours in rows
    ]
    only = settings(importance=1, recency=1, budget=budget, limit=limit)
    recalled = await recall_memories(
        await filled(*changes), embed, only, "depot river tea", now=now
    )
    scores = [memory.score for memory in recalled.memories]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    for memory in recalled.memories:
        assert all(0 <= part <= 1 for part in memory.parts.values())
        assert memory.score == pytest.approx(sum(memory.parts.values()) / 3)
    assert (
        recalled.tokens == sum(count_tokens(memory.text) for memory in recalled.memories) <= budget
    )
    assert len(recalled.memories) <= limit
    omitted = recalled.below + recalled.over_limit + recalled.over_budget
    assert len(recalled.memories) + omitted == recalled.considered


@given(st.text(max_size=3000), st.lists(st.text(max_size=900), max_size=12), st.text(max_size=2000))
def test_queries_are_distinct_and_filled(input, candidates, history):
    queries = make_queries(input, candidates, history)
    texts_of_queries = [query.text for query in queries]
    assert len(set(texts_of_queries)) == len(texts_of_queries)
    assert all(text and len(text) <= QUERY_CHARACTERS for text in texts_of_queries)
    assert sum(query.weight for query in queries) <= 2.25 + 1e-9


# What is searched for


def weights_of(input, candidates=(), history=""):
    return {query.text: query.weight for query in make_queries(input, candidates, history)}


def test_short_texts_are_whole_queries():
    assert weights_of(" Why? ") == {"Why?": 1.0}
    assert weights_of("Why?", ["yes", "no"], "Hi.") == {
        "Why?": 1.0,
        "yes": 0.5,
        "no": 0.5,
        "Hi.": 0.25,
    }
    assert weights_of("Why?", ["Why?", " "], "Why?") == {"Why?": 2.25}
    exact = "x y " * 199 + "x yz"
    assert list(weights_of(exact)) == [exact]
    assert list(weights_of("", (), exact)) == [exact]


def test_long_inputs_have_two_queries():
    words = [f"word{n:03}" for n in range(200)]
    opening, last = make_queries(" ".join(words), (), "")
    assert (opening.text, last.text) == (" ".join(words[:100]), " ".join(words[-100:]))
    assert (opening.weight, last.weight) == (0.5, 0.5)
    cut, ending = make_queries(" ".join(["ab", *words, "cd"]), (), "")
    assert cut.text == " ".join(["ab", *words[:99]])  # no half of a word
    assert ending.text == " ".join([*words[-99:], "cd"])
    single = "x" * 801
    assert list(weights_of(single)) == [single[1:]]
    assert list(weights_of("", (), " ".join(words))) == [last.text]


def test_candidates_are_queried_in_part():
    assert list(weights_of("", [f"text {n}" for n in range(12)])) == [f"text {n}" for n in range(8)]
    exact = "x y " * 99 + "x yz"
    assert list(weights_of("", [exact])) == [exact]
    assert list(weights_of("", [exact + "x"])) == [exact.removesuffix(" yz")]


# The arithmetic of scores


def test_recency_falls_by_the_hour():
    assert decay(0.0, 3600.0) == 0.995
    assert decay(0.0, 7200.0) == pytest.approx(0.990025)
    assert decay(10.0, 0.0) == 1.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([0.3], [1.0]),
        ([2.0, 2.0], [1.0, 1.0]),
        ([1.0, 2.0, 5.0], [0.0, 0.25, 1.0]),
        ([-1.0, 1.0, 0.0], [0.0, 1.0, 0.5]),
        ([-1.7e308, 1.7e308], [0.0, 1.0]),
        ([0.0, 5e-324], [1.0, 1.0]),  # too near to each other to be told apart
    ],
)
def test_values_are_scaled(values, expected):
    assert normalise(values) == expected


def test_weights_need_no_sum():
    assert weigh({"a": 1.0, "b": 0.5}, {"a": 0.75, "b": 0.25}) == 0.875
    assert weigh({"a": 1.0, "b": 0.5}, {"a": 0.3, "b": 0.1}) == pytest.approx(0.875)
    assert weigh({"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 0.0}) == 0.5


def test_later_entries_may_fit():
    assert fit_budget([5, 9, 3, 1], 8) == [0, 2]
    assert fit_budget([9], 8) == []


def test_sources_are_named():
    names = {
        Origin(): "facts",
        Origin("a.md"): "facts: a.md",
        Origin("a.md", 0): "facts: a.md, turn 0",
        Origin(author="Ada"): "facts: by Ada",
        Origin("a.md", 3, "Ada"): "facts: a.md, turn 3, by Ada",
    }
    assert {origin: name_source("facts", origin) for origin in names} == names


# Times and versions


async def test_versions_ignore_the_time():
    """A version is read as of its last change: the same call gives the same for ever."""
    later = time() + 20 * DAY
    store = await filled(new("tea now"), new("tea later", valid_from=later - DAY))
    at_time = await recall_memories(store, embed, settings(), "tea", now=later)
    assert set(texts(at_time)) == {"tea now", "tea later"}
    pinned = {"default/facts": 1}
    at_version = await recall_memories(store, embed, settings(), "tea", now=later, versions=pinned)
    assert texts(at_version) == ["tea now"]


async def test_recency_counts_the_last_use():
    now = time()
    store = await filled(
        new("tea one", created=now - 9 * DAY), new("tea two", created=now - 5 * DAY)
    )
    await store.use([store.memories[0].id], now - DAY)
    recent = settings(relevance=0, recency=1)
    assert texts(await recall_memories(store, embed, recent, "tea", now=now)) == [
        "tea one",
        "tea two",
    ]
    before = await recall_memories(store, embed, recent, "tea", now=now - 2 * DAY)
    assert texts(before) == ["tea two", "tea one"]  # that use is still to come
    frozen = await recall_memories(store, embed, recent, "tea", versions={"default/facts": 1})
    assert texts(frozen) == ["tea two", "tea one"]  # uses have no versions
    assert [memory.created for memory in frozen.memories] == [now - 5 * DAY, now - 9 * DAY]


async def test_recency_is_as_of_now():
    """Without a time it is that of the call, for which what lies ahead counts as new."""
    now = time()
    store = await filled(
        *(new(f"tea {n}", created=now + hours * 3600) for n, hours in enumerate((-200, -100, 50)))
    )
    recent = settings(relevance=0, recency=1)
    recencies = [
        {memory.text: round(memory.parts["recency"], 2) for memory in recalled.memories}
        for recalled in (
            await recall_memories(store, embed, recent, "tea"),
            await recall_memories(store, embed, recent, "tea", now=now + 50 * 3600),
        )
    ]
    assert recencies[0] == {"tea 2": 1.0, "tea 1": 0.38, "tea 0": 0.0}
    assert recencies[1] == {"tea 2": 1.0, "tea 1": 0.26, "tea 0": 0.0}


# Ranks


async def test_no_embedder_means_keywords():
    store = await filled(new("depot closes"), new("depot fee river"), new("tea"))
    recalled = await recall_memories(store, None, settings(), "fee river depot")
    assert texts(recalled) == ["depot fee river", "depot closes"]
    assert [memory.similarity for memory in recalled.memories] == [None, None]
    assert [memory.score for memory in recalled.memories] == [1.0, 0.0]


async def test_relevance_sums_the_queries():
    """A memory counts by its similarity to every query, and shows the nearest one's."""
    store = await filled(new("depot"), new("river"), new("depot river"))
    cue = Cue("", (), "depot", ("river",))
    recalled = await recall_memories(store, embed, settings(), cue)
    assert texts(recalled)[0] == "depot river"
    similarity = {memory.text: memory.similarity for memory in recalled.memories}
    assert similarity["depot"] == pytest.approx(1.0, abs=0.01)
    assert similarity["river"] == pytest.approx(1.0, abs=0.01)
    assert similarity["depot river"] == pytest.approx(0.71, abs=0.02)


async def test_equal_texts_keep_the_trusted():
    store = await filled(
        new("The depot.", importance=0.9, origin=Origin(trust=0.4)),
        new("the depot.", importance=0.2, origin=Origin(trust=0.8)),
        new("THE depot.", importance=0.1, origin=Origin(trust=0.8)),
    )
    (memory,) = (await recall_memories(store, embed, settings(), "depot")).memories
    assert (memory.text, memory.trust) == ("the depot.", 0.8)


async def test_equal_texts_keep_the_newest():
    now = time()
    store = await filled(
        new("The depot.", created=now - DAY),
        new("the depot.", created=now),
        new("THE depot.", created=now - 2 * DAY),
    )
    assert texts(await recall_memories(store, embed, settings(), "depot")) == ["the depot."]


async def test_embedders_are_scaled_apart():
    """Similarities of two embedders lie in different ranges."""
    store = await filled(new("depot closes"), new("depot fee tea"))
    store.create("other", len(WORDS) + 1, embedder="test/other")
    await store.apply("other", [new("depot river"), new("colour train harbour")])
    both = settings(collections=("facts", "other"))
    recalled = await recall_memories(store, embed, both, "depot closes")
    best = {memory.text for memory in recalled.memories if memory.score == 1.0}
    assert best == {"depot closes", "depot river"}


# Budgets


async def test_exact_budgets_cut_nothing():
    store = await filled(new("tea " + "x" * 36), new("fee " + "y" * 36))
    exact = await recall_memories(store, embed, settings(budget=20), "tea")
    assert (len(exact.memories), exact.over_budget, exact.tokens) == (2, 0, 20)
    less = await recall_memories(store, embed, settings(budget=19), "tea")
    assert (len(less.memories), less.over_budget, less.tokens) == (1, 1, 10)


@pytest.mark.parametrize(
    ("budget", "whole", "room"), [(64, 3, 34), (24, 0, 24), (26, 1, 16), (25, 0, 25)]
)
async def test_summaries_have_their_room(budget, whole, room):
    """Whole memories take half of the budget at most, and leave 16 tokens at least."""
    store = await filled(*(new(f"tea {n} " + "x" * 34, importance=n / 10) for n in range(9)))
    requests = []

    async def summarize(texts, tokens):
        requests.append((len(texts), tokens))
        return " a summary "

    only = settings(relevance=0, importance=1, budget=budget, summarize=True)
    recalled = await recall_memories(store, embed, only, "tea", summarize=summarize)
    assert requests == [(9 - whole, room)]
    assert len(recalled.memories) == whole + 1
    assert recalled.memories[-1].text == "a summary"
    assert (recalled.summarised, recalled.over_budget) == (9 - whole, 0)


async def test_empty_summaries_are_left_out():
    async def summarize(texts, tokens):
        return " "

    store = await filled(*(new(f"tea {n} " + "x" * 34) for n in range(9)))
    only = settings(budget=40, summarize=True)
    recalled = await recall_memories(store, embed, only, "tea", summarize=summarize)
    assert (recalled.summarised, recalled.over_budget, len(recalled.memories)) == (0, 7, 2)


async def test_summaries_inherit_the_least_trust():
    async def summarize(texts, tokens):
        return "a summary"

    trusts = (0.9, 0.3, 0.7)
    store = await filled(*(new(f"tea {t} " + "x" * 99, origin=Origin(trust=t)) for t in trusts))
    only = settings(budget=16, summarize=True)
    (summary,) = (await recall_memories(store, embed, only, "tea", summarize=summarize)).memories
    assert summary.trust == 0.3


async def test_summaries_need_an_order():
    """A model that could summarise is not asked if the settings ask for no summary."""

    async def summarize(texts, tokens):
        raise AssertionError

    store = await filled(*(new(f"tea {n} " + "x" * 34) for n in range(9)))
    recalled = await recall_memories(store, embed, settings(budget=40), "tea", summarize=summarize)
    assert (len(recalled.memories), recalled.over_budget) == (4, 5)


async def test_no_sources_no_memories():
    recalled = await recall_from([], embed, settings(), " ")
    assert recalled == Recalled((), 0, 0, 0, 0, 0)
