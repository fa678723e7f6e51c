"""What every store of memories does, one operation at a time."""

import math
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from textevolve.errors import ConflictError, InputError
from textevolve.memory.record import (
    Add,
    ChangeSource,
    Collection,
    Forget,
    MemoryQuery,
    NewMemory,
    Origin,
    Relation,
    Supersede,
    TokenVectors,
)
from textevolve.store import tables
from textevolve.store.kinds import COLLECTIONS, delete
from textevolve.store.memory_changes import check_changes
from textevolve.store.sqlite import sqlite3


def toward(*numbers):
    vector = np.zeros(4, dtype=np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.linalg.norm(vector)


def new(text, *numbers, **details):
    return NewMemory(text=text, embedding=toward(*(numbers or (1,))), **details)


@pytest.fixture
def store(place):
    place.create("home", "chats")
    place.create("home", "facts", 3, "semantic")
    place.create("away", "chats")
    return place.open("home")


async def texts(store, collection="chats", **query):
    hits = await store.search(MemoryQuery(collection=collection, **query))
    return {match.memory.text for match in hits}


async def test_a_memory_is_found_with_all_that_was_kept(store):
    new_memory = new(
        "Ann moved to Oslo.",
        1,
        1,
        importance=0.7,
        origin=Origin("chat", 3, "Ann", 0.9),
        created=1e9,
        valid_from=1e9,
        valid_to=4e9,
        entities=("Oslo", "Ann"),
        relations=(Relation("Ann", "lives in", "Oslo"), Relation("Oslo", "is in", "Norway")),
        reason="It is new.",
    )
    applied = await store.apply("chats", [Add(new_memory)])
    (stored,) = await store.get(applied.ids)
    assert stored.id.startswith("me_")
    assert (stored.collection, stored.kind, stored.added, stored.closed) == (
        "chats",
        "episodic",
        1,
        None,
    )
    same = ("text", "importance", "origin", "created", "valid_from", "valid_to", "entities")
    for name in (*same, "relations", "reason"):
        assert getattr(stored, name) == getattr(new_memory, name), name
    (cited,) = (
        await store.apply(
            "facts", [Add(replace(new_memory, embedding=toward(1)[:3], cites=applied.ids))]
        )
    ).ids
    assert (await store.get([cited]))[0].cites == applied.ids
    assert (await store.collection("chats")).version == 1


async def test_tokens_come_with_matches(store):
    tokens = TokenVectors("late", np.arange(12, dtype=np.uint8).reshape(3, 4))
    await store.apply("chats", [Add(new("a red lorry", tokens=tokens)), Add(new("a lorry"))])
    query = MemoryQuery(collection="chats", text="lorry", token_model="late")
    found = {match.memory.text: match.tokens for match in await store.search(query)}
    assert np.array_equal(found["a red lorry"], tokens.packed)
    assert found["a lorry"] is None
    for model in ("", "another"):
        matches = await store.search(replace(query, token_model=model))
        assert [match.tokens for match in matches] == [None, None]


@pytest.mark.parametrize("said", ['"', "NEAR(cat", "words : cat", "-cat", "cat\0", "'; --"])
async def test_a_question_is_never_a_query_language(store, said):
    await store.apply("chats", [Add(new("the cat")), Add(new("nothing"))])
    assert await texts(store, text=said) in ({"the cat"}, set())


async def test_what_takes_anothers_place_is_found_and_the_other_as_of_then(store):
    first = await store.apply("chats", [Add(new("lives in Oslo", valid_from=1e9))])
    second = await store.apply(
        "chats", [Supersede(first.ids, new("lives in Rome", valid_from=1.5e9))]
    )
    assert await texts(store, text="lives") == {"lives in Rome"}
    assert await texts(store, text="lives", version=1) == {"lives in Oslo"}
    assert await texts(store, text="lives", time=1.2e9) == {"lives in Oslo"}
    assert await texts(store, text="lives", time=1.6e9) == {"lives in Rome"}
    assert await texts(store, text="lives", time=0.9e9) == set()
    (old,) = await store.get(first.ids)
    assert (old.superseded_by, old.superseded_at, old.closed) == (second.ids[0], 1.5e9, 2)
    assert [one.text for one in await store.history(second.ids[0])] == [
        "lives in Oslo",
        "lives in Rome",
    ]
    (then,) = await store.page("chats", version=1)
    assert (then.superseded_by, then.superseded_at, then.closed) == (None, None, None)


async def test_an_undated_memory_in_anothers_place_holds_from_when_it_was_said(store):
    first = await store.apply("chats", [Add(new("lives in Oslo", valid_from=1e9))])
    later = (new("lives in Rome", created=1.5e9), new("lives in Bonn"))
    second = await store.apply("chats", [Supersede(first.ids, later[0])])
    third = await store.apply("chats", [Supersede(second.ids, later[1])])
    assert await texts(store, text="lives", time=1.2e9) == {"lives in Oslo"}
    assert await texts(store, text="lives", time=1.6e9) == {"lives in Rome"}
    assert await texts(store, text="lives", time=0.9e9) == set()
    (rome, bonn) = await store.get([*second.ids, *third.ids])
    assert (rome.valid_from, rome.superseded_at) == (1.5e9, bonn.valid_from)


async def test_what_is_erased_is_gone_from_all_versions(store, place):
    secret = new(
        "the password is xyzzy",
        entities=("xyzzy",),
        reason="xyzzy",
        relations=(Relation("a", "b", "xyzzy"),),
    )
    (id,) = (await store.apply("chats", [Add(secret), Add(new("other"))])).ids[:1]
    await store.use([id], 1e9)
    (later,) = (await store.apply("chats", [Supersede((id,), new("no password"))])).ids
    await store.apply("chats", [Forget(id, erase=True)])
    assert await texts(store, text="password", version=1) == set()
    assert await texts(store, embedding=toward(1), version=1) == {"other"}
    assert [one.text for one in await store.history(later)] == ["", "no password"]
    assert [one.text for one in await store.page("chats", version=1)] == ["other"]
    place.resources.close()
    if place.location.endswith(".db"):  # a file, of which no page has the word
        with closing(sqlite3.connect(place.location)) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert raw.execute("SELECT count(*) FROM uses").fetchone() == (0,)
        with open(place.location, "rb") as file:  # noqa: ASYNC230
            assert b"xyzzy" not in file.read()


async def test_a_source_is_taken_in_once(store):
    source = ChangeSource("key", "a chat")
    first = await store.apply("chats", [Add(new("a"))], source)
    again = await store.apply("chats", [Add(new("a"))], source)
    assert again == replace(first, repeated=True)
    assert await store.applied("chats", "key") == first
    assert await store.applied("facts", "key") is None
    assert await store.apply("chats", [], ChangeSource("none")) == replace(first, ids=(), base=1)


async def test_what_was_closed_meanwhile_is_a_conflict_and_nothing_is_kept(store):
    (id,) = (await store.apply("chats", [Add(new("a"))])).ids
    await store.apply("chats", [Supersede((id,), new("b"))])
    for change in (Forget(id), Supersede((id,), new("c"))):
        with pytest.raises(ConflictError, match="is superseded or forgotten by now"):
            await store.apply("chats", [Add(new("d")), change], ChangeSource("k"))
    assert [one.text for one in await store.page("chats")] == ["b"]
    assert await store.applied("chats", "k") is None


BAD = {
    "blank": (new("  "), "blank"),
    "long": (new("x" * 100_001), "100,001 characters"),
    "NUL": (new("a\0b"), "NUL"),
    "surrogate": (new("a", reason="\ud800"), "surrogate"),
    "importance": (new("a", importance=1.1), "importance"),
    "trust": (new("a", origin=Origin(trust=-0.1)), "trust"),
    "NaN": (NewMemory(text="a", embedding=np.full(4, np.nan, np.float32)), "length"),
    "dimension": (NewMemory(text="a", embedding=np.ones(3, np.float32)), "the collection's have 4"),
    "future": (new("a", created=1e11), "future"),
    "validity": (new("a", valid_from=2.0, valid_to=1.0), "before"),
    "time": (new("a", valid_from=math.inf), "not a time"),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_cannot_be_kept_is_refused_in_one_line(fault):
    memory, reason = BAD[fault]
    chats = Collection("co_1", "home", "chats", "episodic", "test/embedder", 4)
    with pytest.raises(InputError, match=reason) as refused:
        check_changes(chats, [Add(new("good")), Add(memory)])
    assert "\n" not in str(refused.value)


async def test_nothing_is_kept_beside_what_cannot_be(store):
    for memory in (new("  "), new("a", cites=("me_x",))):
        with pytest.raises(InputError, match=r"blank|no memory 'me_x' to cite"):
            await store.apply("chats", [Add(new("good")), Add(memory)])
    assert await store.page("chats", closed=True) == []


async def test_what_is_anothers_is_not_found(store, place):
    away = place.open("away")
    (id,) = (await away.apply("chats", [Add(new("theirs", entities=("Ann",)))])).ids
    (fact,) = (await store.apply("facts", [Add(NewMemory(text="f", embedding=toward(1)[:3]))])).ids
    for refused in (store.get([id]), store.history(id), store.use([id], 1.0)):
        with pytest.raises(InputError, match="no memory"):
            await refused
    for change in (Forget(id), Supersede((fact,), new("x")), Add(new("y", cites=(id,)))):
        with pytest.raises(InputError, match="no memory"):
            await store.apply("chats", [change])
    for name in ("nothing", "away/chats"):
        with pytest.raises(InputError, match="no collection"):
            await store.collection(name)
    with pytest.raises(InputError, match="no namespace"):
        await place.open("nowhere").collection("chats")
    await store.apply("chats", [Add(new("ours", entities=("Ann",)))])
    query = MemoryQuery(collection="chats", text="theirs ours", embedding=toward(1))
    assert {m.memory.text for m in await store.search(query)} == {"ours"}
    assert await store.associate(query, [id]) == []


async def test_memories_that_share_entities_are_associated(store):
    ids = (
        await store.apply(
            "chats",
            [
                Add(new("a", entities=("Ann",))),
                Add(new("b", entities=("ann ", "Bob"))),
                Add(new("c", relations=(Relation("Bob", "knows", "Cid"),))),
                Add(new("d", entities=("cid",))),
                Add(new("e", entities=("Eve",))),
            ],
        )
    ).ids
    query = MemoryQuery(collection="chats")
    near = await store.associate(query, ids[:1])
    assert [one.text for one in near] == ["b", "c"]
    assert [one.text for one in await store.associate(query, ids[:1], hops=3)] == ["b", "c", "d"]
    await store.apply("chats", [Forget(ids[1])])
    assert await store.associate(query, ids[:1], hops=3) == []
    then = replace(query, version=1)
    assert [one.text for one in await store.associate(then, ids[:1], 1)] == ["b"]


async def test_a_collection_is_deleted_with_all_of_it(place):
    place.create("home", "chats")
    place.create("home", "other")
    store = place.open("home")
    for name in ("chats", "other"):
        (stored,) = (await store.apply(name, [Add(new("the cat", entities=("Ann",)))])).ids
        await store.use([stored], 1.0)
    place.resources.write(delete, COLLECTIONS, "home", "chats")
    with pytest.raises(InputError, match="no collection"):
        await store.page("chats")
    own = (tables.memories, tables.embeddings, tables.mentions, tables.uses, tables.versions)
    for table in own:
        rows = place.resources.database.read(lambda c, table=table: c.execute(table.select()).all())
        assert len(rows) == 1, table.name
    place.create("home", "chats")
    assert await texts(store, text="cat", embedding=toward(1)) == set()
    assert await texts(store, "other", text="cat", embedding=toward(1)) == {"the cat"}


async def test_a_collection_moves_to_another_embedder_as_a_whole(store):
    ids = (await store.apply("chats", [Add(new("a")), Add(new("b"))])).ids
    await store.apply("chats", [Forget(ids[0])])
    vectors = {ids[0]: toward(1)[:2], ids[1]: toward(0, 1)[:2]}
    with pytest.raises(ConflictError, match="version 2 now, not 1"):
        await store.replace_embeddings("chats", 1, "new/model", 2, vectors)
    with pytest.raises(InputError, match="no vector for"):
        await store.replace_embeddings("chats", 2, "new/model", 2, {ids[0]: toward(1)[:2]})
    assert await texts(store, embedding=toward(1)) == {"b"}
    await store.replace_embeddings("chats", 2, "new/model", 2, vectors)
    moved = await store.collection("chats")
    assert (moved.embedder, moved.dimension, moved.version) == ("new/model", 2, 2)
    assert await texts(store, embedding=toward(1)[:2], version=1) == {"a", "b"}
    assert await texts(store, text="b") == {"b"}
    with pytest.raises(InputError, match="the collection's have 2"):
        await texts(store, embedding=toward(1))
