"""A team writes judges of its own as classes, names them by their path with options, and makes the
mistakes that one makes in a first judge: a word misspelt, nothing returned, an exception.

A row whose judge made a mistake has no score and says why; the other rows have theirs.
"""

import json

import pytest

from registered import own_judges

JUDGES = '''
from dataclasses import dataclass

from textevolve.evaluation import EvaluationResult
from textevolve.judges.context import PlainJudge
from textevolve.judges.judge import judge, judge_option


@judge("shortness", help="how short a text is")
@dataclass(frozen=True)
class Shortness(PlainJudge):
    """Score a text by its number of words."""

    words: int = judge_option(100, help="the number of words with the score 0.5")

    async def grade(self, case, text, threshold):
        score = self.words / (self.words + len(text.split()))
        return EvaluationResult(score, score >= threshold, "counted")


@judge("forgetful", help="forgets to return")
@dataclass(frozen=True)
class Forgetful(PlainJudge):
    """Return a result for one text only."""

    async def grade(self, case, text, threshold):
        if "good" in text:
            return EvaluationResult(0.9, True, "good")


@judge("off-scale", help="grades from 1 to 5")
@dataclass(frozen=True)
class OffScale(PlainJudge):
    """Return grades of another scale."""

    async def grade(self, case, text, threshold):
        return 4 if "bad" in text else 0.9


@judge("broken", help="raises")
@dataclass(frozen=True)
class Broken(PlainJudge):
    """Raise for one text."""

    async def grade(self, case, text, threshold):
        return {"a good text": 0.9}[text]


def brief(case):
    return [0.5 for _ in case.candidates]
'''


@pytest.fixture
def evaluate(cli, home, monkeypatch):
    (home / "team_judges.py").write_text(JUDGES)
    monkeypatch.syspath_prepend(str(home))
    texts = ("a good text", "a bad text")
    rows = [{"id": text, "input": "Write.", "output": text} for text in texts]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(judge, *options):
        return cli("evaluate", "rows.jsonl", "--judge", f"python:team_judges.{judge}", *options)

    with own_judges():
        yield run


@pytest.mark.parametrize(("options", "score"), [("", 100 / 103), ("+words=3", 0.5)])
def test_options_of_a_class(evaluate, options, score):
    outcome = evaluate(f"Shortness{options}")
    assert outcome.code == 0, outcome.err
    assert f"mean score {score:.3f}" in outcome.out


def test_misspelt_option(evaluate):
    outcome = evaluate("Shortness+word=3")
    assert outcome.code == 2
    assert "no parameter 'word'" in outcome.err


def test_options_of_a_function(evaluate):
    outcome = evaluate("brief+words=3")
    assert outcome.code == 2
    assert "only a class of judges takes options" in outcome.err


@pytest.mark.parametrize(
    ("judge", "reason"),
    [
        ("Forgetful", "the judge gave NoneType for a candidate"),
        ("OffScale", "outside 0 to 1"),
        ("Broken", "raised KeyError"),
    ],
)
def test_mistakes_in_a_row(evaluate, home, judge, reason):
    outcome = evaluate(judge, "-o", "out.jsonl", "--min-mean", "0.5")
    assert "1 of 1 case passed" in " ".join(outcome.out.split())
    assert reason in (home / "out.jsonl").read_text()
    assert outcome.code == 4  # the gate counts the row without a score
