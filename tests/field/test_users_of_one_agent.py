"""Several people talk with one agent: what Ann tells it stands in no prompt for Bob.

A memory of a chat with a user belongs to the user. Only an agent whose `memory.scope` is `agent`
recalls it elsewhere; what an operator stored is common. Older stores take the user of the chat.
"""

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from textevolve.agents.resources import AgentSpec, CollectionSpec, UserSpec
from textevolve.errors import NotFoundError
from textevolve.memory.cue import Cue
from textevolve.memory.recall import recall_memories
from textevolve.memory.recall_settings import RecallSettings
from textevolve.memory.record import Add, Forget, MemoryQuery, NewMemory, Origin
from textevolve.store import kinds
from textevolve.store.repository import Store
from textevolve.store.sqlite import sqlite3
from textevolve.studies.memories.base import read_newest

VECTOR = np.ones(8, dtype=np.float32) / 8**0.5
KNEE, DOG, HOURS = ("Ann hurt her knee.", "Bob has a dog.", "The clinic opens at nine.")


@pytest.fixture
def store(tmp_path):
    with closing(Store(tmp_path / "store.db")) as opened:
        opened.write(kinds.ensure_namespace, "home")
        for name in ("notes", "more"):
            spec = CollectionSpec(name=name, embedder="t/e", dimension=len(VECTOR))
            opened.write(kinds.create, kinds.COLLECTIONS, "home", spec)
        agent = AgentSpec(name="bot", persona="You help.", memories="notes")
        opened.write(kinds.create, kinds.AGENTS, "home", agent)
        for name in ("ann", "bob"):
            opened.write(kinds.create, kinds.USERS, "home", UserSpec(name=name))
        yield opened


async def add(store, text, collection="notes", **fields):
    memory = NewMemory(text=text, embedding=VECTOR, **fields)
    return (await store.memories("home").apply(collection, [Add(memory)])).ids[0]


async def fill(store):
    await add(store, KNEE, user="ann")
    await add(store, DOG, user="bob")
    await add(store, HOURS)


async def embed(_collection, _text):
    return VECTOR


@pytest.mark.parametrize(
    ("user", "scope", "texts"),
    [
        ("ann", "user", {KNEE, HOURS}),
        ("bob", "user", {DOG, HOURS}),
        ("eve", "user", {HOURS}),
        ("", "user", {HOURS}),
        ("bob", "agent", {KNEE, DOG, HOURS}),
        ("", "agent", {KNEE, DOG, HOURS}),
    ],
)
async def test_recall_keeps_users_apart(store, user, scope, texts):
    await fill(store)
    settings = RecallSettings(collections=("notes",), scope=scope)
    cue = Cue("home/bot", ("notes",), "Who hurt what at the clinic?", user=user)
    for embedder in (embed, None):
        recalled = await recall_memories(store.memories("home"), embedder, settings, cue)
        assert {memory.text for memory in recalled.memories} <= texts
        assert embedder is None or len(recalled.memories) == len(texts)


async def test_few_own_among_many(store):
    """The nearest memories are others', so the search goes on until it has the user's own."""
    await add(store, "Bob swims.", user="bob")
    for number in range(150):
        await add(store, f"Ann's note {number}.", user="ann")
    query = MemoryQuery(collection="notes", embedding=VECTOR, limit=5, user="bob")
    matches = await store.memories("home").search(query)
    assert [match.memory.text for match in matches] == ["Bob swims."]


@pytest.mark.parametrize(("scope", "read", "private"), [("user", 1, 2), ("agent", 3, 0)])
async def test_left_out_memories_are_counted(store, scope, read, private):
    await fill(store)
    bench = SimpleNamespace(resources=store, settings=SimpleNamespace(namespace="home"))
    version = (await store.memories("home").collection("notes")).version
    newest = await read_newest(bench, {"home/notes": version}, 10, 0.0, scope)
    assert (newest.number, newest.private) == (read, private)
    assert ("2 memories of single users" in newest.describe_private(private)) == (private == 2)


async def test_deleted_users_leave_nothing(store):
    await fill(store)
    forgotten = await add(store, "Ann moved.", "more", user="ann")
    await store.memories("home").apply("more", [Forget(forgotten)])
    texts = store.read(kinds.list_memory_texts, kinds.USERS, "home", "ann")
    assert sorted(texts) == ["Ann hurt her knee.", "Ann moved."]

    agent = store.read(kinds.get, kinds.AGENTS, "home", "bot")
    chats = {user: store.sessions("home").create(agent.id, user) for user in ("ann", "bob")}
    store.write(kinds.delete, kinds.USERS, "home", "ann")
    assert [chat.id for chat in store.sessions("home").list()] == [chats["bob"]]
    assert await store.memories("home").of_user("ann") == []
    memories = await store.memories("home").page("notes", closed=True)
    assert [memory.text for memory in memories] == ["", DOG, HOURS]


async def test_short_ids_are_enough(store):
    id = await add(store, KNEE)
    memories = store.memories("home")
    assert [memory.text for memory in await memories.get([id[:10]])] == [KNEE]
    with pytest.raises(NotFoundError):
        await memories.get([id[:4]])


async def test_older_memories_take_users(tmp_path, store):
    agent = store.read(kinds.get, kinds.AGENTS, "home", "bot")
    chats = {user: store.sessions("home").create(agent.id, user) for user in ("ann", "")}
    of_ann = await add(store, KNEE, origin=Origin(f"chat {chats['ann']}", 1, "User"))
    of_nobody = await add(store, "Somebody sails.", origin=Origin(f"chat {chats['']}"))
    imported = await add(store, HOURS, origin=Origin("handbook.md"))
    await add(store, "People get hurt.", "more", kind="insight", cites=(of_ann, imported))
    await add(store, "People sail.", "more", kind="insight", cites=(of_nobody,))
    store.close()

    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("ALTER TABLE memories DROP COLUMN user")
        raw.execute("DROP INDEX records_in_order")
        raw.execute("ALTER TABLE records DROP COLUMN cluster")
        raw.execute("CREATE INDEX records_in_order ON records (run_id, position)")
        raw.execute("UPDATE alembic_version SET version_num = '0009'")
        raw.commit()

    with closing(Store(path)) as opened:
        memories = opened.memories("home")
        notes = [*await memories.page("notes"), *await memories.page("more")]
        assert [memory.user for memory in notes] == ["ann", "", "", "ann", ""]


def test_users_on_command_lines(cli, tmp_path):
    """What is added, exported and imported for a user stays the user's, and goes by the name."""
    for command in (
        ("memories", "collections", "create", "c", "--embedder", "http://x/v1#e"),
        ("memories", "collections", "create", "d", "--embedder", "http://x/v1#e"),
    ):
        assert cli(*command, "--dimension", "3").code == 0
    refusal = cli("memories", "forget", "--user", "ann", "--yes")
    assert refusal.code == 2
    assert "the user 'ann' has no memories" in refusal.err
    conflict = cli("memories", "add", "acme/c", "Ann sails.", "--namespace", "beta")
    assert conflict.code == 2
    assert "--namespace says beta" in conflict.err
    assert "name memories by their ids" in cli("memories", "forget").err
