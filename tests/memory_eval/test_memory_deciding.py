"""A decision model as the judge of memories: one request a judgement, and no invented verdict."""

import pytest

from textevolve.errors import BudgetError, InputError
from textevolve.evaluation import Failure, Usage
from textevolve.llm.decisions import dump_answers, load_questions
from textevolve.llm.model import Response
from textevolve.memory_eval.judgement import LABELS, TASKS, MemoryVerdict, Subject
from textevolve.memory_eval.judging import (
    ask_about,
    decisions_version,
    judge_by_decider,
    read_statements,
)
from textevolve.studies.memory_eval import MemoryEvaluationSpec, ask
from textevolve.studies.memory_judgement import MemoryJudgementSpec
from textevolve.studies.memory_judgement import ask as ask_one

TEXTS = {
    "integrity": {"expected": "Ada moved to Bonn.", "memories": "Ada lives in Bonn.\nShe paints."},
    "accuracy": {"dialogue": "user: I moved.", "gold": "Ada moved.", "memory": "Ada lives here."},
    "update": {"expected": "In Bonn.", "original": "In Kiel.", "memories": "In Bonn now."},
    "question": {"question": "Where?", "reference": "Bonn", "evidence": "Bonn.", "answer": "Bonn."},
}


class Decider:
    """A decision model that gives these probabilities, by the question's name."""

    name = "native/decider"

    def __init__(self, probabilities, failed=None, **more):
        self.probabilities, self.failed, self.more = probabilities, failed or {}, more
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        text = dump_answers(self.probabilities, self.failed, **self.more)
        return Response(text, "stop", Usage(1, 50, 0, 0, 0.5))


def subject_of(task, **more):
    return Subject(task, "a", 0, 1, TEXTS[task], **more)


def sharp(number, at):
    return [0.9 if n == at else 0.1 / (number - 1) for n in range(number)]


@pytest.mark.parametrize(
    ("task", "at"), [(task, n) for task in TASKS for n in range(len(LABELS[task]))]
)
async def test_the_most_probable_label_is_the_verdict_of_one_request(task, at):
    decider = Decider({task: sharp(len(LABELS[task]), at), "included": [0.3, 0.7]})
    judged = await judge_by_decider(decider, subject_of(task))
    assert judged.verdict.label == LABELS[task][at]
    assert judged.verdict.included is (True if task == "accuracy" else None)
    assert f"{LABELS[task][at]} 90%" in judged.verdict.reason
    assert "decided by native/decider" in judged.verdict.reason
    assert judged.usage == Usage(1, 50, 0, 0, 0.5)
    (request,) = decider.requests
    state = request.messages[0].text
    assert all(text in state for text in TEXTS[task].values())
    asked = load_questions(request.questions)
    said = read_statements(task)
    assert [option.description for option in asked[0].options] == [said[n] for n in LABELS[task]]
    assert len(asked) == (2 if task == "accuracy" else 1)


def test_scores_are_levels_and_classes_a_choice():
    kinds = {task: [one.kind for one in ask_about(subject_of(task))] for task in TASKS}
    assert kinds == {
        "integrity": ["score"],
        "accuracy": ["score", "predicate"],
        "update": ["choice"],
        "question": ["choice"],
    }


@pytest.mark.parametrize(
    ("given", "failed", "reason"),
    [
        ({"included": [0.5, 0.5], "accuracy": [0, 0, 1]}, {}, "tied: included False and True"),
        ({"included": [0, 1], "accuracy": [0.4, 0.4, 0.2]}, {}, "tied: accuracy 0 and 1"),
        ({"included": [0, 1]}, {"accuracy": "refused: no"}, "question 'accuracy': refused: no"),
        ({"accuracy": [0, 0, 1]}, {}, "left this question without an answer"),
        ({"included": [0, 1], "accuracy": [0.4, 0.2, 0.1]}, {}, "no distribution"),
    ],
)
async def test_no_verdict_is_invented(given, failed, reason):
    judged = await judge_by_decider(Decider(given, failed), subject_of("accuracy"))
    assert isinstance(judged.outcome, Failure)
    assert judged.outcome.kind == "failed"
    assert reason in judged.outcome.reason
    assert judged.usage.calls == 1


async def test_what_needs_no_judge_is_settled_without_one():
    decider = Decider({})
    assert (await judge_by_decider(decider, subject_of("integrity", by_rule=0))).verdict.label == 0
    lost = subject_of("question", failure=Failure("failed", "timed out"))
    assert (await judge_by_decider(decider, lost)).outcome.reason == "timed out"
    assert decider.requests == []


async def test_what_was_emulated_or_cut_is_told():
    decider = Decider({"update": sharp(4, 0)}, emulated=True, cut=1234)
    judged = await judge_by_decider(decider, subject_of("update"))
    assert isinstance(judged.outcome, MemoryVerdict)
    assert judged.outcome.reason.endswith(
        "decided by native/decider, emulated, 1,234 characters left out"
    )


async def test_a_limit_is_no_verdict_and_no_failure_of_the_judge():
    async def spent(_request):
        raise BudgetError("spent")

    spent.name = "spent"
    with pytest.raises(BudgetError):
        await judge_by_decider(spent, subject_of("update"))


def test_what_a_decider_is_asked_makes_the_run_what_it_is():
    plain = MemoryEvaluationSpec(data="x.jsonl", system="none")
    decided = plain.model_copy(update={"decider": "local/laya"})
    assert ask(decided).models == ("local/laya",)
    added = set(ask(decided).prompts) - set(ask(plain).prompts)
    assert added == {f"memory_eval.{name}" for name in decisions_version()}
    one = MemoryJudgementSpec(task="update", texts=TEXTS["update"], decider="local/laya")
    assert ask_one(one).models == ("local/laya",)
    assert not ask_one(one).writes


def test_judge_and_decider_exclude_each_other():
    with pytest.raises(InputError, match="judge and decider both say who judges"):
        MemoryEvaluationSpec(data="x.jsonl", system="none", judge="probe", decider="local/laya")
    with pytest.raises(InputError, match="judge and decider both say who judges"):
        MemoryJudgementSpec(task="update", texts=TEXTS["update"], judge="probe", decider="a/b")
