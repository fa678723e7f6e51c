"""The graph database associates as the recursive query does."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textevolve.memory.record import Add, Entity, Forget, MemoryQuery, NewMemory, Origin, Supersede

pytest.importorskip("ladybug")

from textevolve.store.graph_ladybug import LadybugGraph, LadybugMemories
from textevolve.store.repository import Store

NAMES = ("Ann", "Bob", "Cid", "Dee", "Eve", "Fay")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "supersede", "forget", "erase"]),
        st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
        st.integers(0, 30),
        st.sampled_from([0.2, 1.0]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def graph(tmp_path):
    ladybug_graph = LadybugGraph(tmp_path / "graph")
    yield ladybug_graph
    ladybug_graph.close()


def new(text, entities, trust=1.0):
    return NewMemory(
        text=text,
        embedding=np.array([1, 0, 0, 0], dtype=np.float32),
        entities=tuple(entities),
        origin=Origin(trust=trust),
    )


@pytest.mark.slow
async def test_the_graph_finds_what_the_recursive_query_finds(tmp_path, place_at, graph):
    place = place_at(str(tmp_path / "memories.db"))
    tried = []

    @settings(max_examples=10)
    @given(STEPS, st.integers(0, 3), st.integers(1, 5), st.sampled_from([0.0, 0.5]))
    def same(steps, hops, limit, trust):
        tried.append(None)
        asyncio.run(compare(f"c{len(tried)}", steps, hops, limit, trust))

    async def compare(name, steps, hops, limit, trust):
        place.create("home", name)
        plain = place.open("home")
        ladybug_memories = LadybugMemories(lambda: place.resources.database, "home", lambda: graph)
        ids, version = [], 0
        for number, (kind, entities, chosen, believed) in enumerate(steps):
            held = [one.id for one in await plain.page(name)]
            one = held[chosen % len(held)] if held else None
            if kind == "add" or one is None:
                change = Add(new(f"{number}", entities, believed))
            elif kind == "supersede":
                change = Supersede((one,), new(f"{number}", entities, believed))
            else:
                change = Forget(one, kind == "erase")
            applied = await plain.apply(name, [change])
            ids, version = ids + list(applied.ids), applied.version
        for held in (None, version // 2, version):
            query = MemoryQuery(collection=name, version=held, limit=limit, least_trust=trust)
            for start in ids[:4]:
                expected = await plain.associate(query, [start], hops)
                assert await ladybug_memories.associate(query, [start], hops) == expected

    await asyncio.to_thread(same)


async def test_a_store_with_a_folder_associates_by_the_graph(tmp_path, place):
    place.create("home", "chats")
    with Store(place.resources.location, graph_folder=tmp_path / "graph") as opened:
        store = opened.memories("home")
        ids = (await store.apply("chats", [Add(new("a", ["Ann"])), Add(new("b", ["ann"]))])).ids
        query = MemoryQuery(collection="chats", text="a")
        assert [one.memory.text for one in await store.search(query)] == ["a"]
        assert [one.text for one in await store.associate(query, ids[:1])] == ["b"]
        ids += (await store.apply("chats", [Add(new("c", ["Ann", "Bob"]))])).ids
        assert [one.text for one in await store.associate(query, ids[:1])] == ["b", "c"]
        assert await store.graph("chats") == [
            Entity("Ann", ids, {"Bob": 1}),
            Entity("Bob", ids[2:], {"Ann": 1}),
        ]
        assert (tmp_path / "graph" / "graph.lbug").exists()
