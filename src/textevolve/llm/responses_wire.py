"""OpenAI's /v1/responses as a wire: bodies, whole answers, events of streams.

What comes is made into the shapes of a chat completion (`wire`). `store` is false in every body, so
that the provider keeps nothing. The wire has no seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from pydantic_core import from_json

from textevolve.llm.chat_messages import is_mode, read_tools
from textevolve.llm.lenient import read_loosely
from textevolve.llm.model import Message, Request
from textevolve.llm.wire import Completion, CompletionChunk, read_schema

FEWEST_TOKENS = 16
"""OpenAI refuses a lower limit; what of the answer is wanted is read from its beginning."""


def responses_body(model: str, request: Request, _max_tokens_field: str = "") -> dict[str, Any]:
    """The request as the wire has it; only what is set is sent. System messages that come first
    are its instructions."""
    messages = request.messages
    told = next((n for n, one in enumerate(messages) if one.role != "system"), len(messages))
    body: dict[str, Any] = {
        "model": model,
        "input": [item for message in messages[told:] for item in _items(message)],
        "store": False,
    }
    if told:
        body["instructions"] = "\n\n".join(message.text for message in messages[:told])
    if request.schema is not None:
        schema = read_schema(request.schema)
        named = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
        body["text"] = {"format": named}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body["max_output_tokens"] = max(FEWEST_TOKENS, request.max_tokens)
    if request.top_logprobs:
        body["top_logprobs"] = request.top_logprobs
        body["include"] = ["message.output_text.logprobs"]
    if request.tools is not None:
        body["tools"] = [_tool(tool) for tool in read_tools(request.tools)]
    if request.tool_choice is not None:
        named = {"type": "function", "name": request.tool_choice}
        body["tool_choice"] = request.tool_choice if is_mode(request.tool_choice) else named
    return body


def _items(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        answers = {"call_id": message.tool_call_id, "output": message.text}
        yield {"type": "function_call_output", **answers}
        return
    if message.images:
        pictures = [{"type": "input_image", "image_url": url} for url in message.images]
        text = {"type": "input_text", "text": message.text}
        yield {"role": message.role, "content": [*pictures, text]}
    elif message.text or not message.tool_calls:
        yield {"role": message.role, "content": message.text}
    for call in message.tool_calls:
        named = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call", **named}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function of the chat protocol stands one level higher here."""
    return {"type": "function", **tool["function"]} if "function" in tool else dict(tool)


def read_response(raw: bytes) -> Completion:
    """Raises ValueError where the body is not JSON or no response."""
    return read_loosely(_completion, raw)


def read_response_event(data: bytes) -> CompletionChunk | None:
    """The chunk in one event of a stream; None where the data is none. The last event has the whole
    response, which then stands for what came before."""
    try:
        return read_loosely(_chunk, data)
    except (ValueError, RecursionError):
        return None


def _chunk(data: bytes) -> CompletionChunk:
    event = _mapping(from_json(data))
    kind = str(event.get("type") or "")
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        whole = _as_completion(_mapping(event.get("response")))
        return CompletionChunk(whole=whole, error=whole.error)
    if kind == "error":
        return CompletionChunk(error=event.get("error") or event)
    make = _DELTAS.get(kind)
    if make is None:
        return CompletionChunk()
    return CompletionChunk.model_validate({"choices": [{"delta": make(str(event["delta"]))}]})


_DELTAS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "response.output_text.delta": lambda delta: {"content": delta},
    "response.refusal.delta": lambda delta: {"refusal": delta},
    "response.reasoning_text.delta": lambda delta: {"reasoning": delta},
    "response.reasoning_summary_text.delta": lambda delta: {"reasoning": delta},
}


def _completion(raw: bytes) -> Completion:
    return _as_completion(_mapping(from_json(raw)))


def _as_completion(said: Mapping[str, Any]) -> Completion:
    error = said.get("error")
    if error or said.get("status") == "failed":
        return Completion(error=error or {"message": "the response failed", "code": 502})
    if not isinstance(said.get("output"), list):
        raise ValueError("no response")
    items = [_mapping(item) for item in said["output"]]
    calls = [_call(item) for item in items if item.get("type") == "function_call"]
    parts = [
        _mapping(part)
        for item in items
        if item.get("type") == "message"
        for part in item.get("content") or ()
    ]
    thoughts = [text for item in items if item.get("type") == "reasoning" for text in _texts(item)]
    message = {
        "content": _joined(parts, "text"),
        "refusal": _joined(parts, "refusal") or None,
        "reasoning": "\n\n".join(thoughts) or None,
        "tool_calls": calls or None,
    }
    logprobs = [token for part in parts for token in part.get("logprobs") or ()]
    choice = {
        "message": message,
        "finish_reason": _finish_reason(said, bool(calls)),
        "logprobs": {"content": logprobs} if logprobs else None,
    }
    kept = {name: said.get(name) for name in ("model", "usage")}
    return Completion.model_validate({"choices": [choice], **kept})


def _finish_reason(said: Mapping[str, Any], calls: bool) -> str:
    if said.get("status") == "incomplete":
        reason = _mapping(said.get("incomplete_details") or {}).get("reason")
        return "length" if reason in ("max_output_tokens", None) else str(reason)
    return "tool_calls" if calls else "stop"


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id") or item.get("id"), "function": function}


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    """What a reasoning item tells: the thoughts themselves, or a summary of them."""
    for part in item.get("content") or item.get("summary") or ():
        text = _mapping(part).get("text")
        if isinstance(text, str):
            yield text


def _joined(parts: list[Mapping[str, Any]], name: str) -> str:
    found = (part.get(name) for part in parts)
    return "".join(text for text in found if isinstance(text, str))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")
    return cast("Mapping[str, Any]", value)
