"""Integration from the command line: when it is due, what is refused, what is kept, once."""

import json

import pytest
from memory_world import LINES, add_memories, make_world, read_world, texts_of

from recorded.memory_answers import answers, prompt_of
from textevolve.llm.testing import Fault
from textevolve.studies import integrate_memories


@pytest.fixture
def store(home, server):
    make_world(home / "store.db", server.url)
    server.script = answers()
    return home / "store.db"


def integrate(cli, model, *more):
    return cli("memories", "integrate", "ada", "-m", model, *more)


def test_insights_are_kept_with_what_they_rest_on(cli, server, model, store):
    assert "Not due: 4 new memories, importance 3.6 of 15." in integrate(cli, model).out
    assert server.calls == 0
    ended = integrate(cli, model, "--threshold", "3.5")
    assert ended.code == 0, ended.err
    assert "2 questions: 2 insights added, 0 in place of earlier ones" in " ".join(
        ended.out.split()
    )
    first, second = read_world(store, "insights")
    assert first.text == "So it is: What does Mrs. Okafor need?"
    assert (first.kind, first.importance, first.origin.trust) == ("insight", 0.7, 0.9)
    assert first.reason.startswith("What does Mrs. Okafor need?")
    held = {one.id: one.text for one in read_world(store, "chats")}
    assert len(first.cites) == 2
    assert all(id in held for id in (*first.cites, *second.cites))
    for text in (held[id] for id in first.cites):
        assert text.split("]]")[0].split("<|")[0][:20] in ended.out

    calls = server.calls
    again = integrate(cli, model, "--threshold", "3.5")
    assert "Not due: 0 new memories" in again.out
    assert server.calls == calls
    add_memories(store, ["Mrs. Okafor sleeps with the lamp on."], 0.6)
    more = integrate(cli, model)
    assert "Not due: 1 new memory, importance 0.6 of 15." in more.out
    due = integrate(cli, model, "--always")
    assert "1 new memory, importance 0.6 of 15" in due.out
    known = next(prompt_of(b) for b in reversed(server.requests) if "What follows" in prompt_of(b))
    assert "So it is:" in known  # what was found before is recalled, too


def test_what_cites_nothing_that_was_shown_is_refused_and_counted(cli, server, model, store):
    server.script = answers(
        questions=["Who?"],
        insights=[
            {"insight": "Cites too much.", "because": [1, 99], "importance": 5},
            {"insight": "Cites nothing.", "because": [], "importance": 5},
            {"insight": "Cites words.", "because": ["memory two"], "importance": 5},
            {"insight": LINES[0], "because": [1], "importance": 5},
            {"insight": "Holds.", "because": ["2", 2.0], "importance": 5},
        ],
    )
    ended = integrate(cli, model, "--always", "--json")
    (question,) = json.loads(ended.out)["questions"]
    reasons = [one["reason"] for one in question["refused"]]
    assert reasons == [
        "cites memory 99, and 4 were shown",
        "cites no memory",
        "cites memory 0, and 4 were shown",
        "repeats a memory",
    ]
    assert texts_of(store, "insights") == ["Holds."]


def test_answers_that_cannot_be_used_leave_no_mark(cli, server, model, store):
    script = answers()
    server.script = lambda body, n: (
        Fault.EMPTY if "What follows" in prompt_of(body) else script(body, n)
    )
    ended = integrate(cli, model, "--always")
    assert ended.code == 3
    assert "empty" in ended.err
    assert not read_world(store, "insights")
    server.script = script
    assert integrate(cli, model, "--always", "--seed", "1").code == 0
    assert len(texts_of(store, "insights")) == 2


def test_known_insights_are_dropped_or_superseded(cli, server, model, store, monkeypatch):
    monkeypatch.setattr(integrate_memories, "NEAR", -1.0)
    server.script = answers(["Who?"], [{"insight": "It is so.", "because": [1], "importance": 5}])
    integrate(cli, model, "--always")
    add_memories(store, ["More."])
    server.script = answers(
        ["Who?"], [{"insight": "So it is.", "because": [1], "importance": 5}], relation="same"
    )
    ended = integrate(cli, model, "--always")
    assert "1 known already" in " ".join(ended.out.split())
    assert len(read_world(store, "insights")) == 1
    add_memories(store, ["Still more."])
    server.script = answers(
        ["Who now?"],
        [{"insight": "It is otherwise.", "because": [1], "importance": 5}],
        relation="replaces",
    )
    ended = integrate(cli, model, "--always")
    assert "1 in place of earlier ones" in " ".join(ended.out.split())
    old, new = read_world(store, "insights")
    assert (old.superseded_by, new.supersedes) == (new.id, (old.id,))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("gone",), "there is no agent 'gone'"),
        (("ada", "--threshold", "-1"), "threshold must be 0 or more"),
    ],
)
def test_what_cannot_be_integrated_is_one_line(cli, model, store, more, reason):
    ended = cli("memories", "integrate", *more, "-m", model)
    assert ended.code == 2
    assert reason in ended.err
    assert "Traceback" not in ended.err
