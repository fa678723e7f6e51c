"""Chats in the protocols of Anthropic and of OpenAI's Responses: what is written, and that a whole
answer and its stream are read as the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textevolve.llm.model import Request
from textevolve.llm.prices import usage_of
from textevolve.llm.wire import chat_body
from textevolve.protocol.chat import ChatReply, join_chunks, read_reply
from textevolve.protocol.chat_wires import (
    CHAT_WIRES,
    narrow_schema,
    write_anthropic,
    write_responses_body,
)
from textevolve.protocol.contents import Message, ToolCall
from textevolve.settings import Price

IMAGE = "data:image/png;base64,AAAA"
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {"name": "search", "description": "d", "parameters": {"type": "object"}},
        }
    ]
)
SCHEMA = {
    "type": "object",
    "properties": {"minimum": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["minimum"],
}
CONVERSATION = Request(
    messages=(
        Message("system", ("Rules.",)),
        Message("user", ("Look: ", "tides?"), images=(IMAGE,)),
        Message("assistant", ("",), tool_calls=(ToolCall("c1", "search", '{"q": "tides"}'),)),
        Message("tool", ("The moon.",), tool_call_id="c1"),
        Message("tool", ("The sun.",), tool_call_id="c2"),
        Message("user", ("  ",)),
    ),
    schema=json.dumps(SCHEMA),
    temperature=1.5,
    max_tokens=9,
    seed=1,
    tools=TOOLS,
    tool_choice="search",
)


def body_of(request: Request, **more: Any) -> dict[str, Any]:
    return chat_body("m", request, "max_tokens") | more


def test_a_chat_is_written_for_anthropic() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "tides"}}
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "The moon."},
        {"type": "tool_result", "tool_use_id": "c2", "content": "The sun."},
    ]
    picture = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert write_anthropic(body_of(CONVERSATION, reasoning_effort="low", stream=True)) == {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Rules."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": picture},
                    {"type": "text", "text": "Look: tides?"},
                ],
            },
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": results},
        ],
        "temperature": 1,
        "stream": True,
        "thinking": {"type": "adaptive"},
        "output_config": {
            "effort": "low",
            "format": {"type": "json_schema", "schema": narrow_schema(SCHEMA)},
        },
        "tools": [{"name": "search", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "search"},
    }


@pytest.mark.parametrize(
    ("effort", "thinking", "limit"),
    [
        ("2048", {"type": "enabled", "budget_tokens": 2048}, 2057),
        ("none", {"type": "disabled"}, 9),
        (None, None, 9),
    ],
)
def test_a_budget_for_thinking_leaves_the_answer_its_tokens(effort, thinking, limit) -> None:
    sent = write_anthropic(body_of(CONVERSATION, reasoning_effort=effort))
    assert (sent.get("thinking"), sent["max_tokens"]) == (thinking, limit)


def test_a_chat_of_system_messages_alone_has_a_user() -> None:
    sent = write_anthropic(body_of(Request(messages=(Message("system", ("Rules.",)),))))
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Rules."}]}]
    assert "system" not in sent


def test_a_chat_is_written_for_responses() -> None:
    sent = write_responses_body(body_of(CONVERSATION, top_logprobs=5, prompt_cache_key="k"))
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": "search",
        "arguments": '{"q": "tides"}',
    }
    picture = {"type": "input_image", "image_url": IMAGE, "detail": "auto"}
    assert sent["input"] == [
        {"role": "system", "content": "Rules."},
        {
            "role": "user",
            "content": [picture, {"type": "input_text", "text": "Look: tides?"}],
        },
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "The moon."},
        {"type": "function_call_output", "call_id": "c2", "output": "The sun."},
        {"role": "user", "content": "  "},
    ]
    shape = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
    assert sent["text"] == {"format": shape}
    assert (sent["max_output_tokens"], sent["store"], sent["prompt_cache_key"]) == (16, False, "k")
    assert sent["include"] == ["message.output_text.logprobs"]
    assert sent["tools"][0] == {"type": "function", **json.loads(TOOLS)[0]["function"]}
    assert sent["tool_choice"] == {"type": "function", "name": "search"}
    assert "seed" not in sent


def test_a_schema_keeps_what_anthropic_takes() -> None:
    schema = {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "minimum": 1, "maximum": 5, "description": "Of all."},
            "parts": {"type": "array", "minItems": 3, "items": {"$ref": "#/$defs/part"}},
            "either": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 9}]},
            "open": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["minimum"],
        "$defs": {"part": {"type": "object", "properties": {"a": {"const": 1}}}},
    }
    assert narrow_schema(schema) == {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "description": "Of all. (minimum: 1, maximum: 5)"},
            "parts": {
                "type": "array",
                "items": {"$ref": "#/$defs/part"},
                "description": "(minItems: 3)",
            },
            "either": {
                "anyOf": [{"type": "null"}, {"type": "string", "description": "(maxLength: 9)"}]
            },
            "open": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["minimum"],
        "additionalProperties": False,
        "$defs": {
            "part": {
                "type": "object",
                "properties": {"a": {"const": 1}},
                "additionalProperties": False,
            }
        },
    }


# The same answer whole and as a stream. The shapes are those of the providers' own clients.

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
PLAIN = TEXTS.filter(lambda text: "<th" not in text)
COUNTS = st.integers(1, 9_000)


def split(text: str) -> list[str]:
    return [text[:2], text[2:]]


@st.composite
def anthropic_answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text = draw(PLAIN)
    thought = draw(TEXTS)
    arguments = {"q": draw(TEXTS)}
    usage = {
        "input_tokens": draw(COUNTS),
        "cache_read_input_tokens": draw(COUNTS),
        "cache_creation_input_tokens": draw(COUNTS),
        "output_tokens": 1,
    }
    answered = {"output_tokens": draw(COUNTS)}
    reason = draw(st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal"]))
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude"}
    blocks = [
        {"type": "thinking", "thinking": thought, "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": text, "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "search", "input": arguments},
    ]
    whole = {**head, "content": blocks, "stop_reason": reason, "usage": usage | answered}

    deltas = {
        0: [{"type": "thinking_delta", "thinking": part} for part in split(thought)]
        + [{"type": "signature_delta", "signature": "s"}],
        2: [{"type": "text_delta", "text": part} for part in split(text)],
        3: [
            {"type": "input_json_delta", "partial_json": part}
            for part in split(json.dumps(arguments, ensure_ascii=False))
        ],
    }
    empty = {"thinking": "", "text": "", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "usage": usage}},
        {"type": "ping"},
    ]
    for place, block in enumerate(blocks):
        begun = {name: empty.get(name, value) for name, value in block.items()}
        events.append({"type": "content_block_start", "index": place, "content_block": begun})
        for delta in deltas.get(place, ()):
            events.append({"type": "content_block_delta", "index": place, "delta": delta})
        events.append({"type": "content_block_stop", "index": place})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": answered},
        {"type": "message_stop"},
    ]

    return whole, events


@st.composite
def responses_answers(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text = draw(PLAIN)
    thought = draw(TEXTS)
    arguments = json.dumps({"q": draw(TEXTS)})
    reason = draw(st.sampled_from([None, "max_output_tokens", "content_filter", "max_messages"]))
    details = {"cached_tokens": 1, "cache_write_tokens": 0}
    usage = {
        "input_tokens": draw(COUNTS),
        "input_tokens_details": details,
        "output_tokens": draw(COUNTS),
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    said = {"type": "output_text", "text": text, "annotations": []}
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]},
        {"type": "message", "role": "assistant", "content": [said]},
        {"type": "function_call", "call_id": "c", "name": "search", "arguments": arguments},
    ]
    status = "incomplete" if reason else "completed"
    whole = {"object": "response", "status": status, "model": "gpt", "output": items}
    whole |= {"error": None, "incomplete_details": reason and {"reason": reason}, "usage": usage}

    kinds = ("reasoning_summary_text.delta", "output_text.delta", "function_call_arguments.delta")
    texts = (thought, text, arguments)
    begun = {"in_progress": {**whole, "output": [], "status": "in_progress", "usage": None}}
    events: list[dict[str, Any]] = [
        {"type": f"response.{kind}", "response": response} for kind, response in begun.items()
    ]
    for place, (item, kind, full) in enumerate(zip(items, kinds, texts, strict=True)):
        empty = {**item, **{name: "" for name in ("arguments",) if name in item}, "content": []}
        events.append({"type": "response.output_item.added", "output_index": place, "item": empty})
        for part in split(full):
            event = {"type": f"response.{kind}", "output_index": place, "delta": part}
            events.append(event | ({"logprobs": []} if "output_text" in kind else {}))
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": f"response.{status}", "response": whole})

    return whole, events


def read_stream(wire: str, events: list[dict[str, Any]]) -> Any:
    read = CHAT_WIRES[wire].open_stream()
    return join_chunks([read(json.dumps(event).encode()) for event in events], str)


@given(anthropic_answers())
def test_anthropic_streams_are_read_as_whole_answers(answer) -> None:
    whole, events = answer
    completion = CHAT_WIRES["messages"].read(json.dumps(whole).encode())
    block = whole["content"]
    reason = {"max_tokens": "length"}.get(whole["stop_reason"], whole["stop_reason"])
    call = ToolCall("toolu_1", "search", json.dumps(block[3]["input"], ensure_ascii=False))
    reply = read_reply(completion)
    expected = ChatReply(
        block[2]["text"], reason, block[0]["thinking"], (call,), written=reply.written
    )
    assert reply == expected
    streamed = read_stream("messages", events)
    assert read_reply(streamed) == expected
    assert streamed.usage == completion.usage
    assert completion.model == streamed.model == "claude"

    price = Price(input=3, output=15, cached_input=0.3, cache_write=3.75)
    counts = whole["usage"]
    parts = (
        counts["input_tokens"] * 3,
        counts["cache_read_input_tokens"] * 0.3,
        counts["cache_creation_input_tokens"] * 3.75,
        counts["output_tokens"] * 15,
    )
    used = usage_of(completion.usage, price)
    assert used.cost == pytest.approx(sum(parts) / 1e6)


@given(responses_answers())
def test_responses_streams_are_read_as_whole_answers(answer) -> None:
    whole, events = answer
    completion = CHAT_WIRES["responses"].read(json.dumps(whole).encode())
    cut = (whole["incomplete_details"] or {}).get("reason")
    reason = {None: "stop", "content_filter": "content_filter"}.get(cut, "length")
    items = whole["output"]
    reply = read_reply(completion)
    call = ToolCall("c", "search", items[2]["arguments"])
    text = items[1]["content"][0]["text"]
    thought = items[0]["summary"][0]["text"]
    expected = ChatReply(text, reason, thought, (call,), written=reply.written)
    assert reply == expected
    streamed = read_stream("responses", events)
    assert read_reply(streamed) == expected
    assert streamed.usage == completion.usage
    assert usage_of(completion.usage, None).completion_tokens == whole["usage"]["output_tokens"]


def test_a_response_that_is_no_answer_is_none() -> None:
    read = CHAT_WIRES["responses"].read
    assert not read(b'{"status": "in_progress", "output": []}').choices
    assert not CHAT_WIRES["messages"].read(b"[]").choices
    failed = {"status": "failed", "error": {"code": "server_error", "message": "No."}}
    completion = read(json.dumps(failed | {"usage": {"input_tokens": 7}}).encode())
    assert completion.failure == {"code": "server_error", "message": "No."}
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 7
