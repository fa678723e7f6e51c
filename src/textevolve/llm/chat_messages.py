"""Messages and tools as the chat protocol has them: text, pictures, calls of tools, their results.

Also read by wires that make another form of it. Not here: the rest of a body (`wire`).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from textevolve.llm.model import Message, Request
from textevolve.llm.tool_calls import as_sent


def chat_message(message: Message) -> dict[str, Any]:
    """The message as the protocol has it. Pictures stand before the text."""
    made: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.images:
        made["content"] = [*map(_picture, message.images), {"type": "text", "text": message.text}]
    if message.tool_calls:
        made["content"] = made["content"] or None
        made["tool_calls"] = as_sent(message.tool_calls)
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    return made


def _picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def chat_tools(request: Request) -> dict[str, Any]:
    """The fields of a body that say which functions may be called; empty where none may be."""
    made: dict[str, Any] = {}
    if request.tools is not None:
        made["tools"] = read_tools(request.tools)
    if request.tool_choice is not None:
        named = {"type": "function", "function": {"name": request.tool_choice}}
        made["tool_choice"] = request.tool_choice if is_mode(request.tool_choice) else named
    return made


def is_mode(tool_choice: str) -> bool:
    """Whether a choice names no function."""
    return tool_choice in ("auto", "none", "required")


@lru_cache(maxsize=64)
def read_tools(tools: str) -> Any:
    return json.loads(tools)
