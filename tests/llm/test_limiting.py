"""Calls that wait for rate limits, at a scripted server that has one."""

import asyncio

import pytest

from textevolve.errors import UnavailableError
from textevolve.events import CallHeld, Event
from textevolve.llm.client import OpenAIClient
from textevolve.llm.limiting import Limited, make_buckets
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, ScriptedServer, WindowLimit
from textevolve.llm.wrappers import Retrying
from textevolve.settings import Retries

PATIENT = Retries(attempts=99, first=0.01, longest=0.05)


def ask(text: object = "?") -> Request:
    return Request(messages=(Message("user", (str(text),)),))


async def test_headers_avoid_refused_calls(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = limit = WindowLimit(20, 0.2)
    model = Retrying(Limited(client, 4), PATIENT)
    answers = await asyncio.gather(*(model(ask(n)) for n in range(60)))
    assert len(answers) == limit.answered == 60
    assert limit.refused <= 8
    assert server.calls == 60 + limit.refused


async def test_a_wait_is_told(server, client) -> None:
    server.script = WindowLimit(2, 0.7)
    heard: list[Event] = []
    model = Limited(client, 1, whose="openai", listener=heard.append)
    for n in range(3):
        await model(ask(n))
    (hold,) = [event for event in heard if isinstance(event, CallHeld)]
    assert hold.reason.startswith("openai's limit of requests")
    assert 0.5 <= hold.wait <= 1.0
    assert hold.model == client.name


async def test_settings_limit_the_first_calls(server, client) -> None:
    """300 a minute: 30 at once, 4.5 a second after that."""
    model = Limited(client, 64, buckets=make_buckets(300, None))
    calls = [asyncio.create_task(model(ask(n))) for n in range(32)]
    while server.calls < 30:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert len([call for call in calls if not call.done()]) >= 1
    await asyncio.gather(*calls)
    assert server.calls == 32


async def test_long_waits_are_errors(server: ScriptedServer, client: OpenAIClient) -> None:
    headers = {
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "5h12m0s",
    }
    server.script = lambda _body, _n: Answer(headers=headers)
    model = Retrying(Limited(client, 4, whose="groq"), PATIENT, deadline=60)
    await model(ask(1))
    with pytest.raises(UnavailableError, match=r"groq's limit of requests allows .* in 18720 s"):
        await model(ask(2))
    assert server.calls == 1


async def test_waiting_calls_can_be_cancelled(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = WindowLimit(1, 0.3)
    model = Limited(client, 4)
    await model(ask(0))
    calls = [asyncio.create_task(model(ask(n))) for n in range(1, 4)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[1].cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in done] == [True, True, False]
    assert (server.calls, model.in_flight, model.load) == (2, 0, 0)
