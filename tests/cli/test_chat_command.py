"""The commands `chat` and `agents sessions`: through pipes, at a terminal, and how they end."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from textevolve.agents.resources import AgentSpec, CollectionSpec, NamespaceSpec
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.store import kinds

LIMIT = 240
STALLED = Answer(text="One two three four five six.", transport="stall")


def script(body, _number):
    last = body["messages"][-1]["content"]
    if "facts" in str(body.get("response_format", "")):
        fact = {"turn": 1, "fact": "Ann lives in Oslo.", "status": "true", "importance": 8}
        facts = [fact | {"since": ""}] if "Oslo" in last else []
        return json.dumps({"facts": facts})
    if last.endswith("Count."):
        return STALLED
    if last.endswith("Fail."):
        return Fault.NOT_FOUND
    return None if body.get("response_format") else f"You said: {last.splitlines()[-1]}"


@pytest.fixture
def server():
    with ScriptedServer(script) as started:
        yield started


@pytest.fixture
def agents(resources, server):
    create = partial(resources.write, kinds.create)
    for name in ("acme", "other"):
        create(kinds.NAMESPACES, "", NamespaceSpec(name=name))
    collection = CollectionSpec(name="chats", embedder=f"{server.url}#embeds", dimension=32)
    create(kinds.COLLECTIONS, "acme", collection)
    create(kinds.AGENTS, "acme", AgentSpec(name="guide", persona="You guide.", memories="chats"))
    create(kinds.AGENTS, "acme", AgentSpec(name="plain", persona="You are plain."))
    return resources


class Terminal:
    """A command with a person at both ends."""

    def __init__(self, *arguments):
        self.shown = self.seen = ""
        self._end, ours = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "textevolve", *map(str, arguments)],
            stdin=ours,
            stdout=ours,
            stderr=ours,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(ours)

    def read_until(self, what):
        until = time.monotonic() + LIMIT
        while what not in self.shown:
            assert time.monotonic() < until, self.shown
            assert self._read(), self.shown
        output, _, self.shown = self.shown.partition(what)
        return output + what

    def _read(self):
        ready, _, _ = select.select([self._end], [], [], 1)
        if not ready:
            return True
        try:
            raw = os.read(self._end, 65536)
        except OSError:
            return False
        self.shown += raw.decode().replace("\r\n", "\n")
        self.seen += raw.decode()
        return bool(raw)

    def type(self, line):
        os.write(self._end, f"{line}\n".encode())

    def interrupt(self):
        # A signal between a prompt and the wait for its line is seen with the next key only: so
        # does Python's readline.
        time.sleep(0.5)
        self.process.send_signal(signal.SIGINT)

    def end(self):
        while self._read() and self.process.poll() is None:
            pass
        while self._read() and select.select([self._end], [], [], 0)[0]:
            pass
        code = self.process.wait(LIMIT)
        os.close(self._end)
        return code


@pytest.fixture
def terminal(agents, model):
    """Starts a chat at a terminal."""
    started = []

    def start(*arguments):
        started.append(Terminal("chat", *arguments, "-m", model))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def session_in(text):
    return re.search(r"--session (se_[0-9a-f]{32})", text)[1]


def test_one_message_prints_the_answer_alone(cli, agents, model) -> None:
    outcome = cli("chat", "acme/plain", "--once", "Hello.", "-m", model)
    assert (outcome.code, outcome.out, outcome.err) == (0, "You said: Hello.\n", "")
    again = cli("chat", "acme/plain", "--session", "last", "--once", "More.", "-m", model, "--json")
    (row,) = again.rows
    assert (row["text"], row["interrupted"]) == ("You said: More.", False)
    assert len(agents.sessions("acme").messages(row["session"])) == 4


def test_sessions_are_listed_shown_and_removed(cli, agents, model, home) -> None:
    assert "no chats" in cli("agents", "sessions", "list", "--namespace", "acme").out
    cli("chat", "acme/plain", "--user", "ann", "--once", "Hello \x1b[31m.", "-m", model)
    cli("chat", "acme/guide", "--once", "Hi.", "-m", model)
    rows = cli("agents", "sessions", "list", "--namespace", "acme", "--json").rows
    assert [(row["agent"], row["title"]) for row in rows] == [
        ("acme/guide", "Hi."),
        ("acme/plain", "Hello \x1b[31m."),
    ]
    listed = cli("agents", "sessions", "list", "--agent", "acme/plain").out
    assert "Hello \\x1b[31m." in listed
    assert rows[0]["id"] not in listed
    assert all(len(line) <= 80 for line in listed.splitlines())
    output = cli("agents", "sessions", "show", rows[1]["id"], "--namespace", "acme").out
    assert "\x1b" not in output
    assert "ann, " in output
    assert "acme/plain, " in output
    reported_rows = cli(
        "agents", "sessions", "show", rows[1]["id"][:9], "--namespace", "acme", "--json"
    ).rows
    assert [one["role"] for one in reported_rows] == ["user", "assistant"]
    for namespace in ("other", "default"):
        foreign = cli("agents", "sessions", "show", rows[1]["id"], "--namespace", namespace)
        assert (foreign.code, foreign.out) == (2, "")
        assert "there is no" in foreign.err
    messages = cli("agents", "sessions", "show", "last", "--namespace", "acme", "--json").rows
    assert [(m["role"], m["content"]) for m in messages] == [
        ("user", "Hi."),
        ("assistant", "You said: Hi."),
    ]
    deleted = cli("agents", "sessions", "delete", rows[0]["id"], "-y", "--namespace", "acme")
    assert deleted.code == 0
    assert "textevolve runs delete" in deleted.err
    assert len(cli("agents", "sessions", "list", "--namespace", "acme", "--json").rows) == 1


def test_a_failure_says_how_to_go_on(cli, agents, model, server) -> None:
    outcome = cli("chat", "acme/plain", "-m", model, stdin=b"Hello.\nFail.\nNever said.\n")
    assert (outcome.code, outcome.out) == (1, "You said: Hello.\n")
    assert "no such model" in outcome.err
    kept = agents.sessions("acme").messages(session_in(outcome.err))
    assert [one.text for one in kept] == ["Hello.", "You said: Hello.", "Fail."]


@pytest.mark.slow
def test_a_conversation(terminal, agents) -> None:
    chat = terminal("acme/guide", "--user", "ann")
    assert "/help lists commands" in chat.read_until("ann> ")
    chat.type("I live in Oslo.")
    assert "You said: I live in Oslo." in chat.read_until("ann> ")
    chat.type("/memories")
    assert "nothing was recalled" in chat.read_until("ann> ")
    sessions = agents.sessions("acme")
    session, until = sessions.get("last").id, time.monotonic() + LIMIT
    while sessions.messages(session)[-1].details.learning != "done":
        assert time.monotonic() < until
        time.sleep(0.02)
    chat.type("Where is Oslo?")
    chat.read_until("You said: Where is Oslo?")
    chat.read_until("ann> ")
    assert "[memories kept: 1]" in chat.seen
    chat.type("/memories")
    printed_until = chat.read_until("ann> ")
    assert "1. Ann lives in Oslo." in printed_until
    assert "acme/chats: chat se_" in printed_until
    chat.type("/what")
    assert "there is no command /what" in chat.read_until("ann> ")
    chat.type("Fail.")
    assert "error: " in chat.read_until("ann> ")
    chat.type("Count.")
    chat.read_until("three")
    chat.interrupt()
    assert "[stopped]" in chat.read_until("ann> ")
    kept = sessions.messages(sessions.get("last").id)
    assert kept[-1].details.interrupted
    assert kept[-1].text.startswith("One two three")
    chat.interrupt()
    assert chat.end() == 130
    assert session_in(chat.shown)
    assert "Traceback" not in chat.shown
