"""Decisions of a chat model: what is asked, and what is read out of the answers."""

from __future__ import annotations

import json
import math

import pytest

from textevolve.errors import AnswerError, CapabilityError
from textevolve.evaluation import Failure
from textevolve.llm.client import OpenAIClient
from textevolve.llm.decisions import choice, decide, predicate, score
from textevolve.llm.testing.answers import Answer as Said
from textevolve.llm.testing.server import ScriptedServer
from textevolve.llm.verdicts import Deciding

POLITE = predicate("polite", "Is the text polite?")
TOPIC = choice("topic", "What is it about?", {"money": "prices", "love": "", "war": "battles"})
LENGTH = score("length", "How long is it?", ["one word", "a line", "a page"])


def chat(script=None, **more):
    return ScriptedServer(script, **more)


def client(server):
    return OpenAIClient(server.url, "scripted", name="scripted")


def prefer(word):
    """A model that wants the label which stands before `word` in the list of options."""

    def answer(body, _):
        text = body["messages"][-1]["content"]
        line = next(line for line in text.splitlines() if word in line and ": " in line[:4])
        label = line.split(":")[0]
        top = [
            {"token": single_text, "logprob": math.log(0.9 if single_text == label else 0.01)}
            for single_text in "ABC"
        ]
        token = {"token": label, "logprob": math.log(0.9), "top_logprobs": top}
        fields = {
            "choices": [
                {
                    "message": {"role": "assistant", "content": label},
                    "finish_reason": "length",
                    "logprobs": {"content": [token]},
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1},
        }
        return Said(body=json.dumps(fields).encode())

    return answer


async def test_every_question_has_a_distribution_and_each_list_is_shown_both_ways():
    async with chat() as server, client(server) as model:
        decision = await decide(Deciding(model, None), "The state.", [POLITE, TOPIC, LENGTH])
    assert decision.emulated
    assert decision.usage.calls == server.calls == 5
    assert [len(decision.answer(n).probabilities) for n in ("polite", "topic", "length")] == [
        2,
        3,
        3,
    ]
    for answer in decision.answers.values():
        assert sum(answer.probabilities) == pytest.approx(1)
    contents = [body["messages"][-1]["content"] for body in server.requests]
    assert all(text.startswith("The state.\n\n") for text in contents)
    assert "A: money: prices\nB: love\nC: war: battles\n" in contents[1]
    assert "A: war: battles\nB: love\nC: money: prices\n" in contents[2]
    assert "0: one word\n1: a line\n2: a page\n" in contents[3]
    assert "2: a page\n1: a line\n0: one word\nAnswer with one number, 2, 1 or 0.\n" in contents[4]
    assert all(body["max_tokens"] == 1 and body["top_logprobs"] == 20 for body in server.requests)


async def test_a_choice_follows_the_option_and_a_liking_for_a_place_cancels():
    async with chat(prefer("war")) as server, client(server) as model:
        decision = await decide(Deciding(model, None), "state", [TOPIC])
        assert decision.answer("topic").best == 2
        server.script = lambda body, _: Said(yes=0.9)  # always the first place
        decision = await decide(Deciding(model, None), "other state", [TOPIC])
        first_value, middle, last = decision.answer("topic").probabilities
        assert first_value == pytest.approx(last)
        assert first_value > middle


async def test_an_answer_beside_the_labels_fails_its_question_alone():
    def script(body, _):
        return Said(text="Perhaps") if "polite" in body["messages"][-1]["content"] else None

    async with chat(script) as server, client(server) as model:
        decision = await decide(Deciding(model, None), "state", [POLITE, LENGTH])
    assert isinstance(decision.answers["polite"], Failure)
    assert "Perhaps" in decision.answers["polite"].reason
    with pytest.raises(AnswerError, match="polite"):
        decision.answer("polite")
    assert decision.answer("length")


async def test_an_endpoint_without_log_probabilities_cannot_decide():
    def script(body, number):
        fields = {"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}]}
        return Said(body=json.dumps(fields).encode())

    async with chat(script) as server, client(server) as model:
        with pytest.raises(CapabilityError, match="log-prob"):
            await decide(Deciding(model, None), "state", [POLITE])


async def test_a_state_that_is_too_long_loses_its_middle_and_says_so():
    async with chat() as server, client(server) as model:
        deciding = Deciding(model, None, most_characters=100)
        decision = await decide(deciding, ("a" * 300, "z" * 300), [POLITE])
        assert decision.cut == 500
        text = server.requests[0]["messages"][-1]["content"]
        assert text.startswith("a" * 50 + "\n[... 500 characters left out ...]\n" + "z" * 50)
        assert (await decide(deciding, "short", [POLITE])).cut == 0
