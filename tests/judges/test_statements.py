"""Judges that take a text apart, on the scripted server."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.errors import InputError
from textevolve.evaluation import Case, Failure
from textevolve.judges.judge import parse_judge
from textevolve.judges.opening import Judges
from textevolve.judges.statements import average_precision, split_passages
from textevolve.llm.client import OpenAIClient
from textevolve.llm.testing import Answer, ScriptedServer

CASE = Case(
    "Where is the Louvre?",
    ("It is in Paris. It opened in 1950.",),
    "louvre",
    reference="In Paris. It lies by the Seine.",
    context="The Louvre is in Paris.\n\nIt opened in 1793.\n \nParis lies at the Seine.",
)
STATEMENTS = ["The Louvre is in Paris.", "The Louvre opened in 1950."]
SUPPORTED = {STATEMENTS[0]: 0.9, STATEMENTS[1]: 0.2}


def text_of(body):
    return body["messages"][-1]["content"]


def answering(statements, yes):
    """Lists the statements, and answers a question on each by the first part that stands in it."""

    def script(body, _number):
        if body.get("max_tokens") != 1:
            return Answer(text=json.dumps({"statements": statements}))
        part = text_of(body).rpartition("\n> ")[2].splitlines()[0]
        return Answer(yes=yes[part])

    return script


async def judge(name, script, case=CASE):
    async with ScriptedServer(script) as server, OpenAIClient(server.url, "scripted") as client:
        evaluation = await Judges("scripted", lambda _: client).open(parse_judge(name))(case)
    return evaluation, server.requests


async def test_faithfulness_is_the_share_of_statements_that_the_context_supports():
    evaluation, records = await judge("faithfulness", answering(STATEMENTS, SUPPORTED))
    (result,) = evaluation.result
    assert result.score == pytest.approx(0.55, abs=1e-6)
    assert result.passed
    assert (result.metadata["yes"], result.metadata["parts"]) == (1, 2)
    assert "20% yes: The Louvre opened in 1950." in result.feedback
    assert evaluation.usage.calls == len(records) == 3
    listing, *probes = records
    assert "1793" not in text_of(listing)  # statements are those of the response alone
    assert all("> It opened in 1793." in text_of(body) for body in probes)
    assert all("opened in 1950.\n\nStatement" not in text_of(body) for body in probes)


async def test_each_candidate_has_statements_of_its_own_and_recall_those_of_the_reference():
    two = replace(CASE, candidates=(*CASE.candidates, "In Rome. It is old."))
    evaluation, records = await judge("faithfulness", answering(STATEMENTS, SUPPORTED), two)
    assert len(evaluation.result) == 2
    assert len(records) == 6
    evaluation, records = await judge("context-recall", answering(STATEMENTS, SUPPORTED), two)
    assert evaluation.result[0] == evaluation.result[1]
    assert evaluation.result[0].score == pytest.approx(0.55, abs=1e-6)
    assert len(records) == 3
    assert "> In Paris. It lies by the Seine." in text_of(records[0])
    assert not any("In Rome" in text_of(body) for body in records)


@pytest.mark.parametrize(
    ("yes", "wanted"), [((0.9, 0.1, 0.1), 1), ((0.9, 0.1, 0.9), (1 + 2 / 3) / 2)]
)
async def test_precision_counts_passages_by_their_rank(yes, wanted):
    passages = split_passages(CASE.context)
    shares = dict(zip(passages, yes, strict=True))
    evaluation, records = await judge("context-precision", answering([], shares))
    assert evaluation.result[0].score == pytest.approx(wanted)
    assert len(records) == 3
    assert all("Answer:\n> In Paris. It lies by the Seine." in text_of(body) for body in records)
    evaluation, records = await judge(
        "context-precision", answering([], shares), replace(CASE, reference=None)
    )
    assert all("Answer:\n> It is in Paris. It" in text_of(body) for body in records)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_average_precision_is_its_definition(relevant):
    expected_values = [
        sum(relevant[: k + 1]) / (k + 1) for k, is_relevant in enumerate(relevant) if is_relevant
    ]
    value = average_precision([0.8 if one else 0.3 for one in relevant])
    assert value == pytest.approx(
        sum(expected_values) / len(expected_values) if expected_values else 0
    )
    assert (value == pytest.approx(1)) == (
        any(relevant) and relevant == sorted(relevant, reverse=True)
    )


@pytest.mark.parametrize("statements", [[], [" ", "\n"]])
async def test_where_nothing_is_claimed_the_score_is_missing(statements):
    refusal = replace(CASE, candidates=("I do not know that.",))
    evaluation, records = await judge("faithfulness", answering(statements, {}), refusal)
    (result,) = evaluation.result
    assert isinstance(result, Failure)
    assert result.kind == "failed"
    assert "no statement that could be scored" in result.reason
    assert evaluation.coverage == 0
    assert len(records) == 1


async def test_a_sentence_in_which_a_small_model_sees_no_claim_is_asked_about_again():
    plain = "Their third album came out in 2004."
    refusal = "I do not know the album of 2004."

    def script(body, number):
        if body.get("max_tokens") != 1:
            return Answer(text='{"statements": []}')
        if "claim something" in text_of(body):
            return Answer(yes=0.59 if "I do not know" in text_of(body) else 0.61)
        return Answer(yes=0.7)

    two = replace(CASE, candidates=(plain, refusal))
    evaluation, records = await judge("faithfulness", script, two)
    scored, failed = evaluation.result
    assert scored.score == pytest.approx(0.7)
    assert scored.metadata["parts"] == 1
    assert "no statement that could be scored" in failed.reason
    assert len(records) == 5


@pytest.mark.parametrize("text", ["I cannot help with that.", '{"statements": [1]}'])
async def test_where_no_list_can_be_read_sentences_are_the_statements(text):
    def script(body, number):
        return Answer(yes=0.8) if body.get("max_tokens") == 1 else Answer(text=text)

    evaluation, records = await judge("faithfulness", script)
    assert evaluation.result[0].score == pytest.approx(0.8)
    assert [text_of(body).count("> It opened in 1950.") for body in list(records)[-2:]] == [0, 1]


@pytest.mark.parametrize(
    ("name", "gone"), [("faithfulness", "context"), ("context-recall", "reference")]
)
async def test_a_case_without_what_is_needed_cannot_be_judged(name, gone):
    with pytest.raises(InputError, match=f"needs a field '{gone}'"):
        await judge(name, answering(STATEMENTS, SUPPORTED), replace(CASE, **{gone: None}))
