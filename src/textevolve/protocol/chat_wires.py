"""The protocols by which endpoints chat: OpenAI's chat completions, Anthropic's Messages, and
OpenAI's Responses.

A `ChatWire` converts the body of a chat completion into its own, and answers and events of streams
back into those of chat completions. So usage, refusals, cut answers, reasoning and tool calls are
read by the same functions, whatever the endpoint speaks. How a provider is chosen and how its key
is sent is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from textevolve.evaluation import empty_default
from textevolve.json_texts import as_array, as_object, is_array, is_object, parse_text
from textevolve.mappings import drop_none, map_values, pick
from textevolve.protocol.chat import CHATS, Completion, CompletionChunk, JsonObject, read_completion
from textevolve.protocol.contents import LENGTH, answer_ending, read_loosely


@dataclass(frozen=True, slots=True)
class ChatWire:
    """A protocol for chats. `write`, `list_events` and `read_event` are None for chat completions.

    Attributes:
        path: The path of chats, after the base URL.
        write: Converts the body of a chat completion.
        list_events: Yields the events of a stream with the same content as a whole answer.
        read_event: Converts an event into a chunk of a chat completion. Its second argument is the
            state of the stream, a dictionary.
        key_header: The header of a provider's key; empty: `Authorization`, as a bearer token.
        headers: The headers that each request needs.
        has_logprobs: Whether the protocol has log-probabilities.
        default_tokens: The limit of an answer's tokens where a request has none, if the protocol
            demands one.
    """

    path: str
    write: Callable[[JsonObject], JsonObject] | None = None
    list_events: Callable[[JsonObject], Iterable[JsonObject]] | None = None
    read_event: Callable[[JsonObject, JsonObject], JsonObject] | None = None
    key_header: str = ""
    headers: Mapping[str, str] = empty_default(dict)
    has_logprobs: bool = True
    default_tokens: int | None = None

    def read(self, raw: bytes) -> Completion:
        """Parse a whole answer.

        Raises ValueError if the bytes are none.
        """
        read_event = self.read_event
        list_events = self.list_events
        if read_event is None or list_events is None:
            return read_completion(raw)

        def parse(body: bytes) -> Completion:
            state: JsonObject = {}
            events = list_events(as_object(from_json(body)))
            return Completion.model_validate(_join_chunks(read_event(e, state) for e in events))

        return read_loosely(parse, raw)

    def open_stream(self) -> Callable[[bytes], CompletionChunk]:
        """Return the reader of the events of one stream."""
        read_event = self.read_event
        state: JsonObject = {}
        if read_event is None:
            return CompletionChunk.model_validate_json
        return lambda data: CompletionChunk.model_validate(
            read_event(as_object(from_json(data)), state)
        )


def _write_chunk(delta: JsonObject, **more: Any) -> JsonObject:
    return {"choices": [{"delta": delta, **more}]}


def _join_chunks(chunks: Iterable[JsonObject]) -> JsonObject:
    """Join the chunks of a whole answer, before they are validated, which takes most of the
    time."""
    message: JsonObject = {"content": "", "reasoning": "", "refusal": "", "tool_calls": []}
    choice: JsonObject = {}
    completion: JsonObject = {}
    logprobs: list[Any] = []

    for chunk in chunks:
        completion |= drop_none(chunk)
        for part in chunk.get("choices", ()):
            choice |= part
            logprobs += as_array(as_object(part.get("logprobs")).get("content"))
            for name, value in drop_none(part["delta"]).items():
                message[name] += value

    if choice:
        choice |= {"message": message, "logprobs": {"content": logprobs} if logprobs else None}
        completion["choices"] = [choice]

    return completion


def _write_call(place: Any, id: Any, name: Any, arguments: Any) -> JsonObject:
    function = {"name": name, "arguments": arguments}
    return _write_chunk({"tool_calls": [{"index": place, "id": id, "function": function}]})


_STATUSES = {
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded"), 429),
    **dict.fromkeys(("invalid_request_error", "invalid_prompt", "bio_policy"), 400),
}
"""The HTTP statuses of errors within an answer or a stream with status 200; all others count as a
502, so that they are tried again."""


def _read_failure(error: JsonObject) -> JsonObject:
    status = _STATUSES.get(str(error.get("code") or error.get("type")))
    return {"error": drop_none({**error, "status": status})}


def _read_parts(content: object) -> list[JsonObject]:
    """Return the parts of a chat message; a text is one part."""
    if is_array(content):
        return content
    return [{"type": "text", "text": content}] if content else []


# Anthropic's Messages

ANSWER_TOKENS = 16_000
"""The limit of an answer's tokens where a request has none, since Anthropic demands one. Its
clients advise streaming for more."""
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_SCHEMA_FIELDS = (
    *("type", "enum", "const", "$ref", "required", "title", "description", "format"),
    "additionalProperties",
)
"""The keywords of a JSON schema that Anthropic's structured outputs take as they are."""


def write_anthropic(body: JsonObject) -> JsonObject:
    """Convert the body of a chat completion into one of `/v1/messages`. System messages stand in a
    field of their own, and messages in a row by the same speaker become one. The temperature is at
    most 1, as Anthropic's range ends there. `reasoning_effort` is a level of effort, `none`, or a
    number of tokens for thinking, which are added to the limit of the answer."""
    system: list[JsonObject] = []
    turns: list[JsonObject] = []

    for message in body["messages"]:
        blocks = list(_write_blocks(message))
        role = "assistant" if message["role"] == "assistant" else "user"
        if message["role"] == "system":
            system += blocks
        elif turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:  # an empty text is refused
            turns.append({"role": role, "content": blocks})

    if not turns:  # at least one message is demanded
        turns = [{"role": "user", "content": system}]
        system = []

    choice = body.get("tool_choice")
    if is_object(choice):
        choice = {"type": "tool", "name": choice["function"]["name"]}
    elif choice is not None:
        choice = {"type": _CHOICES[choice]}

    temperature = body.get("temperature")
    schema = as_object(as_object(body.get("response_format")).get("json_schema")).get("schema")
    effort = body.get("reasoning_effort")
    budget = int(effort) if effort is not None and effort.isdecimal() else 0
    output: JsonObject = {}
    thinking = None
    if budget:
        thinking = {"type": "enabled", "budget_tokens": budget}
    elif effort == "none":
        thinking = {"type": "disabled"}
    elif effort is not None:
        thinking = {"type": "adaptive"}
        output["effort"] = effort
    if schema is not None:
        output["format"] = {"type": "json_schema", "schema": _narrow_cached(to_json(schema))}

    limit = body.get("max_tokens") or body.get("max_completion_tokens", 0)
    fields = {
        "model": body["model"],
        "max_tokens": limit + budget,
        "system": system or None,
        "messages": turns,
        "temperature": None if temperature is None else min(temperature, 1),
        "stream": body.get("stream"),
        "thinking": thinking,
        "output_config": output or None,
        "tools": body.get("tools") and list(map(_write_tool, body["tools"])),
        "tool_choice": choice,
    }

    return drop_none(fields)


def _write_tool(tool: JsonObject) -> JsonObject:
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object"}
    return {**pick(function, ("name", "description", "strict")), "input_schema": schema}


def _write_blocks(message: JsonObject) -> Iterator[JsonObject]:
    """Yield the blocks of a message, without empty texts, which Anthropic refuses."""
    content = message.get("content")
    if message["role"] == "tool":
        call_id = message.get("tool_call_id")
        yield {"type": "tool_result", "tool_use_id": call_id, "content": content or ""}
        return

    for part in _read_parts(content):
        if part["type"] == "image_url":
            yield {"type": "image", "source": _write_source(part["image_url"]["url"])}
        elif part["text"].strip():
            yield part

    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = parse_text(function["arguments"] or "{}")
        if not is_object(arguments):  # a tool's input has to be an object
            arguments = {"arguments": arguments}
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def _write_source(url: str) -> JsonObject:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "base64", "media_type": kind, "data": data}


@lru_cache(maxsize=320)
def _narrow_cached(schema: bytes) -> JsonObject:
    return narrow_schema(from_json(schema))


def narrow_schema(schema: JsonObject) -> JsonObject:
    """Return a JSON schema with the keywords alone that Anthropic takes. Others, such as the bounds
    of a number, stand in the description for the model; answers are checked against the whole
    schema in any case. An object with open fields is left as it is, and refused."""
    narrowed: JsonObject = {}
    notes: list[str] = []

    for name, value in schema.items():
        if name in ("properties", "$defs"):
            narrowed[name] = map_values(narrow_schema, value)
        elif name in ("anyOf", "oneOf", "allOf"):
            narrowed["allOf" if name == "allOf" else "anyOf"] = list(map(narrow_schema, value))
        elif name == "items" and is_object(value):
            narrowed[name] = narrow_schema(value)
        elif name in _SCHEMA_FIELDS or (name == "minItems" and value in (0, 1)):
            narrowed[name] = value
        else:
            notes.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")

    if schema.get("properties"):
        narrowed.setdefault("additionalProperties", False)
    if notes:
        texts = (narrowed.get("description"), f"({', '.join(notes)})")
        narrowed["description"] = " ".join(filter(None, texts))

    return narrowed


def list_anthropic_events(answer: JsonObject) -> Iterator[JsonObject]:
    """Yield the events of an answer of `/v1/messages`."""
    if answer.get("type") == "error":
        yield answer
    elif "content" in answer:
        yield {"type": "message_start", "message": answer}
        for place, block in enumerate(answer["content"]):
            yield {"type": "content_block_start", "index": place, "content_block": block}
        yield {"type": "message_delta", "delta": answer}


def read_anthropic_event(event: JsonObject, state: JsonObject) -> JsonObject:
    """Convert an event of a stream of `/v1/messages`. `state`: the usage so far, of whose counts
    later events repeat a part."""
    kind = event.get("type")
    if kind == "error":
        return _read_failure(as_object(event.get("error")))
    if kind == "message_start":
        message = as_object(event.get("message"))
        state |= as_object(message.get("usage"))
        return {"model": message.get("model"), "usage": _read_usage(state)}
    if kind == "message_delta":
        state |= drop_none(as_object(event.get("usage")))
        reason = as_object(event.get("delta")).get("stop_reason")
        return {**_write_chunk({}, finish_reason=reason), "usage": _read_usage(state)}

    part = as_object(event.get("delta") or event.get("content_block"))
    place = event.get("index")
    if part.get("type") == "tool_use":  # the input of a stream's call comes later
        arguments = json.dumps(part["input"], ensure_ascii=False) if part.get("input") else ""
        return _write_call(place, part.get("id"), part.get("name"), arguments)
    if part.get("type") == "input_json_delta":
        return _write_call(place, None, None, part.get("partial_json"))

    return _write_chunk({"content": part.get("text"), "reasoning": part.get("thinking")})


def _read_usage(usage: JsonObject) -> JsonObject | None:
    """Convert usage. Anthropic counts tokens of the cache beside the other tokens of the prompt,
    chat completions among them."""
    if usage.get("input_tokens") is None:
        return None
    cached = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    details = as_object(usage.get("output_tokens_details"))

    return {
        "prompt_tokens": usage["input_tokens"] + cached + written,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "completion_tokens": usage.get("output_tokens"),
        "completion_tokens_details": {"reasoning_tokens": details.get("thinking_tokens")},
    }


# OpenAI's Responses

LEAST_TOKENS = 16
"""The lowest limit of an answer's tokens that OpenAI takes."""


def write_responses_body(body: JsonObject) -> JsonObject:
    """Convert the body of a chat completion into one of `/v1/responses`, which the provider does
    not store. A limit of an answer's tokens below 16 becomes 16."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    effort = body.get("reasoning_effort")
    choice = body.get("tool_choice")
    shared = ("model", "temperature", "stream", "prompt_cache_key", "top_logprobs")
    answer_format = as_object(body.get("response_format")).get("json_schema")
    fields = {
        "input": [item for message in body["messages"] for item in _write_items(message)],
        "max_output_tokens": limit and max(limit, LEAST_TOKENS),
        "store": False,
        "include": ["message.output_text.logprobs"] if body.get("top_logprobs") else None,
        "text": answer_format and {"format": {"type": "json_schema", **answer_format}},
        "reasoning": effort and {"effort": effort},
        "tools": body.get("tools")
        and [{"type": "function", **tool["function"]} for tool in body["tools"]],
        "tool_choice": {"type": "function", **choice["function"]} if is_object(choice) else choice,
    }

    return pick(body, shared) | drop_none(fields)


def _write_items(message: JsonObject) -> Iterator[JsonObject]:
    """Yield the items of a message: what was said, then each call of a tool."""
    role = message["role"]
    parts = _read_parts(message.get("content"))
    text = "".join(part.get("text", "") for part in parts)
    images = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]

    if role == "tool":
        call_id = message.get("tool_call_id")
        yield {"type": "function_call_output", "call_id": call_id, "output": text}
    elif images:
        content = [{"type": "input_image", "image_url": url, "detail": "auto"} for url in images]
        yield {"role": role, "content": [*content, {"type": "input_text", "text": text}]}
    elif text or not message.get("tool_calls"):
        yield {"role": role, "content": text}

    for call in message.get("tool_calls") or ():
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def list_response_events(answer: JsonObject) -> Iterator[JsonObject]:
    """Yield the events of an answer of `/v1/responses`; none of a response that is still at
    work."""
    status = answer.get("status", "completed")
    if status not in ("completed", "incomplete", "failed", "cancelled"):
        return
    for place, item in enumerate(as_array(answer.get("output"))):
        yield {"type": "output_item.added", "output_index": place, "item": item}
        for part in (*as_array(item.get("summary")), *as_array(item.get("content"))):
            text = part.get("text") or part.get("refusal")
            yield {**part, "type": f"{part.get('type')}.delta", "delta": text}

    yield {"type": status, "response": answer}


def read_response_event(event: JsonObject, _state: JsonObject) -> JsonObject:
    """Convert an event of a stream of `/v1/responses`."""
    kind = str(event.get("type")).removeprefix("response.").removesuffix(".delta")
    place = event.get("output_index")
    delta = event.get("delta")
    item = as_object(event.get("item"))

    if kind == "error":
        return _read_failure(pick(event, ("code", "message", "param")))
    if kind in ("completed", "incomplete", "failed", "cancelled"):
        return _read_end(kind, as_object(event.get("response")))
    if kind == "output_item.added" and item.get("type") == "function_call":
        return _write_call(place, item.get("call_id"), item.get("name"), item.get("arguments"))
    if kind == "function_call_arguments":
        return _write_call(place, None, None, delta)
    if kind == "output_text":
        tokens = event.get("logprobs")
        return _write_chunk({"content": delta}, logprobs={"content": tokens} if tokens else None)
    if kind == "refusal":
        return _write_chunk({"refusal": delta})
    if kind in ("summary_text", "reasoning_summary_text", "reasoning_text"):
        return _write_chunk({"reasoning": delta})

    return {}


def _read_end(status: str, answer: JsonObject) -> JsonObject:
    """Convert the end of a response. One that is incomplete for an unknown reason was cut."""
    more = pick(answer, ("model", "usage"))
    if status in ("failed", "cancelled"):
        error = as_object(answer.get("error")) or {"message": f"the response was {status}"}
        return _read_failure(error) | more
    reason = str(as_object(answer.get("incomplete_details")).get("reason"))
    if status == "completed":
        reason = "stop"
    elif answer_ending(reason) == "whole":
        reason = LENGTH

    return _write_chunk({}, finish_reason=reason) | more


CHAT_WIRES: Mapping[str, ChatWire] = {
    "chat": ChatWire(CHATS),
    "messages": ChatWire(
        "/messages",
        write_anthropic,
        list_anthropic_events,
        read_anthropic_event,
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        has_logprobs=False,
        default_tokens=ANSWER_TOKENS,
    ),
    "responses": ChatWire(
        "/responses",
        write_responses_body,
        list_response_events,
        read_response_event,
    ),
}
"""The protocols by the names that a provider's `wire` has."""
