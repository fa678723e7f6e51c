"""Tests of a program's answers, judged by a model; see docs/testing.md. Run them with

pytest examples/test_answers.py --textevolve-model openai/gpt-6-luna
"""

import pytest

from textevolve.testing import aassert_texts, assert_text

ANSWERS = {
    "Why are there tides?": "The moon pulls the sea, and the earth turns beneath the two bulges.",
    "Can I return an opened box?": "Yes, within 30 days and with the receipt.",
    "How do I reset my password?": "Open Settings, choose Security, then Reset password.",
}


def answer(question: str) -> str:
    """Stands for the program that is tested."""
    return ANSWERS[question]


@pytest.mark.parametrize("question", ANSWERS)
def test_the_answer_is_good(question):
    assert_text(question, answer(question), min_score=0.5)


def test_the_answer_says_what_the_handbook_says():
    question = "Can I return an opened box?"
    handbook = "Opened boxes are taken back within 30 days if the receipt is there."
    assert_text(question, answer(question), reference=handbook, min_score=0.5)


def test_the_answer_is_polite():
    question = "How do I reset my password?"
    polite = "Is it polite and to the point?"
    assert_text(question, answer(question), rubric=polite, min_score=0.3)


async def test_all_answers_at_once():  # an async test needs pytest-asyncio
    await aassert_texts([(question, answer(question)) for question in ANSWERS], min_score=0.5)


def brief(case):
    """A judge of your own: a number from 0 to 1 for the text."""
    return 1.0 if len(case.candidates[0].split()) <= 20 else 0.0


def test_the_answer_is_brief():
    assert_text("Why are there tides?", answer("Why are there tides?"), judge=brief)
