"""Providers and gateways refuse calls in words of their own: for a limit, an empty account, a row,
a value, or a text that the model wrote wrongly this once."""

import json

import pytest

from textevolve.errors import AccessError, InputError, RejectedError, TooLongError, UnavailableError
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import text_request
from textevolve.llm.providers import normalise_url
from textevolve.llm.refusals import failure, most_answer_tokens, read_refusal, refused_field
from textevolve.llm.testing import Answer


def read(status, body, **more):
    """Return the error of a refusal, whose body is a text or JSON."""
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return failure("m", status, read_refusal(text.encode()), **more)


def openai(message, **more):
    return {"error": {"message": message, **more}}


def refuse(status, body, **headers):
    return Answer(status=status, body=json.dumps(body).encode(), headers=headers)


# Limits and empty accounts

QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}
GEMINI = {"error": {"code": 429, "message": QUOTA, "details": [{"@type": "x"}, RETRY_INFO]}}
WAITS = {
    "Gemini": (429, [GEMINI], 1.5),
    "Gemini, in minutes": (
        429,
        {"error": {"message": QUOTA, "details": [{**RETRY_INFO, "retryDelay": "1m2s"}]}},
        62.0,
    ),
    "in words": (429, openai("Rate limit reached. Please try again in 2.5s."), 2.5),
    "a field": (429, openai("Slow down", retry_after=7), 7.0),
    "OpenRouter's headers": (
        429,
        openai("Rate limited", code=429, metadata={"headers": {"Retry-After": "3"}}),
        3.0,
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_in_bodies(name):
    status, body, wait = WAITS[name]
    error = read(status, body)
    assert isinstance(error, UnavailableError)
    assert error.retry_after == wait


EMPTY = {
    "OpenAI": (429, openai(QUOTA, code="insufficient_quota")),
    "OpenAI, a hard limit": (400, openai("Billing hard limit", code="billing_hard_limit_reached")),
    "xAI": (
        429,
        {
            "code": "Some resource has been exhausted",
            "error": "Your team t has either used all available credits or reached its monthly"
            " spending limit. To continue, please purchase more credits.",
        },
    ),
    "xAI, new": (403, {"error": "Your newly created team doesn't have any credits yet."}),
    "Moonshot": (
        429,
        openai(
            "Your account o is suspended, please check your plan and billing details",
            type="exceeded_current_quota_error",
        ),
    ),
    "Zhipu": (429, openai("您的账户已欠费，请充值后重试", code="1113")),
    "Zhipu, packages": (429, openai("余额不足或无可用资源包,请充值。", code="1113")),
    "DeepSeek": (402, openai("Insufficient Balance")),
    "DashScope": (400, openai("Access denied, your account is in arrears.", code="Arrearage")),
    "SiliconFlow": (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}),
    "Anthropic": (400, openai("Your credit balance is too low to access the API.")),
    "Fireworks": (
        412,
        openai("Account a is suspended, possibly due to the monthly spending limit"),
    ),
    "Volcengine": (403, openai("The account has an overdue balance", code="AccountOverdueError")),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_accounts(name):
    error = read(*EMPTY[name], answered=True)
    assert isinstance(error, AccessError)
    assert "no credit left" in str(error)


@pytest.mark.parametrize("status", [498, 424, 499, 408, 529, 530])
def test_passing_states(status):
    assert isinstance(read(status, "{}"), UnavailableError)


# Gateways

PLAIN = "Unsupported parameter: 'seed' is not supported with this model."
RAW = json.dumps(openai(PLAIN, param="seed"))
NESTED = {
    "a text": openai("Provider returned error", metadata={"raw": RAW}),
    "an object": openai("Provider returned error", metadata={"raw": openai(PLAIN)}),
    "a text that is no JSON": openai("Provider returned error", metadata={"raw": PLAIN}),
    "a list": openai("Provider returned error", metadata={"raw": [openai(PLAIN)]}),
    "in the message": openai(RAW),
    "twice": openai(
        "Upstream error", metadata={"raw": json.dumps(openai("x", metadata={"raw": RAW}))}
    ),
    "in an error": {"error": openai(PLAIN)},
    "in a list of errors": {"errors": [{"message": PLAIN}], "success": False},
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_reasons(name):
    refusal = read_refusal(json.dumps(NESTED[name]).encode())
    assert refusal.message == PLAIN
    assert refused_field(400, refusal, ["seed", "temperature"]) == "seed"


@pytest.mark.parametrize("raw", ["", None, 7, {}, []])
def test_gateways_without_a_reason(raw):
    body = openai("Provider returned error", metadata={"raw": raw})
    assert read_refusal(json.dumps(body).encode()).message == "Provider returned error"


def test_places_of_validators():
    detail = [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]
    refusal = read_refusal(json.dumps({"detail": detail}).encode())
    assert refusal.param == "seed"


# One text

TEXT_WORDS = {
    "xAI": (403, {"code": "x", "error": "Content violates usage guidelines."}),
    "OpenAI": (403, openai("Your input was flagged by moderation")),
    "Azure": (403, openai("Blocked", code="content_filter")),
    "DashScope": (403, openai("Input data may be unsafe", code="data_inspection_failed")),
}


@pytest.mark.parametrize("name", TEXT_WORDS)
def test_refused_texts(name):
    error = read(*TEXT_WORDS[name])
    assert isinstance(error, RejectedError)
    assert "refuses this text" in str(error)


def test_unexplained_403():
    body = "<html>Sorry, you have been blocked</html>"
    assert isinstance(read(403, body), AccessError)
    assert isinstance(read(403, body, answered=True), RejectedError)
    limit = read(403, body, answered=True, wait=2.0)
    assert isinstance(limit, UnavailableError)
    assert (limit.status, limit.retry_after) == (429, 2.0)


def test_one_403_ends_no_run(cli, home, server):
    def script(body, _number):
        blocked = "DROP TABLE" in json.dumps(body)
        return refuse(403, {"error": "Forbidden"}) if blocked else Answer(text="Yes", yes=0.9)

    server.script = script
    texts = ["Good.", "DROP TABLE x;", "Fine."]
    rows = [{"input": "Say it.", "candidates": [text]} for text in texts]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (home / "rows.jsonl").write_text(lines, encoding="utf-8")
    command = ("evaluate", "rows.jsonl", "-j", "probe", "-m", f"{server.url}#scripted")
    for words in ((*command, "--concurrency", "1"), ("runs", "resume", "last")):
        outcome = cli(*words)
        assert outcome.code == 3, outcome.err
        assert "lacks a score" in outcome.err


# Limits of an answer

TOO_LARGE = {
    "vLLM": "'max_tokens' or 'max_completion_tokens' is too large: 20000. This model's maximum"
    " context length is 8192 tokens and your request has 20 input tokens (20000 > 8192 - 20).",
    "OpenAI": "This model's maximum context length is 8192 tokens. However, you requested 20020"
    " tokens (20 in the messages, 20000 in the completion). Please reduce the length.",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_answers_do_not_fit(name):
    error = read(400, openai(TOO_LARGE[name]))
    assert isinstance(error, RejectedError)
    assert not isinstance(error, TooLongError)
    assert "lower --max-output-tokens" in str(error)


def test_long_prompts_stay_too_long():
    words = TOO_LARGE["OpenAI"].replace("20 in", "8000 in").replace("20000 in", "500 in")
    assert isinstance(read(400, openai(words)), TooLongError)
    words = TOO_LARGE["vLLM"].replace("20000", "500").replace("20 input", "8000 input")
    assert isinstance(read(400, openai(words)), TooLongError)


@pytest.mark.parametrize("status", [413, 429])
def test_more_than_a_minute_has(status):
    words = "Request too large for m on tokens per minute (TPM): Limit 6000, Requested 12328"
    error = read(status, openai(words, code="rate_limit_exceeded"))
    assert type(error) is RejectedError
    assert "in a minute" in str(error)


MOST = {
    "max_tokens is too large: 20000. This model supports at most 1024 completion tokens.": 1024,
    "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens": 64000,
    "`max_tokens` must be less than or equal to `8,192`, the maximum value": 8192,
    "max_tokens is too large.": None,
    "The prompt is too long: 20000 tokens > 1024 maximum": None,
}


@pytest.mark.parametrize("words", MOST)
def test_largest_answers(words):
    assert most_answer_tokens(400, read_refusal(json.dumps(openai(words)).encode())) == MOST[words]


# Values and fields


async def ask(client, **fields):
    request = text_request("Why?", fields.pop("max_tokens", 8), 0, fields.pop("temperature", 0.0))
    return await client(request)


async def test_refused_values_are_not_fields(server):
    def script(body, _number):
        if body.get("temperature", 0) > 1:
            return refuse(400, openai("temperature: above 1 is not supported", param="temperature"))
        return "Good."

    server.script = script
    async with OpenAIClient(server.url, "scripted") as client:
        await ask(client, temperature=1.5)
        await ask(client, temperature=0.0)
        await ask(client, temperature=1.5)
        assert client.refused == {"temperature"}
    sent = [body.get("temperature") for body in server.requests]
    assert sent == [1.5, None, 0.0, None]


async def test_limits_are_lowered(server):
    words = "max_tokens is too large: 5000. This model supports at most 1024 completion tokens."
    server.script = lambda body, _number: (
        refuse(400, openai(words)) if body.get("max_tokens", 0) > 1024 else "Good."
    )
    async with OpenAIClient(server.url, "scripted") as client:
        for limit in (5000, 4000, 10):
            await ask(client, max_tokens=limit)
    assert [body.get("max_tokens") for body in server.requests] == [5000, 1024, 1024, 10]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_either_name_of_the_limit(server, field):
    words = f"Unrecognized request argument supplied: {field}"
    server.script = lambda body, _number: refuse(400, openai(words)) if field in body else "Good."
    async with OpenAIClient(server.url, "scripted", max_tokens_field=field) as client:
        await ask(client, max_tokens=7)
    (other,) = {"max_tokens", "max_completion_tokens"} - {field}
    assert server.requests[-1][other] == 7
    assert field not in server.requests[-1]


def test_addresses_with_a_query():
    with pytest.raises(InputError, match="part after"):
        normalise_url("https://a.openai.azure.com/openai/deployments/d?api-version=2024-10-21")
