"""Integration from the command line: when it is due, what is refused, what is kept, once."""

import pytest
from memory_world import add_memories, make_world, read_world, texts_of

from recorded.memory_answers import answers, prompt_of
from textevolve.llm.testing import Fault


@pytest.fixture
def store(home, server):
    make_world(home / "store.db", server.url)
    server.script = answers()
    return home / "store.db"


def integrate(cli, model, *more):
    return cli("memories", "integrate", "ada", "-m", model, *more)


@pytest.mark.slow
def test_insights_are_kept_with_what_they_rest_on(cli, server, model, store):
    assert "Not due: 4 new memories, importance 3.6 of 15." in integrate(cli, model).out
    assert server.calls == 0
    outcome = integrate(cli, model, "--threshold", "3.5")
    assert outcome.code == 0, outcome.err
    assert "2 questions: 2 insights added, 0 replacing earlier ones" in " ".join(
        outcome.out.split()
    )
    first_memory, second_memory = read_world(store, "insights")
    assert first_memory.text == "So it is: What does Mrs. Okafor need?"
    assert (first_memory.kind, first_memory.importance, first_memory.origin.trust) == (
        "insight",
        0.7,
        0.9,
    )
    assert first_memory.reason.startswith("What does Mrs. Okafor need?")
    held = {memory.id: memory.text for memory in read_world(store, "chats")}
    assert len(first_memory.cites) == 2
    assert all(id in held for id in (*first_memory.cites, *second_memory.cites))
    for text in (held[id] for id in first_memory.cites):
        assert text.split("]]")[0].split("<|")[0][:20] in outcome.out

    calls = server.calls
    again = integrate(cli, model, "--threshold", "3.5")
    assert "Nothing to integrate: 0 new memories" in again.out
    assert "Nothing to integrate" in integrate(cli, model, "--always", "--seed", "2").out
    assert server.calls == calls
    add_memories(store, ["Mrs. Okafor sleeps with the lamp on."], 0.6)
    more = integrate(cli, model)
    assert "Not due: 1 new memory, importance 0.6 of 15." in more.out
    due = integrate(cli, model, "--always")
    assert "1 new memory, importance 0.6 of 15" in due.out
    known_name = next(
        prompt_of(b) for b in reversed(server.requests) if "What follows" in prompt_of(b)
    )
    assert "So it is:" in known_name  # what was found before is recalled, too


def test_answers_that_cannot_be_used_leave_no_mark(cli, server, model, store):
    script = answers()
    server.script = lambda body, n: (
        Fault.EMPTY if "What follows" in prompt_of(body) else script(body, n)
    )
    outcome = integrate(cli, model, "--always")
    assert outcome.code == 3
    assert "empty" in outcome.err
    assert not read_world(store, "insights")
    server.script = script
    assert integrate(cli, model, "--always", "--seed", "1").code == 0
    assert len(texts_of(store, "insights")) == 2
