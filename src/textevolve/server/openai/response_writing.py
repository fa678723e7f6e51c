"""OpenAI's Responses as they are written, whole or event by event, from a chat completion."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel, ValidationError

from textevolve.server.errors import ApiError
from textevolve.server.openai.completions import Answering, JsonObject
from textevolve.server.openai.responses import ResponsesRequest
from textevolve.server.openai.streams import event_of


class _Called(BaseModel):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Called = _Called()


class _Said(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    message: _Said = _Said()
    delta: _Said | None = None
    finish_reason: str | None = None


class _PromptDetails(BaseModel):
    cached_tokens: int | None = None


class _AnswerDetails(BaseModel):
    reasoning_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _AnswerDetails | None = None


class _Completion(BaseModel):
    """A chat completion, or a chunk of one."""

    model: str | None = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    metadata: dict[str, str] | None = None


def _read(said: JsonObject) -> _Completion:
    try:
        return _Completion.model_validate(said)
    except ValidationError:
        message = "the model's endpoint answered what it should not"
        raise ApiError(502, "upstream_error", message) from None


def write_response(asked: ResponsesRequest, completion: JsonObject) -> JsonObject:
    """The response that a chat completion makes.

    Raises:
        ApiError: it is none.
    """
    read = _read(completion)
    choice = next(iter(read.choices), _Choice())
    message, output = choice.message, list[JsonObject]()
    if message.content or not message.tool_calls:
        output.append(_message_item(message.content or "", message.refusal))
    output += [_call_item(call) for call in message.tool_calls or ()]
    head = _head(asked, read.model or asked.model)
    return _ended(head, output, choice.finish_reason, read.usage, read.metadata)


def _head(asked: ResponsesRequest, model: str) -> JsonObject:
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "model": model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": asked.temperature,
        "text": asked.text or {"format": {"type": "text"}},
        "tool_choice": asked.tool_choice or "auto",
        "tools": asked.tools or [],
        "top_p": asked.top_p,
        "truncation": asked.truncation or "disabled",
        "usage": None,
        "user": asked.user,
    }


def _ended(
    head: JsonObject,
    output: list[JsonObject],
    reason: str | None,
    usage: _Usage | None,
    metadata: dict[str, str] | None,
) -> JsonObject:
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reason or "")
    return {
        **head,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": output,
        "usage": usage and _write_usage(usage),
        "metadata": {**head["metadata"], **(metadata or {})},
    }


def _write_usage(usage: _Usage) -> JsonObject:
    details, thought = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": (details and details.cached_tokens) or 0,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": (thought and thought.reasoning_tokens) or 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _text_part(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _message_item(text: str, refusal: str | None = None) -> JsonObject:
    part = {"type": "refusal", "refusal": refusal} if refusal and not text else _text_part(text)
    return {
        "id": f"msg_{secrets.token_hex(16)}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def _call_item(call: _ToolCall) -> JsonObject:
    return {
        "id": f"fc_{secrets.token_hex(16)}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.id or f"call_{secrets.token_hex(12)}",
        "name": call.function.name or "",
        "arguments": call.function.arguments or "",
    }


class _Writer:
    """The events of one response. Items come one after the other: a text, then calls of tools."""

    def __init__(self, head: JsonObject) -> None:
        self.head, self.output = head, list[JsonObject]()
        self._number = -1
        self._open: int | None = None
        self._calls: dict[int, int] = {}

    def event(self, kind: str, **more: Any) -> bytes:
        self._number += 1
        name = f"response.{kind}"
        return event_of({"type": name, "sequence_number": self._number, **more}, name)

    def text(self, delta: str) -> Iterator[bytes]:
        if self._open is None or self.output[self._open]["type"] != "message":
            yield from self.close()
            item = {**_message_item(""), "status": "in_progress"}
            yield from self._add(item, {**item, "content": []})
            yield self.event("content_part.added", part=_text_part(""), **self._at(part=True))
        assert self._open is not None
        self.output[self._open]["content"][0]["text"] += delta
        where = self._at(part=True)
        yield self.event("output_text.delta", delta=delta, logprobs=[], **where)

    def call(self, call: _ToolCall) -> Iterator[bytes]:
        place = call.index or 0
        if place not in self._calls:
            yield from self.close()
            named = call.model_copy(update={"function": _Called(name=call.function.name)})
            item = {**_call_item(named), "status": "in_progress"}
            self._calls[place] = len(self.output)
            yield from self._add(item, dict(item))
        if arguments := call.function.arguments:
            n = self._calls[place]
            self.output[n]["arguments"] += arguments
            where = {"item_id": self.output[n]["id"], "output_index": n}
            yield self.event("function_call_arguments.delta", delta=arguments, **where)

    def _add(self, item: JsonObject, shown: JsonObject) -> Iterator[bytes]:
        self._open = len(self.output)
        self.output.append(item)
        yield self.event("output_item.added", item=shown, output_index=self._open)

    def _at(self, part: bool = False) -> JsonObject:
        assert self._open is not None
        where = {"item_id": self.output[self._open]["id"], "output_index": self._open}
        return {**where, "content_index": 0} if part else where

    def close(self) -> Iterator[bytes]:
        """Ends the item that is open."""
        if self._open is None:
            return
        item = self.output[self._open]
        item["status"] = "completed"
        if item["type"] == "message":
            part, where = item["content"][0], self._at(part=True)
            yield self.event("output_text.done", text=part["text"], logprobs=[], **where)
            yield self.event("content_part.done", part=part, **where)
        else:
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield self.event("function_call_arguments.done", **done, **self._at())
        yield self.event("output_item.done", item=item, output_index=self._open)
        self._open = None


async def write_events(asked: ResponsesRequest, answer: Answering) -> AsyncGenerator[bytes]:
    """The events of a response that is streamed.

    Raises:
        ApiError: what comes is no stream of a chat completion.
    """
    writer, begun = _Writer(_head(asked, asked.model)), False
    reason, usage, metadata = None, None, None
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            read = _read(chunk)
            if not begun:
                begun = True
                for kind in ("created", "in_progress"):
                    yield writer.event(kind, response=writer.head)
            usage, metadata = read.usage or usage, read.metadata or metadata
            for choice in read.choices[:1]:
                reason = choice.finish_reason or reason
                for event in _told(writer, choice.delta or choice.message):
                    yield event
    for event in (*(() if writer.output else writer.text("")), *writer.close()):
        yield event
    whole = _ended(writer.head, writer.output, reason, usage, metadata)
    yield writer.event(whole["status"], response=whole)


def _told(writer: _Writer, said: _Said) -> Iterator[bytes]:
    if text := said.content or said.refusal:
        yield from writer.text(text)
    for call in said.tool_calls or ():
        yield from writer.call(call)
