"""Our client on the wire of responses, with our own server as its counterpart."""

import json

import pytest

from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request, ToolCall
from textevolve.llm.streaming import ask_streaming
from textevolve.llm.testing import Answer
from textevolve.llm.wire import RESPONSES

TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
)
QUESTION = Message("user", ("What is the weather in Oslo?",))


def speaks(body, _number):
    """Calls the tool, and speaks once it has the result."""
    heard = [one["content"] for one in body["messages"] if one["role"] == "tool"]
    calls = (("weather", '{"city": "Oslo"}'),)
    return f"They say: {heard[0]}" if heard else Answer(text="", tool_calls=calls)


@pytest.fixture
async def client(serve, model):
    async with OpenAIClient(f"{serve(model=model)}/v1", model, wire=RESPONSES) as opened:
        yield opened


async def ask(client, request, streams):
    return await (ask_streaming(client, request, str) if streams else client(request))


@pytest.mark.parametrize("streams", [False, True])
async def test_a_tool_is_called_and_its_result_is_sent_back(server, client, streams):
    server.script = speaks
    called = await ask(client, Request(messages=(QUESTION,), tools=TOOLS), streams)
    assert (called.text, called.finish_reason) == ("", "tool_calls")
    (call,) = called.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Oslo"})
    said = Message("assistant", (), tool_calls=(ToolCall(call.id, call.name, call.arguments),))
    result = Message("tool", ("It rains.",), tool_call_id=call.id)
    answered = await ask(client, Request(messages=(QUESTION, said, result), tools=TOOLS), streams)
    assert (answered.text, answered.finish_reason) == ("They say: It rains.", "stop")
    assert answered.usage.tokens > 0
    assert server.requests[-1]["messages"][-1]["tool_call_id"] == call.id


@pytest.mark.parametrize("streams", [False, True])
async def test_schema_system_message_and_a_cut_answer(server, client, streams):
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    system = Message("system", ("Be brief.",))
    request = Request(messages=(system, QUESTION), schema=schema, temperature=0.3, max_tokens=50)
    response = await ask(client, request, streams)
    assert isinstance(json.loads(response.text)["n"], int)
    first = server.requests[-1]["messages"][0]
    assert (first["role"], first["content"]) == ("system", "Be brief.")
    server.script = lambda _body, _number: Answer(text="It is", finish_reason="length")
    cut = await ask(client, Request(messages=(QUESTION,)), streams)
    assert (cut.text, cut.finish_reason) == ("It is", "length")
