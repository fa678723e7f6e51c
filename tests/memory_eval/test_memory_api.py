"""Memories judged from Python, one by one and as a whole system, on the scripted server."""

import json
import re
from pathlib import Path

import pytest

from flat_verbs import evaluate_memory
from textevolve import (
    BudgetError,
    Client,
    InputError,
    Limits,
    judge_memory,
)
from textevolve.errors import AnswerError
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.memory_eval.dataset import DialogueTurn, user_to_line
from textevolve.memory_eval.synthesis import synthesise


def judge_integrity(expected, memories, **options):
    return judge_memory("integrity", {"expected": expected, "memories": memories}, **options)


def judge_accuracy(memory, dialogue, gold=(), **options):
    texts = {"memory": memory, "dialogue": dialogue, "gold": gold}
    return judge_memory("accuracy", texts, **options)


def judge_update(expected, memories, original=(), **options):
    texts = {"expected": expected, "memories": memories, "original": original}
    return judge_memory("update", texts, **options)


ANSWERS = {
    "score": {"reasoning": "half of it", "score": 1},
    "accuracy_score": {
        "reason": "as said",
        "accuracy_score": 2,
        "is_included_in_golden_memories": True,
    },
    "evaluation_result": {"reason": "r", "reasoning": "r", "evaluation_result": "Correct"},
}


def fair(body, _number=0):
    """The answer that fits the schema that was asked for."""
    if "response_format" not in body:
        return None
    fields = body["response_format"]["json_schema"]["schema"]["properties"]
    found = next((answer for name, answer in ANSWERS.items() if name in fields), None)
    return None if found is None else Answer(text=json.dumps(found))


@pytest.fixture
def server(home):
    with ScriptedServer(fair) as started:
        yield started


def test_integrity(model):
    made = judge_integrity("Ada moved to Bonn.", ["Ada moved.", "She paints."], model=model)
    assert (made.score, made.passed, made.feedback) == (0.5, False, "half of it")
    assert made.metadata == {"label": 1, "judge": "structured"}


def test_accuracy_from_turns_and_from_a_text(model, server):
    turns = [DialogueTurn("user", "I moved.", "May 1"), {"role": "assistant", "content": "Good."}]
    made = judge_accuracy("Ada moved.", turns, ["Ada moved."], model=model)
    assert (made.score, made.passed) == (1, True)
    assert made.metadata == {"label": 2, "judge": "structured", "included": True}
    asked = server.requests[-1]["messages"][-1]["content"]
    assert "[May 1] user: I moved.\nassistant: Good.\n" in asked
    same = "[May 1] user: I moved.\nassistant: Good."
    judge_accuracy("Ada moved.", same, "Ada moved.", model=model)
    assert len(server.requests) == 1  # the very same question


def test_nothing_kept_is_judged_without_a_call(home):
    """There is not even a model here."""
    assert judge_integrity("Ada moved.", []).metadata["label"] == 0
    made = judge_update("Ada moved.", ["", " "])
    assert (made.score, made.metadata["label"]) == (0, "Omission")


def test_no_verdict_is_an_error_and_is_asked_anew_the_next_time(model, server):
    server.script = lambda *_: Answer(text='{"reasoning": "r", "score": 7}')
    with pytest.raises(AnswerError, match="no verdict on integrity: unusable answer"):
        judge_integrity("Ada moved.", "Ada moved.", model=model)
    assert len(server.requests) == 2
    with pytest.raises(BudgetError):
        Client(model, limits=Limits(calls=0)).judge_memory(
            "integrity", {"expected": "Ada moved to Bonn.", "memories": "x"}
        )
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: judge_integrity(" ", ["x"]), "expected is blank"),
        (lambda: judge_integrity(None, ["x"]), "expected is not a text, a list"),
        (lambda: judge_integrity("x", ["a", 3]), "memories is not a text, a list"),
    ],
)
def test_bad_input_is_one_line(home, call, reason):
    with pytest.raises(InputError, match=reason) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_examples_of_the_page_run(model, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "memory-judges.md"
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert len(code) == 2
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    namespace = {}
    for block in code:
        exec(compile(block, str(page), "exec"), namespace)
    assert namespace["made"].metadata["judge"] == "probe"


class Notes:
    """Keeps what users say; `calls` counts what it was asked to do."""

    def __init__(self):
        self.kept, self.calls = {}, 0

    def add(self, dialogue, user):
        self.calls += 1
        said = [turn.content for turn in dialogue if turn.role == "user"]
        self.kept.setdefault(user, []).extend(said)
        return said

    async def search(self, query, user, limit):
        self.calls += 1
        return self.kept[user][-limit:]


@pytest.fixture
def people(home):
    path = home / "people.jsonl"
    path.write_text("".join(user_to_line(user) + "\n" for user in synthesise(2, 2)) + "7\n")
    return path


def test_a_whole_system_is_measured_and_asked_once(model, people, home, server):
    found = evaluate_memory(people, Notes(), model=model, records=home / "out.jsonl")
    assert found.skipped == ""
    assert found.metrics.overall["accuracy"].all.value == 1.0  # the judge finds everything true
    assert found.metrics.overall["recall"].all.value == 0.0  # and half of each point
    assert found.metrics.overall["question_correct"].valid.value == 1.0
    assert [line.line for line in found.malformed] == [3]
    lines = (home / "out.jsonl").read_text().splitlines()
    assert len(lines) == sum(one.asked for one in found.metrics.coverage.values())
    before, again = server.calls, Notes()
    assert evaluate_memory(people, again, model=model).metrics == found.metrics
    assert (server.calls, again.calls) == (before, 0)


def test_a_run_over_an_object_is_shown_anywhere_and_gone_on_with_in_its_program(
    model, people, server, cli
):
    found = evaluate_memory(people, Notes(), model=model, limits=Limits(calls=4), name="notes")
    assert not found.whole
    shown = cli("runs", "show", "notes")
    assert "Not finished" in shown.out
    assert "Memory of test_memory_api.Notes" in shown.out
    refused = cli("runs", "resume", "notes")
    assert refused.code == 2
    assert "Notes is an object of the program that began this run" in refused.err
    assert server.calls == 4
    assert evaluate_memory(people, Notes(), model=model).whole


@pytest.mark.parametrize(
    ("system", "said"),
    [(object(), "no method add"), ("contxt", "did you mean 'context'"), ("recorded", "recorded")],
)
def test_a_system_that_cannot_be_measured_is_refused(model, people, system, said):
    with pytest.raises(InputError, match=said):
        evaluate_memory(people, system, model=model)
