"""A persona that evolves: small edits with the memories behind them, and nothing else."""

import json

import pytest
from memory_world import LINES, PERSONA, make_world, personas_of

from recorded.memory_answers import answers, prompt_of
from textevolve.llm.testing import Fault
from textevolve.store import kinds
from textevolve.store.repository import Store

NEW = PERSONA.replace("long answers", "short answers")


@pytest.fixture
def store(home, server):
    make_world(home / "store.db", server.url)
    server.script = answers()
    return home / "store.db"


def evolve(cli, model, *more):
    return cli("agents", "evolve", "ada", "-m", model, *more)


def change(**fields):
    new_fields = {
        "because": [1],
        "reason": "so",
        "action": "add",
        "sentence": 0,
        "text": "You rest.",
    }
    return {**new_fields, **fields}


def test_a_new_version_with_the_memories_behind_it(cli, model, home, store):
    outcome = evolve(cli, model, "-o", "new.txt")
    assert outcome.code == 0, outcome.err
    assert "1 change: version 2. To go back: textevolve agents revert ada 1" in outcome.out
    assert "sentence 3 is now: You like short answers." in outcome.out
    assert "Mr. Lind asked for short answers." in outcome.out
    old, new = personas_of(store)
    assert (old.spec["persona"], new.spec["persona"]) == (PERSONA, NEW)
    assert new.changes[0]["before"] == "You like long answers."
    assert len(new.changes[0]["memories"]) == 1
    assert (home / "new.txt").read_text() == NEW + "\n"


def test_at_most_so_many_changes_and_tokens(cli, server, model, store):
    many = [change(text=f"You remember thing number {n * 7919}.") for n in range(4)]
    chosen = [{"change": n, "same": []} for n in (3, 1, 2, 99, 3)]
    server.script = answers(changes=many, chosen=chosen)
    outcome = evolve(cli, model, "--changes", "2", "--json")
    new_made = json.loads(outcome.out)["made"]
    assert [single_change["text"] for single_change in new_made["changes"]] == [
        many[2]["text"],
        many[0]["text"],
    ]
    assert [single_change["reason"] for single_change in new_made["refused"]] == [
        "the model did not choose this change"
    ] * 2
    tight = json.loads(evolve(cli, model, "--persona-tokens", "32", "--propose", "--json").out)
    assert "tokens of at most" in tight["made"]["refused"][-1]["reason"]


def test_strangers_have_no_say(cli, server, model, home):
    make_world(home / "store.db", server.url, LINES, trust=0.3)
    outcome = evolve(cli, model)
    assert "no memory has a trust of 0.6 or more" in outcome.out
    assert server.calls == 0


def test_an_unusable_answer_leaves_the_persona(cli, server, model, store):
    server.script = lambda body, n: Fault.EMPTY
    outcome = evolve(cli, model)
    assert outcome.code == 3
    assert "The persona stays unchanged: unusable answer" in outcome.out
    assert len(personas_of(store)) == 1


def test_a_persona_that_was_changed_meanwhile_is_not_overwritten(cli, server, model, store):
    script = answers()

    def meddle(body, number):
        if "You choose" in prompt_of(body) or number == 1:
            resources = Store(str(store))
            resources.write(
                kinds.update, kinds.AGENTS, "default", "ada", {"persona": f"You are Ada {number}."}
            )
            resources.close()
        return script(body, number)

    server.script = meddle
    outcome = evolve(cli, model)
    assert outcome.code != 0
    assert "was changed meanwhile" in outcome.err
    assert "Traceback" not in outcome.err
    assert NEW not in [persona.spec["persona"] for persona in personas_of(store)]


def test_what_a_limit_left_unread_is_not_counted(cli, server, model, home):
    server.script = answers()
    long_lines = [f"Number {n}: {'it rained on the way to the sea, ' * 6}" for n in range(3)]
    make_world(home / "store.db", server.url, long_lines)
    outcome = evolve(cli, model, "--budget", "64", "--max-calls", "1")
    assert (outcome.code, server.calls) == (3, 1)
    assert "1 of 3 memories in 1 call" in outcome.out
    assert "proposed so far are kept" in " ".join(outcome.out.split())
