"""What gateways, inference servers and client libraries were reported to do, in our own data: each
case has the answer of an endpoint, and what is right about it."""

import json

import pytest

from textevolve.errors import RejectedError, TooLongError, UnavailableError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import text_request
from textevolve.llm.prompts import find_cut
from textevolve.llm.testing import Answer
from textevolve.proxies import find_proxy


def refusal(message, **fields):
    return json.dumps({"error": {"message": message, **fields}}).encode()


def completion(text, finish_reason="stop"):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": finish_reason, "message": message}
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    return json.dumps({"id": "c", "model": "scripted", "choices": [choice], "usage": usage})


COOLING = "No deployments available for selected model, Try again in 60 seconds."
UNAVAILABLE = {
    # A router whose models all rest is a limit, and the wait stands in the words alone.
    "cooling router": (Answer(status=429, body=refusal(COOLING, type="None", code="429")), 60),
    "limited router": (
        Answer(status=429, body=refusal("No deployments available for selected model.")),
        None,
    ),
    "unhealthy router": (
        Answer(status=429, body=refusal("No healthy deployment available, passed model=m")),
        None,
    ),
    "whitespace and a point": (Answer(body=b"\n\n   \n."), None),
    "empty body": (Answer(body=b""), None),
    "failed generation": (Answer(body=completion("", "error").encode()), None),
}


@pytest.mark.parametrize("name", UNAVAILABLE)
async def test_failures_are_tried_again(server, name):
    answer, wait = UNAVAILABLE[name]
    server.answer = lambda *_parts: answer
    async with OpenAIClient(server.url, "scripted") as client:
        with pytest.raises(UnavailableError) as raised:
            await client(text_request("Why?", 8, 0))
    assert raised.value.retry_after == wait
    assert not raised.value.address


ANSWERS = {
    # Signs of life before the body, though no stream was asked for.
    "comments first": b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n"
    + completion("Yes").encode(),
    "lines first": b"\n\n\n   \n" + completion("Yes").encode(),
    "mark first": b"\xef\xbb\xbf" + completion("Yes").encode(),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_after_signs_are_read(server, name):
    server.answer = lambda *_parts: Answer(body=ANSWERS[name])
    async with OpenAIClient(server.url, "scripted") as client:
        response = await client(text_request("Why?", 8, 0))
    assert response.text == "Yes"


OVERFLOWS = {
    "within a 200": Answer(
        body=refusal(
            "the request exceeds the available context size. try increasing the context size",
            code=400,
            type="exceed_context_size_error",
            n_prompt_tokens=14429,
            n_ctx=8192,
        )
    ),
    "as a fault of the server": Answer(
        status=500,
        body=refusal("Context size has been exceeded.", code=500, type="server_error"),
    ),
}


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_full_contexts_are_named(server, name):
    server.answer = lambda *_parts: OVERFLOWS[name]
    async with OpenAIClient(server.url, "scripted") as client:
        with pytest.raises(TooLongError):
            await client(text_request("Why?", 8, 0))


async def test_pages_after_answers_fail_rows(server):
    """A page in the middle of a run, as of a gateway that restarts, is tried again and no proof of
    a wrong address."""
    answers = iter([completion("Yes").encode(), b"<html><title>Restarting</title></html>"])
    server.answer = lambda *_parts: Answer(body=next(answers))
    async with OpenAIClient(server.url, "scripted") as client:
        await client(text_request("Why?", 8, 0))
        with pytest.raises(UnavailableError, match="Restarting") as raised:
            await client(text_request("How?", 8, 0))
    assert not raised.value.address


async def test_blocked_texts_fail_rows(server):
    blocked = Answer(status=403, body=b"<html><title>Blocked</title>malformed data</html>")
    answers = iter([Answer(body=completion("Yes").encode()), blocked])
    server.answer = lambda *_parts: next(answers)
    async with OpenAIClient(server.url, "scripted") as client:
        await client(text_request("Why?", 8, 0))
        with pytest.raises(RejectedError, match=r"Blocked|malformed"):
            await client(text_request("DROP TABLE rows", 8, 0))


NETWORKS = {
    "1:2:3::/64": ("http://[1:2:3::4]:8000/v1", True),
    "::1/64,fe80::/10": ("http://[fe80::7]:8000/v1", True),
    "[fe80::]/10": ("http://[fe80::7]:8000/v1", True),
    "1:2:4::/64": ("http://[1:2:3::4]:8000/v1", False),
}


@pytest.mark.parametrize("entry", NETWORKS)
def test_networks_of_longer_addresses(monkeypatch, entry):
    address, is_exempt = NETWORKS[entry]
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("no_proxy", entry)
    assert (find_proxy(address) is None) == is_exempt


def test_half_contexts_are_found():
    """Ollama with its context of 4,096 tokens leaves 2,050 of a prompt of 7,900 tokens, and 2,051
    of a file of 87 kB."""
    prose = "Each clerk keeps the ledger of the day closed. "
    assert find_cut(text_request(prose * 670, 8, 0), 2050)
    assert find_cut(text_request(prose * 1900, 8, 0), 2051)
