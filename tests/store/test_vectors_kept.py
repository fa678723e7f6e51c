"""Vectors that a connection keeps in memory: what is found is what the file would have given."""

from contextlib import closing

import numpy as np
import pytest

from textevolve.agents.resources import CollectionSpec, NamespaceSpec
from textevolve.memory.index import MemoryQuery
from textevolve.memory.record import Add, Forget, NewMemory, Origin, Supersede
from textevolve.store import ResourceStore, kinds, memory_search_sqlite
from textevolve.store.memory_search_sqlite import KeptVectors

DIMENSION, NOW = 16, 1.7e9


@pytest.fixture
def resources(path):
    with closing(ResourceStore(str(path))) as opened:
        opened.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name="home"))
        for name in ("a", "b", "c"):
            spec = CollectionSpec(name=name, embedder="test/embedder", dimension=DIMENSION)
            opened.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        yield opened


def draw(number, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((number, DIMENSION)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


async def fill(store, name="a", number=60):
    adds = [
        Add(
            NewMemory(
                text=f"note {n}",
                embedding=vector,
                origin=Origin(trust=(0.2, 1.0)[n % 2]),
                created=NOW,
                valid_from=None if n % 5 else NOW - 100,
                valid_to=None if n % 7 else NOW + 100,
            )
        )
        for n, vector in enumerate(draw(number))
    ]
    # Every fourth is there twice, and the first very often: equally near ones keep their order.
    return (await store.apply(name, [*adds, *adds[::4], *adds[1:2] * 30])).ids


async def search(store, vector, name="a", **query):
    found = await store.search(MemoryQuery(collection=name, embedding=vector, **query))
    ranked = sorted(found, key=lambda one: one.dense_rank)
    return [(one.memory.id, one.memory.text, one.similarity) for one in ranked]


def kept_by(resources):
    """The collections whose vectors are in memory."""
    noted = resources.database.read(lambda connection: connection.info.get("kept", {}))
    return [one for one in noted.values() if isinstance(one, KeptVectors)]


async def test_whatever_is_asked_is_answered_as_from_the_file(resources):
    store = resources.memories("home")
    ids = await fill(store)
    await store.apply("a", [Supersede(ids[3:5], NewMemory(text="newer", embedding=draw(1, 9)[0]))])
    await store.apply("a", [Forget(ids[8], erase=False), Forget(ids[9], erase=True)])
    asked = [
        {"limit": limit, "version": version, "time": time, "least_trust": trust}
        for limit in (1, 7, 100)
        for version in (None, 0, 1, 2, 3)
        for time in (None, NOW - 200, NOW, NOW + 200, 4e9)
        for trust in (0.0, 0.5)
    ]
    vector = draw(60)[1]
    for query in asked:
        resources.database.read(lambda connection: connection.info.pop("kept", None))
        first = await search(store, vector, **query)
        again = await search(store, vector, **query)
        assert len(kept_by(resources)) == 1
        assert first == again


async def test_a_change_by_another_process_is_seen_at_once(resources, path):
    store, vector = resources.memories("home"), draw(1, 5)[0]
    await fill(store)
    for _ in range(3):
        await search(store, vector)
    with closing(ResourceStore(str(path))) as other:
        elsewhere = other.memories("home")
        await elsewhere.apply("a", [Add(NewMemory(text="the nearest", embedding=vector))])
        for _ in range(3):
            assert (await search(store, vector))[0][1:] == ("the nearest", pytest.approx(1))
        vectors = {
            one.id: draw(1, 7)[0] for one in await elsewhere.page("a", limit=500, closed=True)
        }
        await elsewhere.replace_embeddings("a", 2, "test/embedder", DIMENSION, vectors)
    for _ in range(3):
        assert (await search(store, draw(1, 7)[0]))[0][2] == pytest.approx(1)


async def test_nothing_is_loaded_where_memories_change_between_questions(resources):
    store, vector = resources.memories("home"), draw(1, 5)[0]
    for _ in range(4):
        await fill(store, number=4)
        assert await search(store, vector)
    assert kept_by(resources) == []


async def test_what_was_asked_longest_ago_makes_room(resources, monkeypatch):
    monkeypatch.setattr(memory_search_sqlite, "MOST_BYTES", 2 * 105 * DIMENSION * 4)
    store, vector = resources.memories("home"), draw(1, 5)[0]
    for name in ("a", "b", "c"):
        await fill(store, name)
    found = {name: await search(store, vector, name) for name in ("a", "b", "c")}
    for name in ("a", "b", "c", "a", "b", "c"):
        assert await search(store, vector, name) == found[name]
        assert len(kept_by(resources)) <= 2
    await fill(store, "a", 200)
    large = await search(store, vector, "a")
    assert await search(store, vector, "a") == await search(store, vector, "a") == large
    assert {len(one.seqs) for one in kept_by(resources)} == {105}
