"""The judge that reads backwards: what is asked, what counts of the answer, what goes wrong."""

import json
import math

import pytest

from textevolve.errors import AnswerError, CapabilityError
from textevolve.evaluation import Case, Failure, Usage
from textevolve.judges.measures import InstructionLikelihood, read_surprise
from textevolve.judges.opening import Judges
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Response
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.testing.answers import forced_text, split_tokens

CASE = Case("Name a prime below ten.", ("Seven.", "Tenish.", "Eight."), "prime")
NATS = {"Seven.": 0.5, "Tenish.": 2.0, "Eight.": 4.0, "": 4.0}
"""By response, what each token of the instruction surprises."""


def shown(body):
    return body["messages"][-1]["content"].split("response]]\n")[1].rsplit("\n[[/", 1)[0]


def honest(body, _number=0):
    """What a grammar forces; each token surprises by what `NATS` says."""
    text = forced_text(body["grammar"])
    content = [
        {"token": "?", "bytes": list(piece), "logprob": -NATS[shown(body)], "top_logprobs": []}
        for _, piece in split_tokens(text)
    ]
    choice = {"message": {"content": text}, "logprobs": {"content": content}}
    return Answer(body=json.dumps({"choices": [choice], "usage": {}}).encode())


async def judge(case=CASE, script=honest, tokenizes=True):
    server = ScriptedServer(script, tokenizes=tokenizes)
    async with server, OpenAIClient(server.url, "scripted") as client:
        evaluation = await Judges("scripted", lambda _: client).open(InstructionLikelihood())(case)
    return evaluation, server.requests


async def test_the_less_an_instruction_surprises_the_better_the_response():
    evaluation, records = await judge()
    assert [result.score for result in evaluation.result] == pytest.approx([8 / 9, 2 / 3, 1 / 2])
    assert evaluation.result[0].metadata["log_odds"] == pytest.approx(math.log(4.0 / 0.5))
    assert evaluation.result[0].metadata["surprise"]["alone"] == pytest.approx(
        4.0 * len(CASE.input)
    )
    assert {forced_text(body["grammar"]) for body in records} == {CASE.input}
    assert sorted(shown(body) for body in records) == sorted(NATS)
    assert not any(CASE.input in body["messages"][-1]["content"] for body in records)


async def test_the_empty_response_is_asked_once_for_all_that_answer_an_input():
    _, first_records = await judge()
    _, second_records = await judge(Case(CASE.input, ("Eight.",)))
    one, other = (body for body in (*first_records, *second_records) if shown(body) == "")
    assert one == other


async def test_an_endpoint_that_forces_nothing_is_refused():
    with pytest.raises(CapabilityError, match="does not force a text"):
        await judge(script=None, tokenizes=False)
    with pytest.raises(AnswerError, match="empty"):
        read_surprise(Response("", "stop", Usage()), "x")


async def test_an_answer_that_fails_fails_its_candidate_alone():
    def script(body, number):
        return Answer(text="") if shown(body) == "Tenish." else honest(body, number)

    evaluation, _ = await judge(script=script)
    assert [isinstance(result, Failure) for result in evaluation.result] == [False, True, False]
    assert evaluation.coverage == pytest.approx(2 / 3)
