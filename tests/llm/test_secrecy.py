"""No key is seen anywhere: the server repeats it in all it says, and all we say is searched."""

import json
import logging
import pickle
import traceback
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from batch_world import MemoryJournal
from pydantic import SecretStr

from textevolve.errors import ModelError, TextEvolveError
from textevolve.llm.client import OpenAIClient, connect
from textevolve.llm.discovery import probe_endpoint
from textevolve.llm.model import Message, Request
from textevolve.llm.providers import resolve
from textevolve.llm.testing import Answer, Fault, ScriptedServer
from textevolve.llm.wrappers import Journaled, Retrying
from textevolve.settings import Retries, Settings, Timeouts

KEY = "sk-proj-DoNotShow/This+Key_0123456789"
REQUEST = Request(messages=(Message("user", ("?",)),), top_logprobs=2)
ECHO = {
    "message": f"Incorrect API key provided: {KEY}. You sent Authorization: Bearer {KEY}",
    "type": f"type {KEY}",
    "param": KEY,
    "code": KEY,
}
QUICK = Retries(attempts=2, first=0.0)


@pytest.fixture
async def guarded() -> AsyncIterator[tuple[ScriptedServer, OpenAIClient]]:
    async with (
        ScriptedServer(key=KEY) as server,
        OpenAIClient(server.url, "m", key=SecretStr(KEY)) as client,
    ):
        yield server, client


def everything_said(error: BaseException) -> str:
    """What a traceback, a log and a debugger would show of an error, its locals included."""
    seen = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(
        ("".join(traceback.format_exception(error)), "".join(seen.format()), repr(error.args))
    )


async def failure(client: OpenAIClient) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await Retrying(client, QUICK)(REQUEST)
    assert caught.value.__context__ is None or isinstance(caught.value.__context__, TextEvolveError)
    return caught.value


@pytest.mark.parametrize("status", [302, 401, 429])
@pytest.mark.parametrize("shape", ["object", "nested"])
async def test_a_refusal_that_repeats_the_key(
    guarded: tuple[ScriptedServer, OpenAIClient], status: int, shape: str
) -> None:
    server, client = guarded
    bodies: Mapping[str, Any] = {
        "object": {"error": ECHO},
        "nested": {"detail": [{"loc": [KEY], "msg": KEY, "input": {"headers": {KEY: KEY}}}]},
    }
    body = json.dumps(bodies[shape]).encode()
    headers = {"Location": f"http://127.0.0.1/{KEY}", "Retry-After": "0"}
    server.script = lambda _body, _n: Answer(status=status, body=body, headers=headers)
    error = await failure(client)
    assert KEY not in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


FAULTS = [Fault.UNAUTHORISED, Fault.RESET, Fault.CUT_BODY, Fault.NOT_JSON, Fault.ERROR_IN_200]
NO_ANSWERS = ({"error": ECHO}, f"<html>{KEY}</html>", {"choices": [], "note": KEY})
"""With the status 200."""


@pytest.mark.parametrize(
    "fault", [*FAULTS, *(Answer(body=json.dumps(answer).encode()) for answer in NO_ANSWERS)]
)
async def test_every_kind_of_failure(
    guarded: tuple[ScriptedServer, OpenAIClient], fault: Fault | Answer
) -> None:
    server, client = guarded
    server.script = lambda _body, _n: fault
    assert KEY not in everything_said(await failure(client))


async def test_what_is_shown_of_a_client_and_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint = resolve("openai/gpt-6-luna", Settings())
    async with connect(endpoint, Timeouts()) as client:
        output = f"{endpoint!r} {endpoint} {client!r} {client} {client.name} {client.refused}"
    assert KEY not in output


async def test_logs(
    guarded: tuple[ScriptedServer, OpenAIClient], caplog: pytest.LogCaptureFixture
) -> None:
    server, client = guarded
    with caplog.at_level(logging.DEBUG):
        await client(REQUEST)
        server.script = lambda _body, _n: Answer(status=401, body=json.dumps(ECHO).encode())
        await failure(client)
        capabilities = await probe_endpoint(client)
    assert KEY not in caplog.text
    assert KEY not in repr(capabilities)


async def test_an_answer_that_repeats_the_key_is_kept_without_it(
    guarded: tuple[ScriptedServer, OpenAIClient],
) -> None:
    server, client = guarded
    journal = MemoryJournal()
    model = Journaled(client, journal)
    server.script = lambda _body, _n: f"your key is {KEY}."
    assert (await model(REQUEST)).text == "your key is [key]."
    server.script = lambda _body, _n: Answer(status=400, body=json.dumps(ECHO).encode())
    with pytest.raises(ModelError):
        await model(replace(REQUEST, seed=2))
    assert len(journal.entries) == 2
    assert KEY.encode() not in pickle.dumps(journal.entries)
