"""Requests of OpenAI's Responses, made into chats: what answers chats answers them.

So endpoints without this API answer them too. What would need a memory of earlier responses is
refused: agents keep sessions, and clients their conversations. How the answer is written is in
`response_writing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel

from textevolve.server.errors import INVALID, ApiError
from textevolve.server.openai.completions import JsonObject
from textevolve.server.openai.requests import read_shape

STATEFUL = ("previous_response_id", "conversation", "background", "prompt", "context_management")
SAME = ("model", "user", "metadata", "temperature", "top_p", "parallel_tool_calls", "stream")
"""Fields that chats have by the same names."""
_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}


class ResponsesRequest(BaseModel):
    """What is read of a request; other fields are passed over."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None


def read_responses(body: Mapping[str, Any]) -> ResponsesRequest:
    """
    Raises:
        ApiError: it cannot be used, or needs what is not kept here.
    """
    for field in STATEFUL:
        if body.get(field):
            said = f"'{field}' needs responses that are kept, and none are kept here; send the"
            said += " whole conversation as input, or an agent's session in the metadata"
            raise ApiError(400, "unsupported_parameter", said, param=field)
    return read_shape(ResponsesRequest, body)


def as_chat(asked: ResponsesRequest) -> JsonObject:
    """The body of a chat completion that asks the same.

    Raises:
        ApiError: there is an item, a part or a tool that chats do not have.
    """
    messages = list(_read_input(asked))
    if asked.instructions:
        messages.insert(0, {"role": "system", "content": asked.instructions})
    body: JsonObject = {name: getattr(asked, name) for name in SAME} | {"messages": messages}
    body["max_completion_tokens"] = asked.max_output_tokens
    body["tools"] = [_read_tool(tool, n) for n, tool in enumerate(asked.tools or [])] or None
    body["tool_choice"] = _read_choice(asked.tool_choice) if body["tools"] else None
    body["response_format"] = _read_format(asked.text or {})
    body["reasoning_effort"] = (asked.reasoning or {}).get("effort")
    if asked.stream:
        body["stream_options"] = {"include_usage": True}
    if not body["tools"]:
        body["parallel_tool_calls"] = None
    return {name: value for name, value in body.items() if value is not None}


def _read_input(asked: ResponsesRequest) -> Iterator[JsonObject]:
    if isinstance(asked.input, str):
        yield {"role": "user", "content": asked.input}
        return
    calls: list[JsonObject] = []
    for n, item in enumerate(asked.input):
        kind, where = item.get("type", "message"), f"input.{n}"
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
            said = _read_content(item.get("output"), f"{where}.output")
            yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": said}
        elif kind != "reasoning":  # thoughts of an earlier answer, which chats do without
            raise _no_such(f"items of the type '{kind}'", where)
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}


def _read_content(content: object, where: str) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(400, INVALID, "the content must be a text or a list of parts", param=where)
    parts = [_read_part(part, where) for part in cast("list[object]", content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _read_part(part: object, where: str) -> JsonObject:
    found = cast("JsonObject", part) if isinstance(part, dict) else {}
    kind = str(found.get("type"))
    if kind in _PARTS and isinstance(text := found.get(_PARTS[kind]), str):
        return {"type": "text", "text": text}
    if kind == "input_image" and found.get("image_url"):
        image = {"url": found["image_url"], "detail": found.get("detail") or "auto"}
        return {"type": "image_url", "image_url": image}
    raise _no_such(f"parts of the type '{kind}'", where)


def _read_tool(tool: Mapping[str, Any], n: int) -> JsonObject:
    if tool.get("type") != "function":
        raise _no_such(f"tools of the type '{tool.get('type')}'", f"tools.{n}")
    known = ("name", "description", "parameters", "strict")
    named = {name: tool[name] for name in known if tool.get(name) is not None}
    return {"type": "function", "function": named}


def _read_choice(choice: str | Mapping[str, Any] | None) -> object:
    if isinstance(choice, Mapping):
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _read_format(text: Mapping[str, Any]) -> JsonObject | None:
    given = text.get("format")
    if not isinstance(given, dict):
        return None
    found = cast("JsonObject", given)
    if found.get("type") != "json_schema":
        return {"type": found.get("type")}
    return {
        "type": "json_schema",
        "json_schema": {name: value for name, value in found.items() if name != "type"},
    }


def _no_such(what: str, where: str) -> ApiError:
    return ApiError(400, INVALID, f"{what} are not answered here", param=where)
