"""Baselines that look at a text without understanding it."""

import pytest

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.judges.plain import LookJudge

CONTEXT = "The Harbour Bridge in Sydney was opened on 19 March 1932. It has 52,800 tonnes."


async def look(text, context=CONTEXT):
    """Return the outcome of `look:facts` for one text."""
    case = Case("Tell about the bridge.", (text,), context=context)
    judgement = await LookJudge("facts")(case)
    return judgement.result[0]


@pytest.mark.parametrize(
    ("text", "score", "feedback"),
    [
        ("The bridge in Sydney was opened in 1932.", 1.0, "all in the context"),
        ("The bridge in Sydney was opened in 1935.", 0.5, "not in the context: 1935"),
        ("It has 52800 tonnes.", 1.0, "all in the context"),
        ("It has 52,801 tonnes.", 0.0, "not in the context: 52,801"),
        ("The bridge of SYDNEY, and that of Perth.", 0.5, "not in the context: Perth"),
        ("Über den Hafen führt sie nach Österreich.", 0.0, "not in the context: Hafen, Österreich"),
    ],
)
async def test_facts_are_counted(text, score, feedback):
    result = await look(text)
    assert (result.score, result.feedback) == (score, feedback)


@pytest.mark.parametrize(
    ("text", "context", "reason"),
    [
        ("I do not know.", CONTEXT, "no number and no name"),
        ("It was opened in 1932.", None, "needs the case's context"),
    ],
)
async def test_nothing_to_compare_is_no_score(text, context, reason):
    failure = await look(text, context)
    assert isinstance(failure, Failure)
    assert reason in failure.reason


def test_other_looks_are_refused():
    with pytest.raises(InputError, match="length, facts"):
        LookJudge("colour")
