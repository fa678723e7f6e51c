"""Memories made of dialogues from the command line and Python: read, resumed, killed, estimated."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "memory"))

from memory_script import remember

from textevolve.agents.resources import CollectionSpec
from textevolve.errors import InputError
from textevolve.store import kinds
from textevolve.studies.memories.create import read_dialogues, take_dialogues

NEAR = ("--floor", "-1")
"""Everything is near: the scripted server's embeddings tell nothing."""


def chat(*texts, role="user", **more):
    return {"messages": [{"role": role, "content": text} for text in texts], **more}


CHATS = (
    chat("FACT: Alex lives in Lisbon.", "Hello!", id="a", date="2025-01-06"),
    chat("FACT: Kim is a nurse.", "FACT: Alex lives in Porto.", id="b", date="2025-02-06"),
    chat("FACT: Lou has a cat.", id="c"),
)
HELD = ["Alex lives in Porto.", "Kim is a nurse.", "Lou has a cat."]


@pytest.fixture
def notes(server, resources):
    server.script = remember
    resources.ensure_namespace("default")
    collection = CollectionSpec(name="notes", embedder=f"{server.url}#embeds", dimension=32)
    resources.write(kinds.create, kinds.COLLECTIONS, "default", collection)
    return resources.memories("default")


@pytest.fixture
def write(home):
    def write(*rows, name="chats.jsonl"):
        (home / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(home / name)

    return write


@pytest.fixture
def create(cli, model, notes):
    def create(*arguments):
        return cli("memories", "create", "-c", "notes", "-m", model, *NEAR, *arguments)

    return create


def held(notes, closed=False):
    outcome = asyncio.run(notes.page("notes", closed=closed))
    return sorted(one.text for one in outcome)


def test_a_limit_keeps_whole_dialogues_and_the_rest_follows(create, write, notes, server):
    path = write(*CHATS)
    for number in (1, 3):
        outcome = create(path, "--max-calls", number)
        kept = held(notes)
        assert outcome.code == (3 if len(kept) < len(HELD) else 0)
        assert kept in ([], ["Alex lives in Lisbon."], HELD[:2], HELD), number
    assert create(path).code == 0
    assert held(notes) == HELD
    assert max(server.seen.values()) == 1  # nothing was asked twice


def test_what_cannot_be_used_is_said_in_a_line(cli, write, model, notes):
    path = write(*CHATS)
    for arguments, message in (
        ((path, "-c", "nothing"), "no collection 'nothing'"),
        ((write({"text": "x"}, name="text.jsonl"), "-c", "notes"), "is not a dialogue"),
        ((write(chat("a", id=1), chat("b", id=1), name="d.jsonl"), "-c", "notes"), "twice"),
    ):
        outcome = cli("memories", "create", *arguments, "-m", model)
        assert outcome.code == 2
        assert message in outcome.err
        assert outcome.err.count("\n") == 1


def test_chats_are_read_in_many_forms(home):
    session = {"dialogue": [{"role": "user", "content": "Hi", "timestamp": "Jan 06, 2025"}]}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    forms = {
        "lines.jsonl": [{"conversations": [{"from": "human", "value": "Hi"}]}],
        "sessions.jsonl": [{"uuid": "u", "sessions": [session, session]}],
        "messages.jsonl": messages,
    }
    for name, rows in forms.items():
        (home / name).write_text("\n".join(map(json.dumps, rows)))
    (home / "list.json").write_text(json.dumps([{"messages": messages}, {"messages": []}]))
    (home / "table.csv").write_text('id,messages\nx,"[{""role"":""user"",""content"":""Hi""}]"\n')
    found = {
        name: [(dialogue.id, len(dialogue.turns)) for dialogue in read_dialogues(str(home / name))]
        for name in (*forms, "list.json", "table.csv")
    }
    assert found == {
        "lines.jsonl": [("1", 1)],
        "sessions.jsonl": [("u/1", 1), ("u/2", 1)],
        "messages.jsonl": [("messages", 2)],
        "list.json": [("1", 2), ("2", 0)],
        "table.csv": [("x", 1)],
    }
    for listed in ([messages], messages, [{"messages": messages}]):
        (user_dialogue,) = take_dialogues(listed)
        assert [turn.role for turn in user_dialogue.turns] == ["user", "assistant"]
    with pytest.raises(InputError, match="dialogue 1"):
        list(take_dialogues([[{"text": "x"}]]))


@pytest.mark.slow
def test_estimates_are_near_the_calls(create, write, server):
    guests = ("Ann", "Bo", "Cy", "Dee", "Eve", "Flo")
    lines = [f"FACT: {name} has {number} cats." for number, name in enumerate(guests, 2)]
    path = write(chat(*lines[:3], id="a"), chat(*lines[3:], id="b"))
    (planned,) = create(path, "--dry-run", "--json").rows
    assert server.calls == 0
    (made,) = create(path, "--json").rows
    calls = planned["expected"]["calls"]
    assert calls["low"] / 1.5 <= made["usage"]["calls"] <= 1.5 * calls["high"]


def test_gates_without_scores(cli):
    offered = cli("memories", "create", "--help").out
    assert "--max-failed" in offered
    assert "--min-mean" not in offered
    assert "--min-mean" in cli("evaluate", "--help").out
