"""OpenAI's Responses as they are written, whole or event by event, from a chat completion."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError

from textevolve.evaluation import Usage
from textevolve.llm.prices import ReportedUsage, usage_of
from textevolve.llm.wire import CompletionChunk, SentToolCall
from textevolve.server.errors import ApiError
from textevolve.server.openai.completions import Answering, JsonObject
from textevolve.server.openai.responses import ResponsesRequest
from textevolve.server.openai.streams import event_of


def _read(completion: JsonObject) -> CompletionChunk:
    """Read a chat completion, or a chunk of one."""
    try:
        return CompletionChunk.model_validate(completion)
    except ValidationError:
        message = "the model's endpoint answered what it should not"
        raise ApiError(502, "upstream_error", message) from None


def write_response(asked: ResponsesRequest, completion: JsonObject) -> JsonObject:
    """Return the response that a chat completion makes.

    Raises:
        ApiError: it is none.
    """
    read, output = _read(completion), list[JsonObject]()
    choice = next(iter(read.choices), None)
    message = choice and choice.delta
    calls = (message and message.tool_calls) or []
    if read.text or not calls:
        output.append(_message_item(read.text, message and message.refusal))
    output += [_call_item(call) for call in calls]
    head = _head(asked, read.model or asked.model)
    reason = choice and choice.finish_reason
    return _ended(head, output, reason, read.usage, completion.get("metadata"))


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
    usage: ReportedUsage | None,
    metadata: object,
) -> JsonObject:
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reason or "")
    return {
        **head,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": output,
        "usage": usage and _write_usage(usage_of(usage, None)),
        "metadata": head["metadata"] | (metadata if isinstance(metadata, dict) else {}),
    }


def _write_usage(usage: Usage) -> JsonObject:
    details = {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": details,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.tokens,
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


def _call_item(call: SentToolCall) -> JsonObject:
    return {
        "id": f"fc_{secrets.token_hex(16)}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.id or f"call_{secrets.token_hex(12)}",
        "name": call.function.name,
        "arguments": call.function.arguments,
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

    def begin(self) -> Iterator[bytes]:
        if self._number < 0:
            yield self.event("created", response=self.head)
            yield self.event("in_progress", response=self.head)

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

    def call(self, call: SentToolCall) -> Iterator[bytes]:
        place = call.index or 0
        if place not in self._calls:
            yield from self.close()
            item = {**_call_item(call), "status": "in_progress", "arguments": ""}
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
    writer = _Writer(_head(asked, asked.model))
    reason: str | None = None
    usage: ReportedUsage | None = None
    metadata: object = None
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            read = _read(chunk)
            for event in writer.begin():
                yield event
            usage, metadata = read.usage or usage, chunk.get("metadata") or metadata
            for choice in read.choices[:1]:
                reason = choice.finish_reason or reason
                for event in _write_delta(writer, read.text, choice.delta):
                    yield event
    for event in (*(() if writer.output else writer.text("")), *writer.close()):
        yield event
    whole = _ended(writer.head, writer.output, reason, usage, metadata)
    yield writer.event(whole["status"], response=whole)


def _write_delta(writer: _Writer, text: str, delta: Any) -> Iterator[bytes]:
    if delta is None:
        return
    if text or delta.refusal:
        yield from writer.text(text or delta.refusal)
    for call in delta.tool_calls or ():
        yield from writer.call(call)
