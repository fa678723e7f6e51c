"""A client sends a served agent a history of several people and tools, and fields of OpenAI's API
that no agent heeds."""

import pytest

pytest.importorskip("fastapi")

from textevolve.protocol.chat import ChatBody
from textevolve.server.openai.requests import (
    HEEDED,
    JUDGES_HEED,
    AnswerEnd,
    ServedAnswer,
    describe_unheeded,
)
from textevolve.server.openai.responses import ResponsesRequest, write_response
from textevolve.server.openai.served import read_chat_request


def look_up(id, city):
    function = {"name": "weather", "arguments": f'{{"city": "{city}"}}'}
    return {"id": id, "type": "function", "function": function}


HISTORY = [
    {"role": "user", "content": "Weather in Oslo?", "name": "Ann"},
    {"role": "user", "content": "And in Rome?", "name": "Bo"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [look_up("1", "Oslo"), look_up("2", "Rome")],
    },
    {"role": "tool", "tool_call_id": "1", "content": "rain"},
    {"role": "tool", "tool_call_id": "2", "content": "sun"},
    {"role": "assistant", "content": "Rain, and sun."},
    {"role": "user", "content": "Who is president?"},
    {"role": "assistant", "content": None, "refusal": "I talk of weather only."},
    {"role": "user", "content": "And tomorrow?"},
]


def read(**fields):
    return read_chat_request("acme/ada", ChatBody.model_validate({"messages": HISTORY, **fields}))


def test_a_history_keeps_all():
    request = read(seed=7)
    assert [(message.role, message.text) for message in request.history] == [
        ("user", "Ann: Weather in Oslo?"),
        ("user", "Bo: And in Rome?"),
        (
            "assistant",
            '(called weather with {"city": "Oslo"})\n(called weather with {"city": "Rome"})\n'
            "(result of weather: rain)\n(result of weather: sun)",
        ),
        ("assistant", "Rain, and sun."),
        ("user", "Who is president?"),
        ("assistant", "I talk of weather only."),
    ]
    assert (request.text, request.seed) == ("And tomorrow?", 7)


def test_fields_without_effect_are_named():
    thought = {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    body = {"model": "m", "messages": [thought], "verbosity": "low", "top_p": 0.5, "seed": 1}
    body["store"] = None
    assert describe_unheeded(body, HEEDED) == ["top_p", "verbosity", "thoughts (in messages: 1)"]
    of_judge = describe_unheeded(body, JUDGES_HEED)
    assert of_judge == ["seed", "top_p", "verbosity", "thoughts (in messages: 1)"]


async def pieces(metadata):
    yield "Sun."
    yield AnswerEnd(metadata=metadata)


async def test_an_answer_names_them():
    request = ChatBody.model_validate({"messages": HISTORY})
    end = {"session": "s1", "left_out": "the oldest 3 messages"}
    answer = await ServedAnswer("m", pieces(end), request, ["top_p"]).complete()
    assert answer["metadata"] == {"session": "s1", "left_out": "top_p, the oldest 3 messages"}
    chunks = [chunk async for chunk in ServedAnswer("m", pieces({}), request, ["top_p"]).chunks()]
    assert chunks[-1]["metadata"] == {"left_out": "top_p"}
    plain = await ServedAnswer("m", pieces({}), request).complete()
    assert "metadata" not in plain


async def test_a_response_names_them():
    chat = ChatBody.model_validate({"messages": HISTORY})
    completion = await ServedAnswer("m", pieces({}), chat, ["reasoning_effort"]).complete()
    request = ResponsesRequest.model_validate({"model": "m", "input": "x", "truncation": "auto"})
    assert write_response(request, completion)["metadata"] == {
        "left_out": "truncation, reasoning_effort"
    }
