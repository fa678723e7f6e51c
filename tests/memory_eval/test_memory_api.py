"""Memories judged from Python, one by one and as a whole system, on the scripted server."""

import json
import re
from pathlib import Path

import pytest

from flat_verbs import evaluate_memory
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.memory_eval.dataset import user_to_line
from textevolve.memory_eval.synthesis import synthesise

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


def test_the_examples_of_the_page_run(model, home, monkeypatch, capsys):
    page = Path(__file__).parents[2] / "docs" / "memory-eval.md"
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.setenv("TEXTEVOLVE_MODEL", model)
    own, *examples = code
    people = (user_to_line(user) + "\n" for user in synthesise(users=2, sessions=2))
    (home / "people.jsonl").write_text("".join(people))
    (home / "notes.py").write_text(own)
    monkeypatch.syspath_prepend(home)
    for block in examples:
        exec(compile(block, str(page), "exec"), {})
    assert "MemoryVerdict(label=1, reason='half of it'" in capsys.readouterr().out


class Notes:
    """Keeps what users say; `calls` counts what it was asked to do."""

    def __init__(self):
        self.kept, self.calls = {}, 0

    def add(self, dialogue, user):
        self.calls += 1
        contents = [turn.content for turn in dialogue if turn.role == "user"]
        self.kept.setdefault(user, []).extend(contents)
        return contents

    async def search(self, query, user, limit):
        self.calls += 1
        return self.kept[user][-limit:]


@pytest.fixture
def people(home):
    path = home / "people.jsonl"
    path.write_text("".join(user_to_line(user) + "\n" for user in synthesise(2, 2)) + "7\n")
    return path


def test_a_whole_system_is_measured_and_asked_once(model, people, home, server):
    found = evaluate_memory(people, Notes(), model=model)
    assert found.skipped == ""
    assert found.metrics.overall["accuracy"].all.value == 1.0  # the judge finds everything true
    assert found.metrics.overall["recall"].all.value == 0.0  # and half of each point
    assert found.metrics.overall["question_correct"].valid.value == 1.0
    assert [line.line for line in found.malformed] == [3]
    before, again = server.calls, Notes()
    assert evaluate_memory(people, again, model=model).metrics == found.metrics
    assert (server.calls, again.calls) == (before, 0)


def test_a_dry_run_asks_nothing(cli, model, people, server):
    outcome = cli("memory-eval", people, "-s", "context", "-m", model, "--dry-run", "--json")
    assert outcome.code == 0, outcome.err
    assert server.calls == 0
    payload = json.loads(outcome.out)
    assert payload["cases"] == 2
    assert payload["expected"]["calls"]["median"] > 3
