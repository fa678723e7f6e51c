"""A namespace in Python: awaited, waited for, in a notebook, and carried to another store."""

import json

import pytest

from flat_verbs import create_memories
from memory.memory_script import remember
from textevolve import AsyncClient, Client, InputError, MemorySpec, Settings

pytestmark = pytest.mark.guard


@pytest.fixture
def settings(home, model):
    return Settings(store=home / "store.db", embedder=model)


def test_a_namespace_from_plain_code(settings):
    with pytest.raises(InputError, match="no namespace 'acme'"), Client().namespace("acme"):
        pass
    with Client(settings=settings).namespace("acme", create=True) as space:
        response = space.collections.create("notes", kind="semantic")
        assert (response.kind, response.dimension, response.namespace) == ("semantic", 32, "acme")
        notes = space.memories("notes")
        tea = notes.add("Ann drinks green tea.", importance=0.9, valid_from="2025-01-01")
        assert notes.get(tea.id)[0] == tea == space.find_memories(tea.id)[0]
        many = [MemorySpec(text=f"Fact {n}.") for n in range(3)]
        assert notes.add_all(many).added == 3
        assert notes.add_all([*many, MemorySpec(text="New.")]).known == 3
        recalled = notes.search("Ann drinks green tea.", limit=2)
        assert recalled.memories[0].text == "Ann drinks green tea."
        assert recalled.over_limit > 0
        assert [memory.text for memory in notes.list(limit=2, after=tea.id)] == [
            "Fact 0.",
            "Fact 1.",
        ]
        notes.forget(tea.id)
        assert notes.history(tea.id)[0].forgotten
        agent = space.agents.create("bot", persona="First.", memories="notes")
        assert space.agents.update("bot", persona="Second.").spec_version == 2
        assert space.agents.revert("bot", 1).spec.persona == "First."
        assert len(space.agents.versions("bot")) == 3
        assert space.agents.get("bot").id == agent.id
        eve = space.users.create("eve", description="A person.").spec
        assert (eve.name, eve.description) == ("eve", "A person.")
        assert [memory.spec.name for memory in space.namespaces.list()] == ["acme"]
        with pytest.raises(InputError, match="unknown field 'modle'; did you mean 'model'"):
            space.agents.update("bot", modle="x")
        with pytest.raises(InputError, match=r"no memory .* in the collection 'other'"):
            space.memories("other").get(tea.id)


def test_nothing_is_asked_where_nothing_is_embedded(settings, cli):
    with Client(settings=settings).namespace() as space:
        space.collections.create("notes", dimension=32)
        assert space.memories("notes").list() == []
        with pytest.raises(InputError, match="already"):
            space.collections.create("notes")
    assert cli("runs", "list", "--json").rows == []


async def test_every_awaited_method_is_waited_for(settings):
    async with AsyncClient(settings=settings).namespace() as awaited:
        with Client(settings=settings).namespace() as space:
            for name in ("", "agents", "collections", "users", "namespaces", "memories"):
                waits, awaits = space, awaited
                if name:
                    waits, awaits = getattr(space, name), getattr(awaited, name)
                if name == "memories":
                    waits, awaits = waits("notes"), awaits("notes")
                names = {n for n in dir(type(awaits)) if not n.startswith("_")} - {"stream"}
                assert names <= set(dir(waits)), name
                for method in names:
                    own, other = getattr(type(waits), method), getattr(type(awaits), method)
                    assert own.__doc__ == other.__doc__


def fill(space, settings, server):
    """A collection with a history: an update, a memory that was forgotten, one that was erased."""
    server.script = remember
    space.collections.create("notes")
    notes = space.memories("notes")
    old = notes.add("Ann lives in Rome.", entities=["Ann", "Rome"])
    records = [{"role": "user", "content": "FACT: Ann lives in Oslo."}]
    talk, trusted = [{"id": "a", "messages": records}], {"floor": -1, "trust_user": 1}
    create_memories(talk, "notes", model=settings.embedder, settings=settings, **trusted)
    gone, erased = notes.add("Bob sings."), notes.add("Cid has a secret.")
    notes.forget(gone.id)
    notes.forget(erased.id, erase=True)
    notes.add("Dora rests on the first.", cites=[old.id], relations=[("Dora", "has", "rest")])
    space.agents.create("bot", persona="First.", memories="notes")
    space.agents.update("bot", persona="Second.")
    return notes


def test_a_collection_goes_as_it_is_now(settings, home, server):
    with Client(settings=settings).namespace() as space:
        notes = fill(space, settings, server)
        space.collections.export("notes", "notes.jsonl")
        memories = notes.list()
        recalled = notes.search("Where does Ann live?")
        space.collections.import_file("notes.jsonl", name="copy")
        copy = space.memories("copy")
        again = {memory.text: memory for memory in copy.list(closed=True)}
        assert sorted(again) == sorted(memory.text for memory in memories)
        for memory in memories:
            other = again[memory.text]
            assert (other.created, other.entities, other.origin) == (
                *(memory.created, memory.entities, memory.origin),
            )
            assert other.id != memory.id
        same = copy.search("Where does Ann live?")
        assert [memory.text for memory in same.memories] == [
            memory.text for memory in recalled.memories
        ]
    with Client(settings=settings.model_copy(update={"store": home / "b.db"})).namespace() as space:
        space.collections.import_file("notes.jsonl")
        assert len(space.memories("notes").list(closed=True)) == len(memories)


def test_chats_go_with_their_agent(settings, query):
    with Client(settings=settings).namespace() as space:
        agent = space.agents.create("bot", persona="First.")
        (where,) = space.namespaces.list()
        fields = "(id, namespace_id, agent_id, user, title, created, updated)"
        chat = f"INSERT INTO sessions {fields} VALUES ('ch_1', ?, ?, 'eve', 'Tea', 1.0, 2.0)"
        message = "INSERT INTO messages VALUES ('ch_1', 0, 'user', 1.5, 'Hi', '{}')"
        query((chat, (where.id, agent.id)), (message, ()))
        space.agents.delete("bot")
        assert not query("SELECT session_id FROM messages")


def spoil(value):
    """The value with one thing in it gone, or of another kind: every such one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {n: v for n, v in value.items() if n != name}
            for spoilt in (*spoil(inner), [], {}, 7, "x", None):
                yield {**value, name: spoilt}
    elif isinstance(value, list):
        for place, inner in enumerate(value[:2]):
            for spoilt in (*spoil(inner), "x"):
                yield [*value[:place], spoilt, *value[place + 1 :]]


@pytest.mark.slow
def test_a_spoilt_file_is_taken_in_whole_or_refused(settings, home, server):
    with Client(settings=settings).namespace() as space:
        fill(space, settings, server)
        space.users.create("eve", description="A person.")
        space.namespaces.export("default", "all.jsonl")
    lines = [
        json.loads(single_line) for single_line in (home / "all.jsonl").read_text().splitlines()
    ]
    refused = count = 0
    with Client(settings=settings.model_copy(update={"namespace": "own"})).namespace() as space:
        for number, line in enumerate(lines):
            if number > 5 and "memory" in line:
                continue  # as those before it
            for spoilt in list(spoil(line))[::9]:
                text = [*lines[:number], spoilt, *lines[number + 1 :]]
                (home / "bad.jsonl").write_text("\n".join(map(json.dumps, text)))
                try:
                    space.namespaces.import_file("bad.jsonl", name="copy")
                except InputError:
                    refused += 1
                    continue
                count += 1
                for single_line in space.namespaces.list():
                    if single_line.spec.name == "copy":
                        space.namespaces.delete("copy")
    assert refused > 15
    assert count > 5


def files_hold(settings, word):
    return any(word in file.read_bytes() for file in settings.store.parent.glob("store.db*"))


def test_memories_and_collections_are_erased_from_the_journal_too(settings, query):
    with Client(settings=settings).namespace("acme", create=True) as space:
        space.collections.create("notes")
        notes = space.memories("notes")
        nuts = notes.add("Ann is allergic to walnuts.")
        notes.add("Ann drinks cinnamon tea.")
        notes.search("Ann is allergic to walnuts.")
        ((vector,),) = query("SELECT vector FROM embeddings ORDER BY seq LIMIT 1")
        assert files_hold(settings, b"walnuts")
        assert files_hold(settings, vector)
        notes.forget(nuts.id, erase=True)
        assert not files_hold(settings, b"walnuts")
        assert not files_hold(settings, vector)
        assert files_hold(settings, b"cinnamon")
        space.agents.create("bot", persona="A bot.", memories="notes")
        with pytest.raises(InputError, match="is used by") as refused:
            space.collections.delete("notes")
        assert type(refused.value).__name__ == "TakenError"
        assert files_hold(settings, b"cinnamon")
        space.collections.delete("notes", force=True)
        assert not files_hold(settings, b"cinnamon")
