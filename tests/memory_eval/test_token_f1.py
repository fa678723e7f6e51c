"""The token F1 of LoCoMo's answers, with values worked out by hand from the published rules."""

import json

import pytest

from textevolve.memory_eval.evaluation import MemoryEvaluation
from textevolve.memory_eval.judging import MemoryJudgement, MemoryVerdict, Subject

pytest.importorskip("nltk")
token_f1 = pytest.importorskip("textevolve.memory_eval.token_f1")


@pytest.mark.parametrize(
    ("kind", "answer", "reference", "expected"),
    [
        ("single-hop", "The red Boats!", "a red boat", 1),  # articles, case, marks and stems
        ("single-hop", "She bought and sold boats", "boat", 2 * 1 / (4 + 1)),
        ("single-hop", "a car", "a boat", 0),
        ("single-hop", "boat boat", "boat", 2 * 1 / (2 + 1)),  # each word counts once
        ("single-hop", "1,000", "1000", 1),
        ("single-hop", "the", "the", 0),  # no word is left, as published
        ("temporal", "7 May, 2023", "7 May 2023", 1),
        ("open-domain", "likely yes", "Likely", 2 * 1 / (2 + 1)),
        ("multi-hop", "running, pottery", "pottery, camping", (1 + 0) / 2),
        ("multi-hop", "running and pottery", "pottery", 2 * 1 / (2 + 1)),
        ("adversarial", "Not mentioned in the talk.", "unknown", 1),
        ("adversarial", "No information available", "unknown", 1),
        ("adversarial", "Unknown.", "unknown", 1),
        ("adversarial", "an unknown boat", "unknown", 0),
    ],
)
def test_words_are_compared_as_published(kind, answer, reference, expected):
    assert token_f1.score_answer(kind, answer, reference) == pytest.approx(expected)


def add(evaluation, kind, answer, task="question"):
    texts = {"question": "What?", "reference": "a red boat", "evidence": ""}
    subject = Subject(task, "u", 0, 1, {**texts, **answer}, question_type=kind)
    evaluation.take(MemoryJudgement(subject, MemoryVerdict("Correct", "")))


def test_answers_are_averaged_by_type():
    evaluation = MemoryEvaluation()
    for kind, answer in (("single-hop", "red boat"), ("single-hop", "car"), ("temporal", "boats")):
        add(evaluation, kind, {"answer": answer})
    add(evaluation, "temporal", {})  # no answer, so no figure
    add(evaluation, "Multi-hop Inference", {"answer": "red boat"})  # of another data set
    assert json.loads(json.dumps(evaluation.published_f1)) == {
        "all": {"value": pytest.approx((1 + 0 + 2 / 3) / 3), "of": 3},
        "single-hop": {"value": 0.5, "of": 2},
        "temporal": {"value": pytest.approx(2 / 3), "of": 1},
    }
