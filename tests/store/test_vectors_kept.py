"""Vectors that a connection keeps in memory: searches give what the rows of the file give."""

from contextlib import closing

import numpy as np
import pytest

from textevolve.agents.resources import CollectionSpec, NamespaceSpec
from textevolve.memory.record import Add, MemoryQuery, NewMemory, Origin
from textevolve.store import kinds, memory_search_sqlite
from textevolve.store.repository import Store

DIMENSION, NOW = 16, 1.7e9


@pytest.fixture
def resources(path):
    with closing(Store(str(path))) as opened:
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
    hits = await store.search(MemoryQuery(collection=name, embedding=vector, **query))
    ranked = sorted(hits, key=lambda one: one.dense_rank)
    return [(one.memory.id, one.memory.text, one.similarity) for one in ranked]


async def test_a_change_by_another_process_is_seen_at_once(resources, path):
    store, vector = resources.memories("home"), draw(1, 5)[0]
    await fill(store)
    assert await search(store, vector)
    with closing(Store(str(path))) as other:
        elsewhere = other.memories("home")
        await elsewhere.apply("a", [Add(NewMemory(text="the nearest", embedding=vector))])
        assert (await search(store, vector))[0][1:] == ("the nearest", pytest.approx(1))
        vectors = {
            memory.id: draw(1, 7)[0] for memory in await elsewhere.page("a", limit=500, closed=True)
        }
        await elsewhere.replace_embeddings("a", 2, "test/embedder", DIMENSION, vectors)
    assert (await search(store, draw(1, 7)[0]))[0][2] == pytest.approx(1)


async def test_large_collections_are_read_in_pages(path, resources, monkeypatch):
    store = resources.memories("home")
    await fill(store, number=300)
    expected = await search(store, draw(1, 5)[0], limit=9)
    monkeypatch.setattr(memory_search_sqlite, "VECTORS_A_PAGE", 7)
    with closing(Store(str(path), vectors_mb=1)) as limited:
        reader = limited.database._reader
        reader.info["vector_bytes"] = 1000
        assert await search(limited.memories("home"), draw(1, 5)[0], limit=9) == expected
        assert "vectors" not in reader.info
        reader.info["vector_bytes"] = 2**20
        assert await search(limited.memories("home"), draw(1, 5)[0], limit=9) == expected
        await limited.memories("home").apply(
            "a", [Add(NewMemory(text="the nearest", embedding=draw(1, 5)[0]))]
        )
        assert (await search(limited.memories("home"), draw(1, 5)[0]))[0][1] == "the nearest"
        assert len(reader.info["vectors"]) == 1
