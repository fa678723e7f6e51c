"""A client that hears no answer sends its message to an agent again: after a timeout, a broken
connection, a stop."""

import asyncio
import json
from contextlib import aclosing, asynccontextmanager

import pytest

pytest.importorskip("fastapi")

from textevolve.agents.chat import NO_DETAILS, MessageDetails, SessionMessage
from textevolve.agents.resources import AgentSpec, CollectionSpec
from textevolve.errors import ConflictError, RejectedError
from textevolve.llm.testing import Answer
from textevolve.protocol.chat import ChatBody
from textevolve.server.app import open_state
from textevolve.server.openai.requests import AnswerEnd
from textevolve.server.openai.served import answer_as_agent
from textevolve.server.options import ServerOptions
from textevolve.settings import Settings
from textevolve.store import kinds

GRAZ = "I moved to Graz."
CUT = MessageDetails(interrupted=True, learning="pending")
LONG = " ".join(f"word{n}" for n in range(12))


class Notes:
    """A script: its answer, slow if `slow`; `read`: the prompts from which facts were made."""

    def __init__(self):
        self.slow = False
        self.read = []
        self.prompts = []

    def __call__(self, body, _number):
        if "facts" in str(body.get("response_format", "")):
            self.read.append(body["messages"][-1]["content"])
            return json.dumps({"facts": []})
        self.prompts.append([message["content"] for message in body["messages"][1:]])
        return Answer(text=LONG, pace=0.01) if self.slow else "Noted."


@pytest.fixture
def notes(server):
    server.script = Notes()
    return server.script


@pytest.fixture
def served(home, resources, model, notes):
    """Opens the state of a server, and closes it at the end of the block."""
    resources.ensure_namespace("acme")
    chats = CollectionSpec(name="chats", embedder=model, dimension=32)
    resources.write(kinds.create, kinds.COLLECTIONS, "acme", chats)
    guide = AgentSpec(name="guide", persona="A guide.", memories="chats")
    resources.write(kinds.create, kinds.AGENTS, "acme", guide)

    @asynccontextmanager
    async def start():
        settings = Settings(store=home / "store.db")
        async with open_state(ServerOptions(model=model), settings, None) as state:
            yield state

    return start


def ask(state, *texts, **metadata):
    """The pieces of the answer to the last of the texts, which are said by turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    body = ChatBody.model_validate({"messages": messages, "metadata": metadata})
    return answer_as_agent(state, "acme/guide", body, lambda _tokens: None)


async def hear(pieces):
    """The whole answer, and the session's id."""
    heard = [piece async for piece in pieces]
    assert isinstance(heard[-1], AnswerEnd)
    return "".join(heard[:-1]), heard[-1].metadata.get("session", "")


async def hang_up(pieces, notes):
    """Reads the beginning of a slow answer and goes away, as after a timeout."""
    notes.slow = True
    async with aclosing(pieces):
        heard = await anext(pieces)
    notes.slow = False
    return heard


async def learned(state, notes, times):
    """Waits until that many exchanges were read; no other comes after."""
    for _ in range(200):
        if len(notes.read) >= times:
            break
        await asyncio.sleep(0.01)
    for learner in state.chats._learners.values():
        await learner.aclose(5.0)
    assert len(notes.read) == times
    return notes.read


def messages_of(state, session):
    stored = state.resources.sessions("acme").messages(session)
    return [(message.role, message.text) for message in stored]


async def test_cut_answer_is_replaced(served, notes):
    async with served() as state:
        _, session = await hear(ask(state, "Hello.", session="new"))
        await learned(state, notes, 1)

        for _ in range(2):
            heard = await hang_up(ask(state, GRAZ, session=session), notes)
            role, text = messages_of(state, session)[-1]
            assert (role, text.startswith(heard)) == ("assistant", True)
        assert (await hear(ask(state, GRAZ, session=session)))[0] == "Noted."

        assert messages_of(state, session)[2:] == [("user", GRAZ), ("assistant", "Noted.")]
        assert notes.prompts[-1] == ["Hello.", "Noted.", GRAZ]
        assert "word0" not in "".join(await learned(state, notes, 2))


async def test_cut_answer_is_learned_later(served, notes):
    """Once the session goes on, nothing takes the place of a cut answer any more."""
    async with served() as state:
        _, session = await hear(ask(state, "Hello.", session="new"))
        await learned(state, notes, 1)
        await hang_up(ask(state, GRAZ, session=session), notes)
        assert state.resources.sessions("acme").pending_turns(agent_of(state).id) == []

        await hear(ask(state, "And now?", session=session))
        assert [role for role, _ in messages_of(state, session)] == ["user", "assistant"] * 3
        _, cut, last = await learned(state, notes, 3)
        assert (GRAZ in cut, "And now?" in cut, "And now?" in last) == (True, False, True)
        assert state.resources.sessions("acme").pending_turns(agent_of(state).id) == []


def agent_of(state):
    return state.resources.read(kinds.get, kinds.AGENTS, "acme", "guide")


async def test_same_message_gets_same_answer(served, notes):
    """A proxy sends a request again, and does not say that the first client has gone."""
    async with served() as state:
        _, session = await hear(ask(state, "Hello.", session="new"))
        notes.slow = True
        asked = [asyncio.create_task(hear(ask(state, GRAZ, session=session))) for _ in range(3)]
        assert {text for text, _ in await asyncio.gather(*asked)} == {LONG}
        assert messages_of(state, session)[2:] == [("user", GRAZ), ("assistant", LONG)]
        assert len(notes.prompts) == 2

        notes.slow = False
        await hear(ask(state, GRAZ, session=session))  # it was heard, and is said once more
        assert len(messages_of(state, session)) == 6


async def test_next_message_waits(served, notes):
    """Its question took the place of the answer that was being written, which was lost."""
    async with served() as state:
        _, session = await hear(ask(state, "Hello.", session="new"))
        notes.slow = True
        first = asyncio.create_task(hear(ask(state, GRAZ, session=session)))
        await asyncio.sleep(0)
        await asyncio.gather(first, hear(ask(state, "And now?", session=session)))
        texts = [text for _, text in messages_of(state, session)]
        assert texts == ["Hello.", "Noted.", GRAZ, LONG, "And now?", LONG]


async def test_unstored_cut_is_not_learned(served, notes):
    async with served() as state:
        await hang_up(ask(state, GRAZ), notes)
        assert (await hear(ask(state, GRAZ)))[0] == "Noted."
        (read,) = await learned(state, notes, 1)
        assert (GRAZ in read, "word0" in read) == (True, False)


@pytest.mark.parametrize("shown", [True, False])
async def test_unstored_cut_is_learned_later(served, notes, shown):
    """A user stops an answer and goes on, with the cut answer in the history or without it."""
    async with served() as state:
        heard = await hang_up(ask(state, "Hello.", "Hi.", GRAZ), notes)
        history = [GRAZ, heard] if shown else [GRAZ, ""]
        await hear(ask(state, "Hello.", "Hi.", *history, "And now?"))
        (read,) = await learned(state, notes, 1)
        context, _, new = read.partition(GRAZ)
        assert "Hello." in context
        assert "And now?" in new


def test_whole_answer_stays(resources, served):
    sessions = resources.sessions("acme")
    agent = resources.read(kinds.get, kinds.AGENTS, "acme", "guide")
    session = sessions.create(agent.id)

    def append(position, role, text, details=NO_DETAILS):
        message = SessionMessage(
            position=position, role=role, text=text, created=1.0, details=details
        )
        sessions.append(session, message)

    append(1, "user", GRAZ)
    append(2, "assistant", "Not", CUT)
    append(2, "assistant", "Noted", CUT)
    with pytest.raises(ConflictError):
        append(2, "user", "And now?")
    append(2, "assistant", "Noted.")
    for text, details in (("Note", CUT), ("Another.", NO_DETAILS)):
        with pytest.raises(ConflictError):
            append(2, "assistant", text, details)
    assert [message.text for message in sessions.messages(session)] == [GRAZ, "Noted."]


async def test_stored_cut_survives_failures(served, notes, server):
    """Where the second attempt has no answer, the beginning of the first stays."""
    async with served() as state:
        _, session = await hear(ask(state, "Hello.", session="new"))
        await hang_up(ask(state, GRAZ, session=session), notes)
        before = messages_of(state, session)
        server.script = lambda body, n: Answer(status=400, body=b"{}")
        with pytest.raises(RejectedError):
            await hear(ask(state, GRAZ, session=session))
        assert messages_of(state, session) == before
