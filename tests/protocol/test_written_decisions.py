"""Questions and answers in both decision protocols are read as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from textevolve.protocol.contents import Answer, Question, choice, predicate, score
from textevolve.protocol.decisions import (
    DecisionsQuestion,
    SystemOneRequest,
    read_answers,
    write_questions,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
MEANINGS = st.text("abc ", max_size=8)
OPTIONS = st.dictionaries(TEXTS, MEANINGS, min_size=2, max_size=5)
LEVELS = st.lists(TEXTS, min_size=2, max_size=10)
PREDICATES = st.builds(predicate, st.just("q1"), TEXTS, yes=MEANINGS, no=MEANINGS)
LISTED = st.one_of(
    st.builds(choice, st.just("q1"), TEXTS, OPTIONS), st.builds(score, st.just("q1"), TEXTS, LEVELS)
)
DECISIONS = TypeAdapter(list[DecisionsQuestion])


def draw_answer(data: st.DataObject, question: Question) -> Answer:
    count = len(question.options)
    shares = data.draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    return Answer(tuple(share / sum(shares) for share in shares))


@given(st.data(), st.one_of(PREDICATES, LISTED))
def test_system_one_keeps_decisions(data, question):
    body = write_questions("systemone", "any", "a state", [question])
    request = SystemOneRequest.model_validate(body)
    assert request.read() == (question,)
    answer = draw_answer(data, question)
    answers = {"q1": request.questions["q1"].write(answer)}
    rows, failed = read_answers(answers, [question])
    assert rows["q1"] == pytest.approx(answer.probabilities)
    assert not failed


@given(st.data(), st.one_of(st.builds(predicate, st.just("q1"), TEXTS), LISTED))
def test_openais_protocol_keeps_decisions(data, question):
    body = write_questions("decisions", "any", "a state", [question])
    (entry,) = DECISIONS.validate_python(body["questions"])
    assert entry.read("q1") == question
    answer = draw_answer(data, question)
    rows, failed = read_answers([entry.write(answer)], [question])
    assert rows["q1"] == pytest.approx(answer.probabilities)
    assert not failed
