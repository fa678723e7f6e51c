"""An endpoint streams the arguments of a tool's call in parts and then once more as a whole; the
answer of an agent had `{"day":"Mon"}{"day":"Mon"}`, which no client can parse, and so had the final
events of Responses. Other endpoints send an empty object before the parts.

The right value is the call without streaming: one object. Two different objects stay as they came.
"""

import json
import urllib.request

import pytest

pytest.importorskip("fastapi")

from server import conftest as server_fixtures
from textevolve.llm.client import OpenAIClient
from textevolve.llm.model import Message, Request
from textevolve.llm.testing import Answer, ScriptedServer
from textevolve.llm.wire import ask_streaming
from textevolve.protocol.chat import drop_repeat

serve = server_fixtures.serve

WHOLE = '{"day":"Mon"}'
PARTS = ['{"day":', '"Mon"}']
SENT = {
    "whole after the parts": [*PARTS, WHOLE],
    "spaced after the parts": [*PARTS, ' {"day": "Mon"}\n'],
    "parts after the parts": [*PARTS, *PARTS],
    "parts after an empty object": ["{}", *PARTS],
}
TOOLS = json.dumps([{"type": "function", "function": {"name": "plan", "parameters": {}}}])


def events(pieces, calls=1):
    """The events of a stream in which each call gets all pieces, after the beginnings of all."""
    for place in range(calls):
        yield event({"index": place, "id": f"c{place}", "function": {"name": "plan"}})
        for piece in pieces[:-1]:
            yield event({"index": place, "function": {"arguments": piece}})
    for place in range(calls):
        yield event({"index": place, "function": {"arguments": pieces[-1]}})
    yield (
        b"data: %b\n\ndata: [DONE]\n\n"
        % json.dumps(
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        ).encode()
    )


def event(call):
    choice = {"index": 0, "delta": {"tool_calls": [call]}}
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


@pytest.mark.parametrize("pieces", SENT.values(), ids=SENT)
async def test_arguments_are_read_once(pieces):
    answer = Answer(text="x", packets=lambda _events: list(events(pieces)))
    request = Request(messages=(Message("user", ("When?",)),), tools=TOOLS)
    async with (
        ScriptedServer(lambda _body, _number: answer) as server,
        OpenAIClient(server.url, "m") as client,
    ):
        response = await ask_streaming(client, request, lambda _piece: None)
    assert [json.loads(call.arguments) for call in response.tool_calls] == [{"day": "Mon"}]


def test_final_events_of_responses_have_arguments_once(serve):
    packets = list(events(SENT["whole after the parts"], calls=2))
    answer = Answer(text="x", packets=lambda _events: packets)
    with ScriptedServer(lambda _body, _number: answer) as endpoint:
        model = f"{endpoint.url}#any"
        fields = {"model": model, "stream": True, "input": "When?", "tools": []}
        request = urllib.request.Request(
            f"{serve(model=model)}/v1/responses",
            json.dumps(fields).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            lines = response.read().decode().splitlines()

    read = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    done = [one["arguments"] for one in read if one["type"].endswith("arguments.done")]
    assert done == [WHOLE, WHOLE]
    assert [item["arguments"] for item in read[-1]["response"]["output"]] == [WHOLE, WHOLE]


@pytest.mark.parametrize(
    "arguments", ['{"day":"Mon"}{"day":"Tue"}', "{}", '{"day":', "", "11", "{}and", "[]" * 2]
)
def test_other_arguments_stay_as_they_came(arguments):
    assert drop_repeat(arguments) == arguments
