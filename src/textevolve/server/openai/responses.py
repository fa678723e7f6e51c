"""OpenAI's Responses API on top of chat completions: a request is converted into a chat, and the
chat completion into a response.

So endpoints without this API answer it, too. Features that would need stored responses are refused:
agents store sessions, and clients can send the whole conversation.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from itertools import chain
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from textevolve.json_texts import as_object, is_array, is_object
from textevolve.llm.prices import usage_of
from textevolve.mappings import drop_none, pick
from textevolve.protocol.chat import (
    CompletionChunk,
    JsonObject,
    SentToolCall,
    drop_repeat,
    find_call,
)
from textevolve.protocol.contents import ReportedUsage, write_usage
from textevolve.server.errors import ApiError, bad_request
from textevolve.server.openai.relaying import RelayedAnswer
from textevolve.server.openai.requests import (
    LEFT_OUT,
    ServedAnswer,
    read_shape,
    write_left_out,
)
from textevolve.server.streams import event_of

STATEFUL = ("previous_response_id", "conversation", "background", "prompt", "context_management")
SHARED_FIELDS = ("user", "metadata", "temperature", "top_p")
"""The fields that have the same names in chat completions."""
_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_CUTS = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesRequest(BaseModel):
    """The fields of a request that are read here, besides those in `SHARED_FIELDS`. The response
    names others, which have no counterpart in a chat completion."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] = []
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] = {}
    reasoning: dict[str, Any] | None = None


def read_responses(body: Mapping[str, Any]) -> ResponsesRequest:
    """Read the body of a request to `/v1/responses`.

    Raises:
        ApiError: the body is invalid, or refers to stored responses, which this server lacks.
    """
    for field in STATEFUL:
        if body.get(field):
            message = f"'{field}' needs stored responses, and this server stores none; send the"
            message += (
                " whole conversation as input (OpenAI Agents: auto_previous_response_id=False,"
            )
            message += " no conversation_id), or an agent's session in the metadata"
            raise ApiError(400, "unsupported_parameter", message, param=field)

    return read_shape(ResponsesRequest, drop_none(body))


def as_chat(request: ResponsesRequest) -> JsonObject:
    """Convert the request into the body of a chat completion.

    Raises:
        ApiError: an item, a part or a tool has no counterpart in chat completions.
    """
    extra = request.model_extra or {}
    choice = request.tool_choice
    body: JsonObject = {name: extra.get(name) for name in SHARED_FIELDS}
    body |= {
        "model": request.model,
        "messages": list(_read_input(request)),
        "stream": request.stream,
    }
    body["max_completion_tokens"] = request.max_output_tokens
    body["response_format"] = _read_format(request.text.get("format"))
    body["reasoning_effort"] = (request.reasoning or {}).get("effort")
    body["stream_options"] = {"include_usage": True} if request.stream else None

    if request.tools:
        body["tools"] = [_read_tool(tool, n) for n, tool in enumerate(request.tools)]
        body["parallel_tool_calls"] = request.parallel_tool_calls
        if isinstance(choice, dict):
            choice = {"type": "function", "function": {"name": choice.get("name")}}
        body["tool_choice"] = choice

    return drop_none(body)


def _read_input(request: ResponsesRequest) -> Iterator[JsonObject]:
    if request.instructions:
        yield {"role": "system", "content": request.instructions}
    items = [{"content": request.input}] if isinstance(request.input, str) else request.input
    calls: list[JsonObject] = []

    for n, item in enumerate([*items, {"type": "end"}]):
        kind = item.get("type", "message")
        where = f"input.{n}"
        if kind == "function_call":
            called = {"name": item.get("name"), "arguments": item.get("arguments")}
            calls.append({"id": item.get("call_id"), "type": "function", "function": called})
            continue

        if calls:
            yield {"role": "assistant", "content": None, "tool_calls": calls}
            calls = []
        if kind == "message":
            content = _read_content(item.get("content"), f"{where}.content")
            yield {"role": item.get("role", "user"), "content": content}
        elif kind == "function_call_output":
            output = _read_content(item.get("output"), f"{where}.output")
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
        elif kind not in ("reasoning", "end"):  # chats have no reasoning of earlier answers
            raise _unsupported(f"items of the type '{kind}'", where)


def _read_content(content: object, where: str) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    if not is_array(content):
        raise bad_request("the content must be a text or a list of parts", param=where)
    parts = [_read_part(part, where) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _read_part(part: object, where: str) -> JsonObject:
    fields = as_object(part)
    kind = str(fields.get("type"))
    if kind in _PARTS and isinstance(text := fields.get(_PARTS[kind]), str):
        return {"type": "text", "text": text}
    if kind == "input_image" and fields.get("image_url"):
        image = {"url": fields["image_url"], "detail": fields.get("detail") or "auto"}
        return {"type": "image_url", "image_url": image}
    raise _unsupported(f"parts of the type '{kind}'", where)


def _read_tool(tool: Mapping[str, Any], n: int) -> JsonObject:
    if tool.get("type") != "function":
        raise _unsupported(f"tools of the type '{tool.get('type')}'", f"tools.{n}")
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": drop_none(pick(tool, names))}


def _read_format(shape: object) -> JsonObject | None:
    if not is_object(shape):
        return None
    fields = dict(shape)
    kind = fields.pop("type", None)
    return {"type": kind} | ({"json_schema": fields} if kind == "json_schema" else {})


def _unsupported(feature: str, where: str) -> ApiError:
    return bad_request(f"this server does not answer requests with {feature}", param=where)


class ResponseWriter:
    """A builder of a response and of the events of its stream. The items of the response (texts and
    tool calls) follow one another; only the last one can be open."""

    def __init__(self, request: ResponsesRequest) -> None:
        extra = request.model_extra or {}
        self.response: JsonObject = {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "model": request.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            **{name: extra.get(name) for name in SHARED_FIELDS},
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "text": request.text or {"format": {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools,
            "truncation": "disabled",
            "usage": None,
        }
        unread = sorted(extra.keys() - {*SHARED_FIELDS})
        self.response["metadata"] = {**(self.response["metadata"] or {}), **write_left_out(unread)}
        self._output: list[JsonObject] = self.response["output"]
        self._calls: list[SentToolCall] = []
        self._items: list[JsonObject] = []
        self._number = 0
        self._open = False
        self._reason: str | None = None
        self._usage: ReportedUsage | None = None

    def take(self, completion: JsonObject) -> Iterator[bytes]:
        """Add a chat completion, or a chunk of one, and yield the events that follow from it.

        Raises:
            ApiError: the chat completion is invalid.
        """
        try:
            chunk = CompletionChunk.model_validate(completion)
        except ValidationError:
            raise ApiError(
                502, "upstream_error", "the model's endpoint sent an invalid answer"
            ) from None

        if not self._number:
            yield self._event("created", response=self.response)
            yield self._event("in_progress", response=self.response)
        self._usage = chunk.usage or self._usage
        metadata: JsonObject = completion.get("metadata") or {}
        parts = [self.response["metadata"].get(LEFT_OUT), metadata.get(LEFT_OUT)]
        self.response["metadata"] |= {**metadata, **write_left_out(filter(None, parts))}

        self._reason = chunk.finish_reason or self._reason
        if text := chunk.text or chunk.refusal:
            yield from self._add_text(text)
        for call in chunk.tool_calls:
            yield from self._add_call(call)

    def end(self) -> Iterator[bytes]:
        if not self._output:
            yield from self._add_text("")
        yield from self._close()
        cut = _CUTS.get(self._reason or "")
        self.response["status"] = "incomplete" if cut else "completed"
        self.response["incomplete_details"] = {"reason": cut} if cut else None
        self.response["usage"] = self._usage and write_usage(usage_of(self._usage, None))
        yield self._event(self.response["status"], response=self.response)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        name = f"response.{kind}"
        return event_of({"type": name, "sequence_number": self._number - 1, **fields}, name)

    def _begin(self, prefix: str, **fields: Any) -> Iterator[bytes]:
        yield from self._close()
        id = f"{prefix}_{secrets.token_hex(16)}"
        self._output.append({"id": id, "status": "in_progress", **fields})
        self._open = True
        place = len(self._output) - 1
        yield self._event("output_item.added", item=self._output[-1], output_index=place)

    def _at(self, item: JsonObject) -> JsonObject:
        where = {"item_id": item["id"], "output_index": self._output.index(item)}
        return {**where, "content_index": 0} if item["type"] == "message" else where

    def _add_text(self, delta: str) -> Iterator[bytes]:
        if not self._output or self._output[-1]["type"] != "message":
            yield from self._begin("msg", type="message", role="assistant", content=[])
            part: JsonObject = {
                "type": "output_text",
                "text": "",
                "annotations": [],
                "logprobs": [],
            }
            self._output[-1]["content"].append(part)
            yield self._event("content_part.added", part=part, **self._at(self._output[-1]))

        item = self._output[-1]
        item["content"][0]["text"] += delta
        yield self._event("output_text.delta", delta=delta, logprobs=[], **self._at(item))

    def _add_call(self, call: SentToolCall) -> Iterator[bytes]:
        arguments = call.function.arguments
        place = find_call(self._calls, call)
        if place is None:
            id = call.id or f"call_{secrets.token_hex(12)}"
            fields = {"type": "function_call", "call_id": id, "arguments": ""}
            yield from self._begin("fc", name=call.function.name, **fields)
            self._calls.append(call)
            self._items.append(self._output[-1])
            place = -1
        else:
            self._calls[place].function.arguments += arguments

        if arguments:
            item = self._items[place]
            item["arguments"] += arguments
            yield self._event("function_call_arguments.delta", delta=arguments, **self._at(item))

    def _close(self) -> Iterator[bytes]:
        """End the open item, if there is one, and yield its final events."""
        for call in self._items:
            call["arguments"] = drop_repeat(call["arguments"])
        if not self._open:
            return
        item = self._output[-1]
        self._open = False
        item["status"] = "completed"
        where = self._at(item)

        if item["type"] == "message":
            part = item["content"][0]
            yield self._event("output_text.done", text=part["text"], logprobs=[], **where)
            yield self._event("content_part.done", part=part, **where)
        else:
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield self._event("function_call_arguments.done", **done, **where)

        yield self._event("output_item.done", item=item, output_index=where["output_index"])


def write_response(request: ResponsesRequest, completion: JsonObject) -> JsonObject:
    """Convert a chat completion into a response.

    Raises:
        ApiError: the chat completion is invalid.
    """
    writer = ResponseWriter(request)
    deque(chain(writer.take(completion), writer.end()), maxlen=0)
    return writer.response


async def write_events(
    request: ResponsesRequest, answer: ServedAnswer | RelayedAnswer
) -> AsyncGenerator[bytes]:
    """Yield the events of a streamed response.

    Raises:
        ApiError: the answer is not a stream of a chat completion.
    """
    writer = ResponseWriter(request)
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            for event in writer.take(chunk):
                yield event

    for event in writer.end():
        yield event
