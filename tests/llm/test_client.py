import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from textevolve.errors import (
    AccessError,
    AnswerError,
    CapabilityError,
    ModelError,
    SettingsError,
    TooLongError,
    UnavailableError,
)
from textevolve.llm.client import OpenAIClient
from textevolve.llm.embeddings import embed
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, Fault, ScriptedServer, misbehave
from textevolve.settings import Price

SCHEMA = {
    "type": "object",
    "properties": {"argument": {"type": "string"}, "score": {"type": "integer", "maximum": 10}},
    "required": ["argument", "score"],
}


def ask(text: str = "Which is better?", **more: Any) -> Request:
    return Request(messages=(Message("user", (text,)),), **more)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  the server has no event for each state
        await asyncio.sleep(0.001)


def always(answer: Answer | Fault | str) -> Callable[..., Answer | Fault | str]:
    return lambda _body, _number: answer


async def test_only_what_is_set_is_sent(server: ScriptedServer, client: OpenAIClient) -> None:
    await client(Request(messages=(Message("system", ("a", "b")), Message("user", ("c",)))))
    assert server.requests[-1] == {
        "model": "scripted",
        "messages": [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}],
    }
    await client(
        ask(schema=json.dumps(SCHEMA), temperature=0.0, max_tokens=9, seed=3, top_logprobs=2)
    )
    sent = server.requests[-1]
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert sent["response_format"]["json_schema"]["strict"] is True
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.0, 9, 3)
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 2)


async def test_text_that_is_no_clean_unicode_arrives(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    await client(ask("\ud800 \x00 ü 漢"))
    assert server.requests[-1]["messages"][0]["content"] == "\ud800 \x00 ü 漢"
    broken = b'{"choices":[{"message":{"content":"half \\ud83d char \xff"}}]}'
    server.script = always(Answer(body=broken))
    response = await client(ask())
    assert response.text == "half \ufffd char \ufffd"


UNAVAILABLE = {
    Fault.RATE_LIMIT: 429,
    Fault.TIMEOUT: None,
    Fault.NOT_JSON: None,
    Fault.ERROR_IN_200: 502,
}


@pytest.mark.parametrize("fault", UNAVAILABLE)
async def test_what_is_worth_another_try(
    server: ScriptedServer, client: OpenAIClient, hasty: OpenAIClient, fault: Fault
) -> None:
    server.script = always(fault)
    with pytest.raises(UnavailableError) as caught:
        await (hasty if fault is Fault.TIMEOUT else client)(ask())
    assert caught.value.status == UNAVAILABLE[fault]
    assert client.name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.UNAUTHORISED, AccessError),
        (Fault.TOO_LONG_OPENAI, TooLongError),
        (Fault.NO_LOGPROBS, CapabilityError),
    ],
)
async def test_what_is_not(
    server: ScriptedServer, client: OpenAIClient, fault: Fault, kind: type[ModelError]
) -> None:
    server.script = always(fault)
    with pytest.raises(kind) as caught:
        await client(ask(top_logprobs=5))
    if kind is TooLongError:
        assert "8192 tokens" in str(caught.value)
    assert server.calls == 1


async def test_a_refused_schema_is_left_out_and_remembered(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.script = lambda body, _n: Fault.NO_SCHEMA if "response_format" in body else "plain"
    assert client.schema is None
    answers = await asyncio.gather(
        *(client(ask(str(n), schema=json.dumps(SCHEMA))) for n in range(3))
    )
    assert [answer.text for answer in answers] == ["plain"] * 3
    assert client.schema is False
    before = server.calls
    await client(ask(schema=json.dumps(SCHEMA)))
    assert server.calls == before + 1


async def test_embeddings_and_models(server: ScriptedServer, client: OpenAIClient) -> None:
    first_values, second_values, again = [await embed(client, text) for text in ("a", "b", "a")]
    assert first_values == again != second_values
    assert sum(part * part for part in first_values) == pytest.approx(1.0)
    assert await client.models() == ["scripted"]


# An answer's size


async def test_an_answer_without_an_end_is_read_up_to_the_limit(server: ScriptedServer) -> None:
    server.script = always(Fault.ENDLESS)
    async with OpenAIClient(server.url, "m", largest_answer=1) as client:
        with pytest.raises(AnswerError, match="larger than 1 MiB; raise `largest_answer`"):
            await client(ask())
    await until(lambda: not server.connections)  # it is not left to pour


# What an answer can do without


GOOD = {"message": {"content": "fine"}, "finish_reason": "stop"}
USED = {"prompt_tokens": 100, "completion_tokens": 10}


@pytest.mark.parametrize(
    "field",
    [
        {"usage": "none"},
        {"usage": USED | {"prompt_tokens_details": {"cached_tokens": -1}}},
        {"usage": USED, "timings": {"cache_n": 0.5}},
        {"id": 7, "model": [], "system_fingerprint": {}, "created": "now", "object": 1},
        {"choices": [GOOD | {"logprobs": {"content": [{"token": 1}]}}]},
        {"choices": [{"message": {"content": [{"text": "fine"}, {"text": None}]}}]},
        {"choices": [GOOD, {"message": None}]},
    ],
)
async def test_a_good_text_stays_whatever_else_is_wrong(
    server: ScriptedServer, field: dict[str, object]
) -> None:
    server.script = always(Answer(body=json.dumps({"choices": [GOOD]} | field).encode()))
    async with OpenAIClient(server.url, "m", price=Price(input=1, output=1)) as client:
        response = await client(ask())
    assert (response.text, response.finish_reason) == ("fine", "stop")
    assert response.usage.cached_tokens == 0
    assert response.usage.cost == (0.00011 if isinstance(field.get("usage"), dict) else None)


async def test_a_cancelled_call_leaves_nothing_behind(
    server: ScriptedServer, client: OpenAIClient
) -> None:
    server.script = always(misbehave(Fault.TIMEOUT))
    call = asyncio.create_task(client(ask()))
    await until(lambda: server.in_flight == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: server.in_flight == 0)  # the connection is closed, and the server sees it
    server.script = None
    assert (await client(ask())).text


@pytest.mark.parametrize("key", ["", " ", "sk\nnext-line", "schlüssel", "two words"])
def test_a_key_that_cannot_be_one(key: str) -> None:
    with pytest.raises(SettingsError, match="copy it again") as caught:
        OpenAIClient("http://127.0.0.1:1/v1", "m", key=SecretStr(key))
    assert key.strip() == "" or key not in str(caught.value)


async def test_a_redirect_is_not_followed(server: ScriptedServer, client: OpenAIClient) -> None:
    server.script = always(Answer(status=302, body=b"", headers={"Location": "http://127.0.0.2/"}))
    with pytest.raises(AccessError, match="address"):
        await client(ask())
