"""Memories judged from Python, one by one and as a whole system, on the scripted server."""

import json
import re
from pathlib import Path

import pytest

from flat_verbs import evaluate_memory
from textevolve import (
    AsyncClient,
    BudgetError,
    Case,
    Client,
    EvaluationResult,
    InputError,
    Limits,
    Usage,
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


def judge_answer(question, reference, answer, evidence=(), **options):
    texts = {"question": question, "reference": reference, "answer": answer, "evidence": evidence}
    return judge_memory("question", texts, **options)


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


def test_update_and_answer(model):
    made = judge_update("Ada lives in Bonn.", ["Bonn"], "Ada lives in Kiel.", model=model)
    assert (made.score, made.passed, made.metadata["label"]) == (1, True, "Correct")
    made = judge_answer("Where?", "Bonn", "In Bonn.", ["Ada moved to Bonn."], model=model)
    assert (made.score, made.passed, made.metadata["label"]) == (1, True, "Correct")
    assert "included" not in made.metadata


def test_the_same_judgement_again_costs_nothing(model, server):
    first = judge_integrity("Ada moved.", "Ada moved.", model=model)
    assert judge_integrity("Ada moved.", "Ada moved.", model=model) == first
    assert len(server.requests) == 1
    judge_integrity("Ada moved.", "Ada moved.", model=model, seed=1)
    assert len(server.requests) == 2


async def test_where_a_loop_runs_both_forms_work(model):
    texts = {"expected": "Ada moved.", "memories": ["Ada moved."]}
    made = await AsyncClient(model).judge_memory("integrity", texts)
    assert judge_integrity("Ada moved.", ["Ada moved."], model=model) == made


def test_nothing_kept_is_judged_without_a_call(home):
    """There is not even a model here."""
    assert judge_integrity("Ada moved.", []).metadata["label"] == 0
    made = judge_update("Ada moved.", ["", " "])
    assert (made.score, made.metadata["label"]) == (0, "Omission")
    with pytest.raises(InputError, match="no judge 'jurry'"):
        judge_integrity("Ada moved.", [], judge="jurry")


@pytest.mark.parametrize("judge", ["probe", "debate:general+rounds=1+readout=after-argument"])
def test_a_judge_by_its_spec_is_kept_too(model, server, judge):
    def script(body, _number):
        if body.get("max_tokens") == 1:
            said = body["messages"][-1]["content"]
            return Answer(yes=0.8 if re.search(r"\n(> )?Omission\.", said) else 0.3)
        return None

    server.script = script
    made = judge_answer("Where?", "Bonn", "No idea.", model=model, judge=judge)
    assert (made.metadata["judge"], made.metadata["label"]) == (judge, "Omission")
    asked = len(server.requests)
    assert judge_answer("Where?", "Bonn", "No idea.", model=model, judge=judge) == made
    assert len(server.requests) == asked > 0


def test_an_evaluator_of_ones_own_needs_no_model(home):
    class Made:
        usage = Usage()
        coverage = 1.0

        def __init__(self, case):
            self.result = tuple(
                EvaluationResult(float(text.startswith("Halluc")), False, "mine")
                for text in case.candidates
            )

    async def judge(case: Case, /):
        return Made(case)

    made = judge_update("Bonn", ["Kiel"], judge=judge)
    assert (made.metadata["label"], made.feedback, made.score) == ("Hallucination", "mine", 0)
    assert made.metadata["judge"].endswith("judge")


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
        (lambda: judge_integrity(None, ["x"]), "expected is neither a text nor a list"),
        (lambda: judge_integrity("x", None), "memories is neither a text nor a list"),
        (lambda: judge_integrity("x", ["a", 3]), "memories, item 2, is not a text but int"),
        (lambda: judge_accuracy("x", []), "dialogue is blank"),
        (lambda: judge_accuracy("x", 5), "dialogue is neither a text nor a list"),
        (lambda: judge_accuracy("x", ["hello"]), "dialogue is not a text or a list of turns"),
        (lambda: judge_accuracy("x", [{"role": "user"}]), "0.content is missing"),
        (lambda: judge_answer("", "x", "y"), "question is blank"),
        (lambda: judge_update("x", ["y"], judge="probe+nonsense"), "no option 'nonsense'"),
    ],
)
def test_bad_input_is_one_line(home, call, reason):
    with pytest.raises(InputError, match=reason) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_judgement_is_kept_and_can_be_written_down(cli, model, server, home):
    judge_integrity("Ada moved to Bonn.", ["Ada moved."], model=model)
    shown = cli("runs", "show", "last")
    assert "Integrity: 1 of 2." in shown.out
    assert "half of it" in shown.out
    texts = "{expected: Ada moved to Bonn., memories: Ada moved.}"
    (home / "one.yaml").write_text(
        f"kind: memory-judgement\ntask: integrity\ntexts: {texts}\nmodel: {model}\n"
    )
    again = cli("run", "one.yaml", "--json")
    assert json.loads(again.out)["score"] == 0.5
    assert len(server.requests) == 1
    (home / "one.yaml").write_text("kind: memory-judgement\ntask: update\ntexts: {a: b}\n")
    refused = cli("run", "one.yaml")
    assert refused.code == 2
    assert "update is judged by memories, expected, original" in refused.err


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


def test_an_evaluator_of_ones_own_judges_a_whole_system(model, people, server):
    async def judge(case: Case, /):
        return Chosen(case)

    class Chosen:
        usage, coverage = Usage(), 1.0

        def __init__(self, case):
            self.result = tuple(
                EvaluationResult(1.0 if n == 0 else 0.0, n == 0)
                for n in range(len(case.candidates))
            )

    found = evaluate_memory(people, "none", judge=judge, model=model)
    assert found.whole
    assert found.metrics.overall["question_correct"].all.value == 1.0
    asked = [body["messages"][-1]["content"] for body in server.requests]
    assert asked
    assert all("from the memories alone" in text for text in asked)  # none of them judges


def test_a_limit_leaves_the_rest_unasked(model, people):
    found = evaluate_memory(people, "context", model=model, limits=Limits(calls=3))
    assert "limit" in found.skipped
    assert sum(one.skipped for one in found.metrics.coverage.values()) > 0
    assert found.metrics.overall["recall"].all.value is None


@pytest.mark.parametrize(
    ("system", "said"),
    [(object(), "no method add"), ("contxt", "did you mean 'context'"), ("recorded", "recorded")],
)
def test_a_system_that_cannot_be_measured_is_refused(model, people, system, said):
    with pytest.raises(InputError, match=said):
        evaluate_memory(people, system, model=model)
