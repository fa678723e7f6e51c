"""An endpoint streams two calls of tools and leaves out `index`, or always sends the same one, and
perhaps no ids either. One call came of them, with the arguments of both.

The right calls are those that the endpoint wrote; the arguments of each parse as JSON.
"""

import json

import pytest

pytest.importorskip("fastapi")

from textevolve.protocol.chat import CompletionChunk, join_chunks
from textevolve.server.openai.responses import ResponseWriter, read_responses


def part(arguments, name=None, **more):
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"function": function, **more}


CALLS = [("tide", {"a": 1}), ("moon", {"b": 2})]
TWICE = [("tide", {"a": 1}), ("tide", {"b": 2})]
PARTS = {
    "ids": ([part('{"a": 1}', "tide", id="x"), part('{"b": 2}', "moon", id="y")], CALLS),
    "ids in the first parts": (
        [part('{"a"', "tide", id="x"), part(": 1}"), part('{"b"', "moon", id="y"), part(": 2}")],
        CALLS,
    ),
    "names": ([part('{"a": 1}', "tide"), part('{"b": 2}', "moon")], CALLS),
    "one name": ([part('{"a": 1}', "tide"), part('{"b": 2}', "tide")], TWICE),
    "one place": ([part('{"a": 1}', "tide", index=0), part('{"b": 2}', "moon", index=0)], CALLS),
    "one place with ids": (
        [part('{"a": 1}', "tide", index=0, id="x"), part('{"b": 2}', "tide", index=0, id="y")],
        TWICE,
    ),
    "a name with each part": (
        [part('{"a"', "tide", index=0), part(": 1}", "tide", index=0), part("", "tide", index=0)],
        TWICE[:1],
    ),
}


def chunks_of(parts, together):
    groups = [parts] if together else [[one] for one in parts]
    return [{"choices": [{"index": 0, "delta": {"tool_calls": group}}]} for group in groups]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("parts", "calls"), PARTS.values(), ids=PARTS)
def test_calls_of_answers(parts, calls, together):
    chunks = map(CompletionChunk.model_validate, chunks_of(parts, together))
    (choice,) = join_chunks(list(chunks), str).choices
    found = [call.function for call in choice.message.tool_calls]
    assert [(call.name, json.loads(call.arguments)) for call in found] == calls


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("parts", "calls"), PARTS.values(), ids=PARTS)
def test_calls_of_responses(parts, calls, together):
    writer = ResponseWriter(read_responses({"model": "m", "input": "When?"}))
    for chunk in chunks_of(parts, together):
        list(writer.take(chunk))
    list(writer.end())
    found = writer.response["output"]
    assert [(call["name"], json.loads(call["arguments"])) for call in found] == calls
