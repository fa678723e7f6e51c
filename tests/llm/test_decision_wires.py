"""Bodies and answers of the decision wires, held against the published forms in `fixtures`."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.evaluation import Failure, Usage
from textevolve.llm.decisions import (
    Answer,
    Question,
    Wire,
    choice,
    dump_answers,
    predicate,
    read_decision,
    score,
)
from textevolve.llm.model import Response
from textevolve.protocol.decisions import read_answers, write_questions

FIXTURES = Path(__file__).parent / "fixtures"
STATE = "I was charged twice for one order. Please help today."
TOPICS = {
    "billing": "Charges, refunds, invoices",
    "technical": "Faults of the product",
    "other": "",
}
QUESTIONS = (
    predicate("angry", "Is the writer angry?", yes="Insults or threats"),
    choice("topic", "What is it about?", TOPICS),
    score("urgency", "How urgent is it?", ["It can wait", "This week", "Today"]),
)
PUBLISHED = {"angry": (0.88, 0.12), "topic": (0.88, 0.1, 0.02), "urgency": (0.1, 0.1, 0.8)}


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def read(wire: Wire, answers: Any, questions: tuple[Question, ...] = QUESTIONS):
    text = dump_answers(*read_answers(answers, questions))
    return read_decision(Response(text, "stop", Usage()), questions).answers


def reason(wire: Wire, answer: Any, question: Question) -> str:
    failed = read(wire, {question.name: answer}, (question,))[question.name]
    assert isinstance(failed, Failure)
    return failed.reason


@pytest.mark.parametrize(
    ("wire", "name", "model"),
    [("systemone", "systemone", "jev-latest"), ("decisions", "openai", "gpt-6-luna")],
)
def test_requests_have_the_published_form(wire: Wire, name: str, model: str):
    assert write_questions(wire, model, STATE, QUESTIONS) == fixture(f"{name}.request")


@pytest.mark.parametrize(
    ("wire", "name"),
    [("systemone", "systemone"), ("systemone", "upstage"), ("decisions", "fireworks")],
)
def test_published_answers_are_read(wire: Wire, name: str):
    text = read(wire, fixture(f"{name}.answer")["answers"])
    for question, expected in PUBLISHED.items():
        answer = text[question]
        assert isinstance(answer, Answer)
        assert answer.probabilities == pytest.approx(expected)


@pytest.mark.parametrize("name", ["llamacpp", "ollama", "openrouter"])
def test_answers_of_other_servers_of_system_one_are_read(name: str):
    answers = fixture(f"{name}.answer")["answers"]
    for question, answer in read("systemone", answers).items():
        assert isinstance(answer, Answer), question
        assert sum(answer.probabilities) == pytest.approx(1)


def test_a_refused_question_fails_alone():
    given = fixture("openai.answer")
    theirs = pytest.importorskip("openai.types.decision", reason="comes with the extra mem0")
    theirs.Decision.model_validate(given)  # the fixture is what their own types take
    text = read("decisions", given["answers"])
    assert isinstance(text["angry"], Answer)
    assert isinstance(text["topic"], Answer)
    assert isinstance(text["urgency"], Failure)
    assert "refuses" in text["urgency"].reason


def test_a_question_left_out_is_missing_and_never_half():
    text = read("systemone", {"angry": {"type": "noul", "noul": 0.9}})
    assert isinstance(text["angry"], Answer)
    for name in ("topic", "urgency"):
        failed = text[name]
        assert isinstance(failed, Failure)
        assert "without an answer" in failed.reason


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"type": "noul", "noul": 1.2}, "no probability"),
        ({"type": "noul", "noul": True}, "no probability"),
        ({"type": "noul", "noul": float("nan")}, "no probability"),
        ({"type": "noul"}, "no probability"),
        ({"type": "box", "box": {}}, "type 'box'"),
        ({"type": "refusal", "refusal": "I would rather not"}, "rather not"),
        ({"type": "refusal", "refusal": None, "message": "I would rather not"}, "rather not"),
        (0.5, "no object"),
    ],
)
def test_what_is_no_answer_to_a_predicate_fails_with_its_reason(answer: Any, said: str):
    assert said in reason("systemone", answer, QUESTIONS[0])


@pytest.mark.parametrize(
    ("probabilities", "said"),
    [
        ({"billing": 0.5, "technical": 0.5}, "other options"),
        ({"billing": 0.5, "technical": 0.2, "other": 0.1}, "no distribution"),
        ({"billing": 1.4, "technical": -0.2, "other": -0.2}, "no distribution"),
        (None, "no probabilities"),
    ],
)
def test_what_is_no_distribution_fails_with_its_reason(probabilities: Any, said: str):
    answer = {"type": "choice", "choice": "billing", "probabilities": probabilities}
    assert said in reason("systemone", answer, QUESTIONS[1])


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=10))
def test_probabilities_rounded_to_two_decimals_are_a_distribution(shares: list[float]):
    rounded = [round(share / sum(shares), 2) for share in shares]
    question = score("q", "How much?", [f"level {n}" for n in range(len(shares))])
    row = {str(number): p for number, p in enumerate(rounded)}
    (answer,) = read(
        "systemone", {"q": {"type": "score", "probabilities": row}}, (question,)
    ).values()
    assert isinstance(answer, Answer)
    assert sum(answer.probabilities) == pytest.approx(1)
