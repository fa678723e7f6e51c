"""Anthropic's Messages, OpenAI's Responses and logins as they are reported in public: tokens of the
cache, removed parameters, errors within streams, limits of schemas, keys that expire.

The right value of each case was worked out by hand from the shapes in the providers' documentation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from textevolve.errors import AccessError, CapabilityError, RejectedError, UnavailableError
from textevolve.llm import connections
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, Response, ToolCall
from textevolve.llm.providers import Key
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.testing.answers import completion
from textevolve.llm.wire import AnswerPiece, ask_streaming
from textevolve.llm.wrappers import Retrying
from textevolve.protocol.contents import answer_ending
from textevolve.settings import Price, Retries, allow_file

PRICE = Price(input=3, output=15, cached_input=0.3, cache_write=3.75)
KEY = Key(SecretStr("sk-ant-0123456789"), "a test")
USAGE = {"input_tokens": 11, "output_tokens": 5}
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 10}},
        "required": ["score"],
    }
)


def message(text: str = "Fine.", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}] if text else []
    head = {"type": "message", "role": "assistant", "model": "claude"}
    return {**head, "content": content, "stop_reason": "end_turn", "usage": USAGE} | more


def answers(body: dict[str, Any], status: int = 200) -> Answer:
    return Answer(body=json.dumps(body).encode(), status=status)


def refuses(status: int, kind: str, text: str) -> Answer:
    return answers({"type": "error", "error": {"type": kind, "message": text}}, status)


def streams(events: list[dict[str, Any]]) -> Answer:
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    return Answer(body=b"", events=tuple(lines))


def ask(text: str = "Hm?", **more: Any) -> Request:
    return Request(messages=(Message("user", (text,)),), **more)


async def call(
    server: ScriptedServer, request: Request, wire: Any = "messages", **options: Any
) -> Response:
    options = {"key": KEY, "price": PRICE} | options
    async with OpenAIClient(server.url, "claude", wire=wire, **options) as client:
        return await Retrying(client, Retries(attempts=3, first=0.0))(request)


def script(server: ScriptedServer, *given: Answer) -> None:
    """Give these answers one after the other."""
    rest = iter(given)
    server.script = lambda _body, _number: next(rest)


async def test_the_key_and_the_version_are_sent_as_anthropic_reads_them(server) -> None:
    script(server, answers(message()))
    await call(server, ask(), headers={"anthropic-beta": Key(SecretStr("b-1"), "the settings")})
    sent = server.headers[-1]
    assert sent["x-api-key"] == KEY.secret.get_secret_value()
    assert sent["anthropic-version"] == "2023-06-01"
    assert sent["anthropic-beta"] == "b-1"
    assert "authorization" not in sent


async def test_tokens_of_the_cache_are_counted_and_priced_once(server) -> None:
    cached = {"cache_read_input_tokens": 4000, "cache_creation_input_tokens": 1000}
    script(server, answers(message(usage={**USAGE, **cached})))
    usage = (await call(server, ask())).usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (5011, 4000, 5)
    assert usage.cost == pytest.approx((11 * 3 + 4000 * 0.3 + 1000 * 3.75 + 5 * 15) / 1e6)
    assert usage.saved == pytest.approx((4000 * 2.7 - 1000 * 0.75) / 1e6)


@pytest.mark.parametrize(
    "words",
    [
        "`temperature` is deprecated for this model.",
        "`temperature` may only be set to 1 when thinking is enabled.",
    ],
)
async def test_a_removed_temperature_is_left_out(server, words, caplog) -> None:
    script(server, refuses(400, "invalid_request_error", words), answers(message()))
    assert (await call(server, ask(temperature=0.0))).text == "Fine."
    assert [body.get("temperature") for body in server.requests] == [0.0, None]
    assert "refuses a temperature" in caplog.text


async def test_a_limit_above_the_models_is_lowered(server) -> None:
    words = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens"
    script(server, refuses(400, "invalid_request_error", words), answers(message()))
    assert (await call(server, ask())).text == "Fine."
    assert [body["max_tokens"] for body in server.requests] == [16000, 8192]


async def test_bounds_of_a_schema_are_told_and_not_sent(server) -> None:
    script(server, answers(message('{"score": 8}')))
    await call(server, ask(schema=SCHEMA))
    (body,) = server.requests
    sent = body["output_config"]["format"]["schema"]
    score = {"type": "integer", "description": "(minimum: 1, maximum: 10)"}
    assert sent["properties"] == {"score": score}
    assert sent["additionalProperties"] is False


async def test_a_schema_that_is_refused_is_left_out(server, caplog) -> None:
    words = "The compiled grammar is too large"
    script(server, refuses(400, "invalid_request_error", words), answers(message('{"score": 8}')))
    await call(server, ask(schema=SCHEMA))
    assert ["output_config" in body for body in server.requests] == [True, False]
    assert "refuses a JSON schema" in caplog.text


async def test_marks_for_the_cache_stand_on_blocks_with_text(server) -> None:
    script(server, answers(message()))
    messages = (Message("system", ("Rules.",)), Message("user", ("Case.", "said", "", "Now.")))
    await call(server, Request(messages=messages), prompt_cache="breakpoints")
    (body,) = server.requests
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{"type": "text", "text": "Rules.", **mark}]
    texts = [(block["text"], "cache_control" in block) for block in body["messages"][0]["content"]]
    assert texts == [("Case.", True), ("said", True), ("Now.", False)]


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("end_turn", "whole"),
        ("stop_sequence", "whole"),
        ("max_tokens", "cut"),
        ("model_context_window_exceeded", "cut"),
        ("refusal", "refused"),
    ],
)
async def test_half_an_answer_is_not_taken_for_a_whole_one(server, reason, ending) -> None:
    script(server, answers(message("I would", stop_reason=reason)))
    response = await call(server, ask())
    assert answer_ending(response.finish_reason) == ending


async def test_thoughts_are_kept_apart_and_counted(server) -> None:
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "abc"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    content = [thought, hidden, {"type": "text", "text": "4"}]
    usage = {**USAGE, "output_tokens_details": {"thinking_tokens": 3}}
    script(server, answers(message(content=content, usage=usage)))
    response = await call(server, ask())
    assert (response.text, response.reasoning) == ("4", "Let me see.")
    assert response.usage.reasoning_tokens == 3


async def test_log_probabilities_are_refused_before_a_call(server) -> None:
    script(server)
    with pytest.raises(CapabilityError, match="log-probabilities"):
        await call(server, ask(top_logprobs=5))
    assert not server.requests


async def test_an_overloaded_endpoint_is_tried_again(server) -> None:
    overloaded = refuses(529, "overloaded_error", "Overloaded")
    in_200 = refuses(200, "overloaded_error", "Overloaded")
    script(server, overloaded, in_200, answers(message()))
    response = await call(server, ask())
    assert (response.text, response.attempts) == ("Fine.", 3)


@pytest.mark.parametrize(
    ("status", "kind", "words", "error"),
    [
        (401, "authentication_error", "invalid x-api-key", AccessError),
        (400, "invalid_request_error", "Your credit balance is too low", AccessError),
        (402, "billing_error", "Pay.", AccessError),
        (400, "invalid_request_error", "messages: roles must alternate", RejectedError),
    ],
)
async def test_refusals_mean_what_they_mean_elsewhere(server, status, kind, words, error) -> None:
    script(server, refuses(status, kind, words))
    with pytest.raises(error, match=words):
        await call(server, ask())
    assert len(server.requests) == 1


HEAD = {"type": "message_start", "message": message("", stop_reason=None)}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}


def text_event(text: str) -> dict[str, Any]:
    delta = {"type": "text_delta", "text": text}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize(
    "broken", [[HEAD, text_event("Half"), OVERLOADED], [HEAD, text_event("H")]]
)
async def test_a_stream_that_fails_midway_is_asked_again(server, broken) -> None:
    whole = [HEAD, {"type": "ping"}, text_event("The "), text_event("whole."), END]
    script(server, streams(broken), streams(whole))
    pieces: list[AnswerPiece] = []
    async with OpenAIClient(server.url, "claude", wire="messages", price=PRICE) as client:
        model = Retrying(client, Retries(attempts=2, first=0.0))
        response = await ask_streaming(model, ask(), pieces.append)
    assert response.text == "The whole."
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (11, 9)
    last = max(n for n, piece in enumerate(pieces) if piece.anew)
    assert "".join(piece.text for piece in pieces[last:]) == "The whole."
    assert all(body["stream"] and "stream_options" not in body for body in server.requests)


async def test_a_tool_is_called_in_both_protocols(server) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "é"}}
    script(server, answers(message("", content=[block], stop_reason="tool_use")))
    calls = (await call(server, ask())).tool_calls
    assert calls == (ToolCall("toolu_1", "search", '{"q": "é"}'),)


# OpenAI's Responses


def response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": "completed", "model": "claude", "output": items, "usage": USAGE} | more


def said(**part: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [part]}


THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}


async def test_thoughts_that_use_up_all_tokens_are_no_answer(server) -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    script(server, answers(response(THOUGHT, **cut)))
    answer = await call(server, ask(max_tokens=1), "responses")
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("", "Hm.", "length")
    (body,) = server.requests
    assert (body["max_output_tokens"], body["store"]) == (16, False)


async def test_a_declined_response_is_a_refusal(server) -> None:
    script(server, answers(response(said(type="refusal", refusal="I cannot."))))
    answer = await call(server, ask(), "responses")
    assert (answer.text, answer.finish_reason) == ("", "refusal")


async def test_log_probabilities_of_a_response_are_read(server) -> None:
    tokens = [{"token": "Yes", "logprob": -0.1, "top_logprobs": [{"token": "No", "logprob": -2.0}]}]
    script(server, answers(response(said(type="output_text", text="Yes", logprobs=tokens))))
    answer = await call(server, ask(top_logprobs=5), "responses")
    assert [(token.token, token.top) for token in answer.logprobs] == [("Yes", (("No", -2.0),))]


@pytest.mark.parametrize(
    ("code", "calls", "error"),
    [("server_error", 3, UnavailableError), ("invalid_prompt", 1, RejectedError)],
)
async def test_a_failed_response_is_no_answer(server, code, calls, error) -> None:
    failed = {"status": "failed", "error": {"code": code, "message": "Sorry"}, "output": []}
    script(server, *[answers(response(**failed))] * calls)
    with pytest.raises(error, match="Sorry"):
        await call(server, ask(), "responses")
    assert len(server.requests) == calls


# Both, in a whole debate


def obliges(body: dict[str, Any], _number: int) -> Answer:
    """Answer by the schema, in the protocol of the request."""
    turns = body.get("messages") or body["input"]
    shape = body.get("output_config") or body.get("text") or {}
    chat = {"messages": [{"role": "user", "content": str(turns[-1]["content"])}]}
    if "format" in shape:
        schema = {"schema": shape["format"]["schema"]}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    text = json.loads(completion(chat, 1))["choices"][0]["message"]["content"]
    if "messages" in body:
        return answers(message(text))
    return answers(response(said(type="output_text", text=text)))


@pytest.mark.parametrize("wire", ["messages", "responses"])
def test_a_debate_is_held_by_each_protocol(cli, home, server, wire) -> None:
    server.script = obliges
    (home / "textevolve.toml").write_text(
        f'[providers.mine]\nbase_url = "{server.url}"\nwire = "{wire}"\nkeyless = true\n'
        'reasoning_effort = "low"\n'
    )
    allow_file(home / "textevolve.toml")
    debate = ("evaluate", "Say hello.", "Hello!", "--rounds", "1", "--readout", "verbalized")
    outcome = cli(*debate, "-m", "mine/claude", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["failure"] is None
    efforts = {
        body.get("output_config", body.get("reasoning"))["effort"] for body in server.requests
    }
    assert efforts == {"low"}
    sent = server.calls
    assert cli(*debate, "-m", "mine/claude").code == 0
    assert server.calls == sent  # from the journal
    doctor = cli("doctor", "mine/claude")
    assert doctor.code == 0, doctor.out


# Logins


def logs_in(*keys: str) -> Callable[[], str]:
    rest = iter(keys)
    return lambda: next(rest)


async def test_a_key_of_a_login_is_renewed_before_it_expires(server, monkeypatch) -> None:
    script(server, *[answers(message())] * 4)
    key = Key(SecretStr(""), "a login", logs_in("first-token", "second-token"))
    async with OpenAIClient(server.url, "claude", wire="messages", key=key) as client:
        await client(ask())
        await client(ask())
        monkeypatch.setattr(connections, "LOGIN_SECONDS", -1.0)
        await client(ask())
    sent = [headers["authorization"] for headers in server.headers]
    assert sent == ["Bearer first-token", "Bearer first-token", "Bearer second-token"]
    assert not any("x-api-key" in headers for headers in server.headers)


async def test_a_key_of_a_login_is_shown_nowhere(server) -> None:
    script(server, refuses(400, "invalid_request_error", "no: token-of-mine"))
    key = Key(SecretStr(""), "a login", logs_in("token-of-mine"))
    with pytest.raises(RejectedError, match=r"no: \[key\]"):
        await call(server, ask(), key=key)


async def test_a_login_without_a_key_is_an_error_of_access(server) -> None:
    def fails() -> str:
        raise ValueError("please run az login")

    with pytest.raises(AccessError, match="the login gives no key: please run az login"):
        await call(server, ask(), key=Key(SecretStr(""), "a login", fails))
    assert not server.requests
