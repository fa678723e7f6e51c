"""Chats: what is sent and read, whole and streamed."""

import json
from dataclasses import replace

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, Response, ToolCall
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.wire import AnswerPiece, ask_streaming

TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "search",
                "description": "Looks a word up.",
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                },
            },
        }
    ]
)
CONVERSATION = (
    Message("system", ("You look things up.",)),
    Message("user", ("Why do tides come?",)),
    Message("assistant", (), tool_calls=(ToolCall("call_1", "search", '{"query": "tides"}'),)),
    Message("tool", ("The moon pulls.",), tool_call_id="call_1"),
)
TWO_CALLS = (("search", '{"query": "why tides come"}'), ("add", '{"one": 1, "other": 2}'))


@pytest.fixture
async def client(server: ScriptedServer):
    async with OpenAIClient(server.url, "scripted") as opened:
        yield opened


def ask(text: str = "Why do tides come?", **more) -> Request:
    return Request(messages=(Message("system", ("Be brief.",)), Message("user", (text,))), **more)


def without_time(response: Response) -> Response:
    return replace(response, seconds=0.0)


async def streamed(client: OpenAIClient, request: Request) -> tuple[Response, str]:
    pieces: list[AnswerPiece] = []
    response = await ask_streaming(client, request, pieces.append)
    return response, "".join(piece.text for piece in pieces)


async def test_a_chat_sends_its_tools_calls_and_results(server, client) -> None:
    await client(Request(messages=CONVERSATION, tools=TOOLS, tool_choice="search"))
    body = server.requests[-1]
    assert body["tools"] == json.loads(TOOLS)
    assert body["tool_choice"] == {"type": "function", "function": {"name": "search"}}
    called = {"name": "search", "arguments": '{"query": "tides"}'}
    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": called}],
        },
        {"role": "tool", "content": "The moon pulls.", "tool_call_id": "call_1"},
    ]


async def test_an_answer_is_the_same_whole_and_streamed(server, client) -> None:
    server.script = lambda _body, _number: Answer(
        text="The moon\ndoes it. ", reasoning="Hm, the sea."
    )
    request = ask(f"{'A long question. ' * 20}Why?", top_logprobs=2)
    whole = await client(request)
    again, heard = await streamed(client, request)
    assert server.requests[-1]["stream"] is True
    assert without_time(again) == without_time(whole)
    assert (heard, whole.text, whole.reasoning) == (
        whole.text,
        "The moon\ndoes it. ",
        "Hm, the sea.",
    )
    assert "".join(token.token for token in whole.logprobs) == whole.text
    assert len(whole.logprobs[0].top) == 2
    assert whole.finish_reason == "stop"
    assert 0 < whole.usage.reasoning_tokens < whole.usage.completion_tokens
    assert whole.usage.cached_tokens > 0


async def test_calls_of_tools_are_read_whole_and_streamed(server, client) -> None:
    server.script = lambda _body, _number: Answer(text="", tool_calls=TWO_CALLS)
    whole = await client(ask(tools=TOOLS))
    again, heard = await streamed(client, ask(tools=TOOLS))
    assert (whole.text, whole.finish_reason, heard) == ("", "tool_calls", "")
    assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == [
        ("search", {"query": "why tides come"}),
        ("add", {"one": 1, "other": 2}),
    ]
    assert len({call.id for call in whole.tool_calls}) == 2
    assert [replace(call, id="") for call in again.tool_calls] == [
        replace(call, id="") for call in whole.tool_calls
    ]
