"""The wires on which text is asked for: what each sends and reads, whole and streamed."""

import json
from dataclasses import replace

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, Response, ToolCall
from textevolve.llm.streaming import AnswerPiece, ask_streaming
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.wire import CHAT, RESPONSES

SCHEMA = json.dumps(
    {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
)
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
WIRES = {"chat": CHAT, "responses": RESPONSES}


@pytest.fixture(params=WIRES)
async def client(server: ScriptedServer, request: pytest.FixtureRequest):
    async with OpenAIClient(server.url, "scripted", wire=WIRES[request.param]) as opened:
        yield opened


@pytest.fixture
async def responses(server: ScriptedServer):
    async with OpenAIClient(server.url, "scripted", wire=RESPONSES) as opened:
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
    if "input" in body:
        return
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


async def test_what_the_wire_of_responses_sends(server, responses) -> None:
    request = Request(
        messages=CONVERSATION,
        schema=SCHEMA,
        temperature=0.5,
        max_tokens=100,
        seed=7,
        top_logprobs=3,
        tools=TOOLS,
        tool_choice="auto",
    )
    await responses(request)
    called = {"call_id": "call_1", "name": "search", "arguments": '{"query": "tides"}'}
    assert server.requests[-1] == {
        "model": "scripted",
        "instructions": "You look things up.",
        "input": [
            {"role": "user", "content": "Why do tides come?"},
            {"type": "function_call", **called},
            {"type": "function_call_output", "call_id": "call_1", "output": "The moon pulls."},
        ],
        "store": False,
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "schema": json.loads(SCHEMA),
                "strict": True,
            }
        },
        "temperature": 0.5,
        "max_output_tokens": 100,
        "top_logprobs": 3,
        "include": ["message.output_text.logprobs"],
        "tools": [{"type": "function", **json.loads(TOOLS)[0]["function"]}],
        "tool_choice": "auto",
    }


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
