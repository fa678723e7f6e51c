"""Conversations as files have them: messages in JSON, or the body of a chat request."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from textevolve.errors import InputError


class ChatFile(NamedTuple):
    """`tools`: the function definitions that came with the messages, or None."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None


def read_conversation(text: str, name: str) -> ChatFile:
    """A list of messages, or an object with `messages` and perhaps `tools`, as requests have them.

    Raises:
        InputError: the text is not JSON, or holds no messages; `name` is what it is called there.
    """
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON: {error}") from error
    tools: Any = None
    if isinstance(found, dict):
        body = cast(dict[str, Any], found)
        found, tools = body.get("messages"), body.get("tools")
    messages = _objects(found, f"{name}: the messages")
    return ChatFile(messages, None if tools is None else _objects(tools, f"{name}: the tools"))


def _objects(found: Any, what: str) -> list[dict[str, Any]]:
    items = cast(list[Any], found) if isinstance(found, list) else []
    if not items or not all(isinstance(item, dict) for item in items):
        raise InputError(f"{what} must be a list of JSON objects, with one at least")
    return items
