"""Agents of one model echo each other, flatter before they repeat, answer with a mere sign, quote
what is almost there, and argue for what they do not score.

Reported of other debates and judges: a quotation that lacks a comma counted as invented, one with
an ellipsis as found, groups that answered each other with dots without an end, a verdict that was
written before its reason, and a reason that contradicts its score.
"""

import json

import pytest

from field.debaters import (
    AGENTS,
    CANDIDATES,
    arguing,
    asks_for_words,
    debate,
    is_argued,
    speaker_of,
)
from textevolve.debate.arguing import ARGUMENT_ATTEMPTS, WORD_ATTEMPTS
from textevolve.debate.deciding import answer_type
from textevolve.debate.quoting import copied_words, is_quoted, repeats
from textevolve.debate.result import NOTHING_TO_ADD
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.studies.judged_report import UNMOVED, show_case

SOURCE = "It is -5 degrees, so wear two coats (or three); C# and 5% are names of songs."


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("it is -5 degrees so wear two coats", True),
        ("wear two coats or three C# and 5%", True),
        ("it is 5 degrees", False),
        ("C and 5 are names", False),
        ("wear two coa", False),
        ("wear two … or three", False),
        ("wear … coats", False),
    ],
)
def test_quotations_have_whole_words(words, found):
    assert is_quoted(words, [SOURCE]) is found


def test_a_cut_line_ends_before_the_cut():
    assert copied_words("It is -5 degrees, so wear tw", [SOURCE]) == "It is -5 degrees, so wear"


@pytest.mark.parametrize("flattery", ["You're absolutely right. ", "I fully agree with Critic: "])
def test_flattered_copies_are_copies(flattery):
    argument = "I reject advice that leaves me where I am on a cold platform for an hour."
    assert repeats(flattery + argument, [argument])
    assert not repeats(flattery + "The fare is missing.", [argument])


@pytest.mark.parametrize("sign", [".", "…", "👍", "---"])
async def test_a_sign_is_no_argument(sign):
    def nodding(body, number):
        # An answer of the first round, and then mere signs.
        if is_argued(body) and not asks_for_words(body) and "said:" in json.dumps(body):
            return Answer(text=sign)
        return arguing(body, number)

    async with ScriptedServer(nodding) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
    assert {turn.argument for turn in result.turns if turn.round == 1} == {NOTHING_TO_ADD}
    assert all(turn.scores for turn in result.turns)


async def test_echoes_end():
    def echoing(body, number):
        if is_argued(body) and not asks_for_words(body):
            return Answer(text="I say the same as all of you, and I say it once more.")
        return arguing(body, number)

    async with ScriptedServer(echoing) as server:
        await debate(server, rounds=3, protocol="rebuttal", argument_words=30)
        questions = [body for body in server.requests if is_argued(body)]
    asked = [body for body in questions if not asks_for_words(body)]
    turns = 3 * len(AGENTS)
    assert len(asked) <= ARGUMENT_ATTEMPTS * turns
    assert len(questions) <= ARGUMENT_ATTEMPTS * (WORD_ATTEMPTS + 1) * turns
    assert {speaker_of(body) for body in asked} == set(AGENTS)


def test_reasons_come_before_scores():
    schema = answer_type((1, 2), ("accuracy",), "verbalized").model_json_schema()
    assert next(iter(schema["properties"])) == "argument"
    assert list(schema["$defs"]["Points"]["properties"])[-1] == "scores"


async def test_contradicted_scores_are_explained():
    """Agents may argue for the answer that they score lower: the report says why."""

    def contradicting(body, number):
        if is_argued(body) and not asks_for_words(body):
            return Answer(text=f"I, {speaker_of(body)}, prefer to wait for the train in patience.")
        return arguing(body, number)

    async with ScriptedServer(contradicting) as server:
        result = await debate(server, rounds=2, protocol="rebuttal", argument_words=30)
    assert result.case.candidates[result.best] == CANDIDATES[0]
    texts = [getattr(block, "text", "") for block in show_case(result)]
    assert UNMOVED in texts
