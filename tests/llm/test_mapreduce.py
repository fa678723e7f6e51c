"""Long texts in a budget of tokens, on the scripted server; and that what is lost is counted."""

import re

import pytest

from textevolve.errors import AnswerError, BudgetError
from textevolve.llm.mapreduce import Compressed, compress
from textevolve.llm.prompts import count_tokens
from textevolve.llm.testing import Answer, Fault, misbehave
from textevolve.llm.wrappers import Budget, Budgeted

SENTENCE = "The ferry of the year {} carried wool and tin to the town behind the hills. "
LONG = "".join(SENTENCE.format(n) + ("\n\n" if n % 7 == 0 else "") for n in range(400))
WANTED = re.compile(r"in at most (\d+) words\.\s*$")
MATERIAL = re.compile(r"\[\[\w+ text\]\]\n(.*)\n\[\[/\w+ text\]\]", re.DOTALL)


def asked_of(body):
    """The material of a prompt, and how many words are wanted of it."""
    prompt = body["messages"][0]["content"]
    return MATERIAL.search(prompt)[1], int(WANTED.search(prompt)[1])


def shortens(body, _number):
    material, words = asked_of(body)
    return Answer(text=" ".join(material.split()[:words]))


@pytest.fixture
def server(server):
    server.script = shortens
    return server


async def test_what_fits_comes_back_unchanged_without_a_call(client, server):
    assert await compress(client, "  As it is.\n", 100) == Compressed("  As it is.\n", 3, 12)
    assert (await compress(client, ["One.", " ", "Two."], 100)).text == "One.\n\nTwo."
    assert await compress(client, [], 100) == Compressed("", 0, 0)
    assert server.calls == 0


@pytest.mark.parametrize("budget", [1000])
async def test_a_long_text_keeps_the_budget(client, server, budget):
    compressed = await compress(client, LONG, budget, context=2000)
    assert 0 < compressed.tokens == count_tokens(compressed.text) <= budget
    assert compressed.characters == len(LONG)
    assert compressed.dropped.failed == ()
    assert compressed.calls == server.calls


async def test_prompts_share_their_beginning_and_end_with_the_material(client, server):
    await compress(client, LONG, 400, context=2000, instruction="Keep the years.")
    prompts = [body["messages"][0]["content"] for body in server.requests]
    before = {prompt[: prompt.rindex("[[", 0, prompt.index(" text]]\n"))] for prompt in prompts}
    (rules,) = before
    assert "Keep the years." in rules
    assert len({prompt[: len(rules) + 20] for prompt in prompts}) == 1


async def test_an_answer_that_is_too_long_is_asked_for_again_and_then_cut(client, server):
    text = "Many words follow. " * 60
    server.script = lambda _body, _n: Answer(text="A sentence stays whole. " * 40)
    compressed = await compress(client, text, 30)
    assert compressed.text == " ".join(["A sentence stays whole."] * 5)
    assert (compressed.calls, compressed.dropped.asked_again, compressed.dropped.cuts) == (2, 1, 1)
    assert compressed.dropped.cut_characters == 959 - len(compressed.text)
    again = server.requests[-1]["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "user"]
    assert again[-1]["content"].startswith("That has 160 words, and at most 18 are allowed.")


@pytest.mark.parametrize("fault", [Fault.EMPTY, Answer(refusal="No.")])
async def test_a_failed_chunk_is_reported_and_nothing_stands_in_for_it(client, server, fault):
    def script(body, number):
        bad = "year 3 " in body["messages"][0]["content"]
        return (
            (misbehave(fault) if isinstance(fault, Fault) else fault)
            if bad
            else shortens(body, number)
        )

    server.script = script
    compressed = await compress(client, LONG, 2000, context=2000)
    (failed,) = compressed.dropped.failed
    assert (failed.level, failed.skipped) == (1, False)
    assert failed.reason
    assert 0 < failed.characters <= 2000
    assert "year 3 " not in compressed.text
    assert "year 393 " in compressed.text


async def test_where_nothing_is_answered_there_is_an_error(client, server):
    server.script = lambda _body, _n: misbehave(Fault.EMPTY)
    with pytest.raises(AnswerError, match=r"no part of the text could be shortened: .*was empty"):
        await compress(client, LONG, 400)


async def test_a_limit_leaves_chunks_out_and_says_that_they_were_not_asked(client, server):
    model = Budgeted(client, Budget(calls=3), None)
    compressed = await compress(model, LONG, 5000, context=2000, concurrency=1)
    assert server.calls == 3
    assert compressed.dropped.failed
    assert all(chunk.skipped for chunk in compressed.dropped.failed)
    with pytest.raises(BudgetError):
        await compress(Budgeted(client, Budget(calls=0), None), LONG, 5000)
