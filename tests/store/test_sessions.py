"""Sessions and messages: kept in order, each within its namespace, by one writer at a time."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from textevolve.agents.chat import MessageDetails, SessionMessage
from textevolve.agents.resources import AgentSpec, NamespaceSpec
from textevolve.errors import ConflictError, InputError
from textevolve.store import kinds
from textevolve.store.repository import Store

PENDING = MessageDetails(memories=("me_1",), learning="pending")


@pytest.fixture
def resources(tmp_path):
    with closing(Store(str(tmp_path / "store.db"))) as opened:
        for name in ("acme", "other"):
            opened.write(kinds.create, kinds.NAMESPACES, "", NamespaceSpec(name=name))
            opened.write(
                kinds.create, kinds.AGENTS, name, AgentSpec(name="guide", persona="You guide.")
            )
        yield opened


def agent_id(resources, namespace="acme"):
    return resources.read(kinds.get, kinds.AGENTS, namespace, "guide").id


def message(position, text="Hello.", **more):
    role = "user" if position % 2 else "assistant"
    return SessionMessage(position=position, role=role, text=text, created=100.0 + position, **more)


def test_what_is_kept_is_read_again(resources) -> None:
    sessions = resources.sessions("acme")
    id = sessions.create(agent_id(resources), "ann", "Hello")
    messages = [message(1, "Grüße, \N{GRINNING FACE}\nyou"), message(2, details=PENDING)]
    for single_message in messages:
        sessions.append(id, single_message)
    assert sessions.messages(id) == messages
    response = sessions.get(id)
    assert (response.agent, response.user, response.messages, response.updated) == (
        *("acme/guide", "ann", 2, 102.0),
    )
    assert sessions.get("last") == sessions.get(id[:8]) == response
    (turn,) = sessions.pending_turns(agent_id(resources))
    assert (turn.session, turn.position, turn.user, turn.message) == (
        id,
        2,
        "ann",
        messages[0].text,
    )
    sessions.set_learning(id, 2, "done")
    assert sessions.pending_turns(agent_id(resources)) == []
    assert sessions.messages(id)[1].details == PENDING.model_copy(update={"learning": "done"})


def test_another_namespace_finds_nothing(resources) -> None:
    ours, theirs = resources.sessions("acme"), resources.sessions("other")
    id = ours.create(agent_id(resources))
    ours.append(id, message(1))
    ours.append(id, message(2, details=PENDING))
    for ask in (
        lambda: theirs.get(id),
        lambda: theirs.get("last"),
        lambda: theirs.messages(id),
        lambda: theirs.append(id, message(3)),
        lambda: theirs.set_learning(id, 2, "done"),
        lambda: theirs.delete(id),
        lambda: ours.get(id, agent_id=agent_id(resources, "other")),
        lambda: ours.get("last", user="bob"),
        lambda: ours.get(""),
        lambda: ours.get("%"),
        lambda: ours.set_learning(id, 9, "done"),
    ):
        with pytest.raises(InputError):
            ask()
    assert theirs.list() == []
    assert theirs.pending_turns(agent_id(resources)) == []
    assert len(ours.messages(id)) == 2


def test_one_message_stands_at_a_position_whoever_writes(resources, tmp_path) -> None:
    id = resources.sessions("acme").create(agent_id(resources))

    def write(text):
        with closing(Store(resources.location)) as other:
            try:
                other.sessions("acme").append(id, message(1, text))
            except ConflictError as error:
                return str(error)
        return ""

    with ThreadPoolExecutor(4) as pool:
        refused = [answer for answer in pool.map(write, "abcd") if answer]
    assert len(refused) == 3
    assert all("another client has continued it" in answer for answer in refused)
    for position in (1, 3):
        with pytest.raises(ConflictError):
            resources.sessions("acme").append(id, message(position))
    assert len(resources.sessions("acme").messages(id)) == 1


def test_removing_a_session_or_its_agent(resources) -> None:
    sessions = resources.sessions("acme")
    responses = [sessions.create(agent_id(resources)) for _ in range(2)]
    for id in responses:
        sessions.append(id, message(1))
    with pytest.raises(InputError, match="several sessions have ids that begin"):
        sessions.delete("se_")
    assert sessions.delete(responses[0]).messages == 1
    assert [one.id for one in sessions.list()] == [responses[1]]
    resources.write(kinds.delete, kinds.AGENTS, "acme", "guide")
    assert sessions.list() == []
