"""An endpoint bills a call that gave no usable answer: the line broke, the time ran out, the body
has no choice, or the reader went away."""

import asyncio
import json

import pytest
from pydantic import SecretStr

from textevolve.evaluation import Usage
from textevolve.llm.client import OpenAIClient
from textevolve.llm.meter import SentCall, Tab, UsageMeter
from textevolve.llm.model import text_request
from textevolve.llm.testing import Answer
from textevolve.llm.wrappers import Budget, Budgeted, Retrying
from textevolve.settings import Price, Retries

ROW = {"input": "Why is the sky blue?", "candidates": ["It scatters light."]}
ROWS = json.dumps(ROW) + "\n"
SETTINGS = """\
[retries]
attempts = 2
first = 0.001
longest = 0.002
[timeouts]
read = 0.3
total = 0.3
[prices."URL#scripted"]
input = 1.0
output = 2.0
"""
USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}
COST = 0.002
"""The dollars for `USAGE`: 1,000 tokens for 1 dollar a million, 500 for 2."""


def judge(cli, home, server, *options, rows=ROWS):
    """Judge rows by calls that have a price; return the ended command and the listed run."""
    text = SETTINGS.replace("URL", server.url)
    (home / "textevolve.toml").write_text(text, encoding="utf-8")
    (home / "rows.jsonl").write_text(rows, encoding="utf-8")
    model = f"{server.url}#scripted"
    outcome = cli("evaluate", "rows.jsonl", "--judge", "probe", "-m", model, *options)
    listed = cli("runs", "list", "--json").out.splitlines()
    return outcome, json.loads(listed[0])


def body(**fields):
    """Return a completion with `USAGE` and these fields."""
    full_fields = {"id": "c", "object": "chat.completion", "model": "scripted", "usage": USAGE}
    return Answer(body=json.dumps({**full_fields, **fields}).encode())


NO_ANSWERS = {
    "no choices": body(choices=[]),
    "choices of null": body(choices=None),
    "no choices, counts as floats": body(
        choices=[], usage={"prompt_tokens": 1000.0, "completion_tokens": 500.0}
    ),
    "half an answer": body(
        choices=[
            {
                "index": 0,
                "finish_reason": "error",
                "message": {"role": "assistant", "content": "Mad"},
                "error": {"code": 502, "message": "upstream overloaded"},
            }
        ]
    ),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_no_choice_is_charged(cli, home, server, name):
    server.script = lambda _body, _number: NO_ANSWERS[name]
    _ended, run = judge(cli, home, server)
    assert run["tokens"] == 2 * 1500
    assert run["cost"] == pytest.approx(2 * COST)


@pytest.mark.parametrize("transport", ["cut", "reset", "hang"])
def test_broken_answers_are_charged(cli, home, server, transport):
    server.script = lambda _body, _number: Answer(text="Yes", usage=USAGE, transport=transport)
    _ended, run = judge(cli, home, server)
    assert run["tokens"] > 0
    assert run["cost"] > 0


def test_a_page_costs_nothing(cli, home, server):
    page = Answer(body=b"<html>Just a moment ...</html>")
    server.script = lambda _body, _number: page
    _ended, run = judge(cli, home, server)
    assert (run["tokens"], run["cost"]) == (0, 0.0)


def test_broken_answers_reach_a_limit(cli, home, server):
    server.script = lambda _body, _number: body(choices=[])
    rows = "".join(json.dumps({**ROW, "input": f"Why {number}?"}) + "\n" for number in range(3))
    outcome, run = judge(cli, home, server, "--max-cost", "0.001", rows=rows)
    assert run["cost"] == pytest.approx(2 * COST)  # both attempts of the first call
    assert "the limit of $0.001 is reached" in outcome.err


@pytest.mark.parametrize("cost", [0, 0.5, 123.0])
def test_own_prices_beat_reported_costs(cli, home, server, cost):
    answer = Answer(text="Yes", yes=0.9, usage={**USAGE, "cost": cost})
    server.script = lambda _body, _number: answer
    _ended, run = judge(cli, home, server)
    assert run["cost"] == pytest.approx(COST * run["calls"])


async def test_reported_costs_count_without_prices(server):
    server.script = lambda _body, _number: Answer(text="Yes", usage={**USAGE, "cost": 0.25})
    async with OpenAIClient(server.url, "scripted") as client:
        (usage,) = await ask_once(client)
    assert usage.cost == 0.25


async def ask_once(client):
    with Tab() as tab:
        await client(text_request("Why?", 8, 0))
    return tab.answers


PRICE = Price(input=1.0, output=2.0)


async def test_cancelled_attempts_are_charged():
    async def wait():
        with SentCall(1000, PRICE, received=lambda: "word " * 400):
            await asyncio.sleep(3600)

    with Tab() as tab:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (lost,) = tab.failures
    assert lost.reason == "cancelled before the answer came"
    # 2,000 characters are 500 tokens by the rough count of four characters a token.
    assert lost.usage == Usage(1, 1000, 0, 500, 0.001 + 0.001, estimated=1)


def fail_after_answer():
    with SentCall(10, PRICE) as attempt:
        attempt.answered = True
        attempt.usage = Usage(1, 7, 0, 0, 7e-6)
        raise ValueError("odd")


def test_tabs_pass_on_attempts():
    with Tab() as outer:
        with Tab() as inner, pytest.raises(ValueError, match="odd"):
            fail_after_answer()
        assert inner.usage == Usage(1, 7, 0, 0, 7e-6)
    assert outer.failures == inner.failures


async def test_meters_count_lost_attempts(server):
    lost = body(choices=[])
    server.script = lambda _body, number: lost if number == 1 else Answer(text="Yes", usage=USAGE)
    async with OpenAIClient(server.url, "scripted", price=PRICE) as client:
        meter = UsageMeter(Retrying(client, Retries(attempts=2, first=0.0)))
        await meter(text_request("Why?", 8, 0))
    assert meter.usage == Usage(2, 2000, 0, 1000, 2 * COST)


async def test_lost_attempts_leave_costs_known(server):
    """An endpoint that says costs in its answers says none of an answer that breaks off."""

    def script(_body, number):
        transport = "cut" if number == 2 else "whole"
        return Answer(text="Yes", usage={**USAGE, "cost": 0.25}, transport=transport)

    server.script = script
    budget = Budget(cost=1.0)
    async with OpenAIClient(server.url, "scripted", key=SecretStr("sk-paid")) as client:
        model = Budgeted(Retrying(client, Retries(attempts=2, first=0.0)), budget)
        for number in range(2):
            await model(text_request(f"Why {number}?", 8, 0))
    assert budget.spent.cost is not None
    assert 0.5 < budget.spent.cost < 0.6
    assert budget.spent.calls == 3
