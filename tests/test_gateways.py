"""Behind gateways such as LiteLLM's proxy and Portkey's: another model answers, refusals have other
words, headers other names."""

import json
import socket

import pytest

from textevolve.errors import AccessError, UnavailableError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.refusals import Refusal, failure, read_refusal
from textevolve.llm.testing import Answer
from textevolve.llm.wrappers import Retrying
from textevolve.settings import Price, Retries, allow_file

DEBATE = ("evaluate", "Say hello.", "Hello!", "--rounds", "1", "--readout", "verbalized")


@pytest.fixture
def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"  # bound, and nobody listens


async def test_a_server_that_cannot_be_reached_is_no_matter_of_single_calls(free_address):
    request = Request(messages=(Message("user", ("Hm?",)),))
    async with OpenAIClient(f"http://{free_address}", "m") as client:
        model = Retrying(client, Retries(attempts=1))
        for _ in range(7):
            with pytest.raises(UnavailableError):
                await model(request)
        with pytest.raises(AccessError, match=f"cannot connect to {free_address}: the first 8"):
            await model(request)


def refused(status, message, **more):
    error = {"error": {"message": message, "type": None, "code": str(status), **more}}
    return Answer(status=status, body=json.dumps(error).encode())


LITELLM = "litellm.{0}: {0}: OpenAIException - "
PERMANENT = {
    "no such model": refused(
        400,
        "litellm.BadRequestError: You passed in model=nope. There are no healthy deployments for"
        " this model. Received Model Group=nope",
    ),
    "the account has no credit left (429)": refused(
        429, LITELLM.format("RateLimitError") + "You exceeded your current quota, please check"
    ),
    "the provider behind it refuses its key (401)": refused(
        401, LITELLM.format("AuthenticationError") + "Incorrect API key provided: sk-9. "
    ),
}


@pytest.mark.parametrize("meaning", PERMANENT)
def test_a_refusal_that_no_later_call_gets_around(meaning):
    answer = PERMANENT[meaning]
    error = failure("m", answer.status, read_refusal(answer.body or b""))
    assert isinstance(error, AccessError)
    assert meaning in str(error)


def test_what_a_refusal_repeats_of_a_case_stops_nothing():
    body = json.dumps({"detail": [{"msg": "bad", "input": "budget_exceeded"}]}).encode()
    for status, refusal in (
        (422, read_refusal(body)),
        (500, Refusal("exceeded your current quota")),
    ):
        assert not isinstance(failure("m", status, refusal), AccessError)
    limit = failure("m", 429, Refusal("You exceeded your current quota. Please retry in 23.5s."))
    assert (type(limit), limit.retry_after) == (UnavailableError, 23.5)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 23s.", 23.0),
        ("No deployments available, Try again in 5 seconds. Passed", 5.0),
        ("Please try again in a moment", None),
    ],
)
def test_a_wait_is_read_from_the_words_of_a_refusal(words, seconds):
    assert failure("m", 429, Refusal(words)).retry_after == seconds


def test_headers_of_a_provider_are_sent_and_kept_secret(cli, home, server, monkeypatch):
    secret, literal = "vk-secret", "pc-config-of-mine-1234"
    monkeypatch.setenv("GATEWAY_SECRET", secret)
    (home / "textevolve.toml").write_text(
        f'[providers.gw]\nbase_url = "{server.url}"\nkeyless = true\nreports_cost = true\n'
        'headers = {x-provider = "openai", x-key = "env:GATEWAY_SECRET", '
        f'x-config = "{literal}"}}\n'
    )
    allow_file(home / "textevolve.toml")

    def repeats(body, number):
        answer = f"openai error: {secret} {literal}"
        return refused(400, answer) if number == 1 else Answer(text=answer, headers=COST)

    server.script = repeats
    failed, outcome = (cli(*DEBATE, "-m", "gw/m") for _ in range(2))
    sent = server.headers[-1]
    assert (sent["x-provider"], sent["x-key"], sent["x-config"]) == ("openai", secret, literal)
    assert "openai error: [key] [key]" in failed.err + failed.out
    output = cli("config", "--json").out + cli("doctor", "gw/m").out + cli("runs", "show").out
    stored = b"".join(path.read_bytes() for path in home.rglob("*.db*"))
    for text in (secret, literal):
        assert text not in failed.err + failed.out + outcome.err + outcome.out + output
        assert text.encode() not in stored


COST = {"x-litellm-response-cost": "0.25"}


async def test_the_cost_that_litellm_reports_is_taken_where_a_provider_reports_costs(server):
    server.script = lambda body, number: Answer(headers=COST)
    request, price = Request(messages=(Message("user", ("Hm?",)),)), Price(input=1, output=1)
    async with (
        OpenAIClient(server.url, "m", price=price, reports_cost=True) as reporting,
        OpenAIClient(server.url, "m", price=price) as reckoning,
    ):
        assert (await reporting(request)).usage.cost == 0.25
        assert (await reckoning(request)).usage.cost < 0.01
