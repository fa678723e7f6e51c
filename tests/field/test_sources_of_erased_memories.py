"""People erase a memory and find its sentence in the chat that it was made from.

After an erasure the command, Python and HTTP say where the source stands or erase it, too; then no
file of the store has the words.
"""

import asyncio
import time

import numpy as np
import pytest

from server import conftest as server_fixtures
from textevolve import Client
from textevolve.agents.chat import MessageDetails, SessionMessage
from textevolve.agents.resources import AgentSpec, CollectionSpec
from textevolve.errors import InputError
from textevolve.memory.record import Add, NewMemory, Origin
from textevolve.store import kinds
from textevolve.store.repository import Store

ask = server_fixtures.ask
serve = server_fixtures.serve

VECTOR = np.ones(8, dtype=np.float32) / 8**0.5
SAID = "By the way, I secretly collect zeppelins in my cellar."
FACT = "The user collects zeppelins."


@pytest.fixture
def chat(home):
    """A chat in which the second exchange became a memory, and the first was not read."""
    store = Store(home / "store.db")
    store.ensure_namespace("default")
    spec = CollectionSpec(name="notes", embedder="t/e", dimension=len(VECTOR))
    store.write(kinds.create, kinds.COLLECTIONS, "default", spec)
    agent = AgentSpec(name="bot", persona="You help.", memories="notes")
    store.write(kinds.create, kinds.AGENTS, "default", agent)
    sessions = store.sessions("default")
    agent_id = store.read(kinds.get, kinds.AGENTS, "default", "bot").id
    id = sessions.create(agent_id, title="Hello")
    for number, (text, learning) in enumerate(
        [("Hello", "no"), ("Hi!", "failed"), (SAID, "no"), ("How nice.", "done")], 1
    ):
        role = "user" if number % 2 else "assistant"
        details = MessageDetails(learning=learning)
        message = SessionMessage(
            position=number, role=role, text=text, created=time.time(), details=details
        )
        sessions.append(id, message)
    memory = NewMemory(text=FACT, embedding=VECTOR, origin=Origin(f"chat {id}", 1, "User"))
    asyncio.run(store.memories("default").apply("notes", [Add(memory)]))
    store.close()
    return id


def texts_of(home, id):
    store = Store(home / "store.db")
    texts = [message.text for message in store.sessions("default").messages(id)]
    store.close()
    return texts


def words_in_files(home):
    return any(b"zeppelin" in path.read_bytes().lower() for path in home.glob("store.db*"))


def memory_id(cli):
    return cli("memories", "list", "notes", "--json").rows[0]["id"]


@pytest.mark.slow
def test_commands_name_the_source(cli, home, chat):
    forgotten = cli("memories", "forget", memory_id(cli), "--erase", "--yes")
    command = f"textevolve agents sessions delete {chat} --message 3"
    assert command in forgotten.err
    assert texts_of(home, chat)[2] == SAID
    erased = cli(*command.split()[1:], "--yes")
    assert erased.out == f"erased message 3 of session {chat}\n"
    assert texts_of(home, chat) == ["Hello", "Hi!", "[erased]", "How nice."]
    assert not words_in_files(home)
    missing = cli("agents", "sessions", "delete", chat, "--message", "9", "--yes")
    assert (missing.code, "has no message 9" in missing.err) == (2, True)


@pytest.mark.slow
def test_commands_erase_the_source(cli, home, chat):
    refused = cli("memories", "forget", memory_id(cli), "--with-source")
    assert (refused.code, "needs --erase" in refused.err) == (2, True)
    done = cli("memories", "forget", memory_id(cli), "--erase", "--with-source", "--yes")
    assert "agents sessions" not in done.err
    assert texts_of(home, chat) == ["Hello", "Hi!", "[erased]", "How nice."]
    assert not words_in_files(home)


def test_python_erases_the_source(home, chat):
    with Client().namespace("default") as space:
        notes = space.memories("notes")
        (memory,) = notes.list()
        with pytest.raises(InputError, match="use erase"):
            notes.forget(memory.id, with_source=True)
        assert notes.forget(memory.id, erase=True, with_source=True) == []
    assert texts_of(home, chat)[2] == "[erased]"


@pytest.mark.slow
def test_http_names_the_source(cli, home, chat, serve, ask):
    url = serve() + "/v1/namespaces/default/collections/notes/memories"
    (memory,) = ask(url)[1]["data"]
    refused = ask(f"{url}/{memory['id']}?with_source=true", method="DELETE")
    assert refused[0] == 400
    status, answer, *_ = ask(f"{url}/{memory['id']}?erase=true", method="DELETE")
    (source,) = answer["sources"]
    assert (status, source["session"], source["message"]) == (200, chat, 3)
    assert texts_of(home, chat)[2] == SAID

    erased = cli(*source["erased_by"].split()[1:], "--yes")
    assert erased.out == f"erased message 3 of session {chat}\n"
    assert texts_of(home, chat) == ["Hello", "Hi!", "[erased]", "How nice."]
    serve.end()
    assert not words_in_files(home)


def test_http_erases_the_source(home, chat, serve, ask):
    url = serve() + "/v1/namespaces/default/collections/notes/memories"
    (memory,) = ask(url)[1]["data"]
    address = f"{url}/{memory['id']}?erase=true&with_source=true"
    assert ask(address, method="DELETE")[0] == 204
    assert texts_of(home, chat)[2] == "[erased]"


def test_short_messages_alone(home, chat):
    """A message of one word is erased in its chat; texts that have the word stay."""
    store = Store(home / "store.db")
    store.sessions("default").erase(chat, 1)
    assert store.sessions("default").get(chat).title == "[erased]"
    store.close()
    assert texts_of(home, chat)[:2] == ["[erased]", "Hi!"]
