"""Our own memories, measured like any memory system."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "memory"))

from memory_script import is_comparison, is_question, remember, user_text

from textevolve.errors import InputError
from textevolve.memory_eval.dataset import (
    DialogueTurn,
    MemoryPoint,
    MemoryQuestion,
    Session,
    User,
    user_to_line,
)
from textevolve.memory_eval.textevolve_system import read_own


def session(index, said, *points, question=None):
    turns = tuple(DialogueTurn("user", f"FACT: {text}", "Jan 06, 2025") for text in said)
    memory_points = tuple(
        MemoryPoint(place, text, "persona", "primary", 0.5, bool(old), (old,) if old else ())
        for place, (text, old) in enumerate(points, 1)
    )
    requests = (MemoryQuestion(question, "Porto"),) if question else ()
    return Session(index, turns, memory_points, requests)


LISBON, PORTO = "Alex lives in Lisbon.", "Alex lives in Porto."


@pytest.fixture
def data(home):
    first_session = session(0, [LISBON, "Kim is a nurse."], (LISBON, ""))
    second_session = session(1, [PORTO], (PORTO, LISBON), question="Where does Alex live?")
    users = [User(name, (first_session, second_session), sha256="") for name in ("a", "b")]
    (home / "data.jsonl").write_text("".join(user_to_line(user) + "\n" for user in users))
    return home / "data.jsonl"


@pytest.fixture
def measure(cli, model, server, data, monkeypatch):
    def script(body, number):
        fenced = len(body["messages"]) > 1 and " turns]]" in user_text(body)
        requests = len(body["messages"]) > 1 and (is_comparison(body) or is_question(body))
        known = fenced or requests
        return remember(body, number) if known else None

    server.script = script
    monkeypatch.setenv("TEXTEVOLVE_EMBEDDER", f"{server.url}#embeds")

    def run(*arguments, system="textevolve:floor=-1"):
        return cli("memory-eval", "run", data, "--system", system, "-m", model, *arguments)

    return run


def test_it_is_measured_and_a_second_run_asks_nothing(measure, server, home):
    outcome = measure("--json")
    assert outcome.code == 0, outcome.err
    payload = json.loads(outcome.out)
    assert payload["whole"]
    (answering,) = {
        body["messages"][0]["content"]
        for body in server.requests
        if "answer a question" in body["messages"][0]["content"]
    }
    assert PORTO in answering
    assert LISBON not in answering  # only the newest is found
    calls = server.calls
    measure()
    assert server.calls == calls
    assert list((home / "memory-eval").glob("*.db"))


@pytest.mark.slow
def test_users_do_not_see_each_other(measure, server):
    assert measure("--users", "2").code == 0
    compared = [user_text(body) for body in server.requests if is_comparison_of(body)]
    assert compared
    assert all(text.count(LISBON) <= 1 for text in compared)


def is_comparison_of(body):
    return len(body["messages"]) > 1 and is_question(body)


def test_options_say_models_and_how_memories_are_made():
    plan = read_own("textevolve:model=openai/x, embedder=http://127.0.0.1:1/v1#e,window=300")
    assert (plan.model, plan.embedder) == ("openai/x", "http://127.0.0.1:1/v1#e")
    assert plan.window == 300
    with pytest.raises(InputError, match="did you mean 'floor'"):
        read_own("textevolve:flor=1")
