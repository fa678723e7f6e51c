"""Conversations as formats write and read them: messages of the chat protocol, checked, and with
markers in their texts broken up.

A marker inside a text is broken up by an invisible character after its first one, and one more
where the text had such a character already, so that it can be undone to the letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

from textevolve.errors import InputError
from textevolve.llm.fence import JOINER, literal_pattern

Messages = Sequence[Mapping[str, Any]]
"""Messages of the chat protocol."""


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """`render`: the text of messages whose markers have been broken up, ready for the next answer,
    without the token that begins a text, which servers add. `stop`: where an answer ends.
    `markers`: what no message may hold."""

    name: str
    render: Callable[[Messages], str]
    stop: tuple[str, ...]
    markers: tuple[str, ...]

    def count_markers(self, messages: Messages) -> int:
        """How many markers the texts of the messages hold, which rendering breaks up."""
        if not self.markers:
            return 0
        ordered = sorted(self.markers, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, ordered)))
        return sum(len(pattern.findall(str(message.get("content") or ""))) for message in messages)


OnMarker = Literal["neutralise", "keep"]
"""What becomes of a marker of the format that stands in a text: it is broken up (`unbreak` undoes
it), or it stays and a server may read it as a change of speaker."""

ROLES = ("system", "user", "assistant", "tool")
_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class ChatFile(NamedTuple):
    """`tools`: the function definitions that came with the messages, or None."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None


def read_conversation(text: str, name: str) -> ChatFile:
    """Read a list of messages, or an object with `messages` and perhaps `tools`, from JSON.

    Raises:
        InputError: the text is not JSON, or holds no messages; `name` is what it is called there.
    """
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON: {error}") from error
    parts = cast("dict[str, Any]", body if isinstance(body, dict) else {"messages": body})
    for part in ("messages", "tools"):
        items = parts.get(part)
        listed = cast("list[Any]", items) if isinstance(items, list) else []
        if (part == "messages" or items is not None) and not (
            listed and all(isinstance(item, dict) for item in listed)
        ):
            raise InputError(
                f"{name}: the {part} must be a list of JSON objects, with one at least"
            )
    return ChatFile(parts["messages"], parts.get("tools"))


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check messages of the protocol, and reduce each to the fields that a format can write.

    Raises:
        InputError: there is none, or one that no text format can hold; says which and why.
    """
    if not messages:
        raise InputError("there are no messages to render: give at least one")
    if any(not isinstance(message, Mapping) for message in cast(Sequence[object], messages)):
        raise InputError('messages must be a list of {"role": ..., "content": ...}')
    return [_read(message, place) for place, message in enumerate(messages, 1)]


def _read(message: Mapping[str, Any], place: int) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise InputError(f"message {place}: role must be one of {', '.join(ROLES)}, not {role!r}")
    unknown = [key for key in message if key not in _FIELDS and message[key] is not None]
    if unknown:
        raise InputError(f"message {place}: no format writes '{unknown[0]}': leave it out")
    if message.get("name") and role != "tool":
        raise InputError(f"message {place}: no format writes names: put the name into the content")
    calls = [_read_call(call, place) for call in message.get("tool_calls") or ()]
    if calls and role != "assistant":
        raise InputError(f"message {place}: only an assistant calls tools, not the {role}")
    text = _read_text(message.get("content"), place, bool(calls))
    thought = str(message.get("reasoning_content") or "")
    return make_message(role, text, calls, str(message.get("tool_call_id") or ""), thought)


def make_message(
    role: str,
    text: str,
    calls: Sequence[dict[str, Any]] = (),
    answers: str = "",
    thought: str = "",
) -> dict[str, Any]:
    """Return a message of the protocol with only the fields that hold something."""
    more = {"reasoning_content": thought, "tool_calls": list(calls), "tool_call_id": answers}
    return {"role": role, "content": text} | {key: value for key, value in more.items() if value}


def make_call(name: str, arguments: str, id: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**({"id": id} if id else {}), "type": "function", "function": function}


def _read_text(content: Any, place: int, may_be_absent: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and may_be_absent:
        return ""
    if not isinstance(content, list):
        kind = type(content).__name__
        raise InputError(f"message {place}: content must be a text, not {kind}")
    texts: list[str] = []
    for part in cast("list[Any]", content):
        match part:
            case {"type": "text", "text": text}:
                texts.append(str(text))
            case _:
                raise InputError(
                    f"message {place}: only texts can be written, not images: leave them out"
                )
    return "".join(texts)


def _read_call(call: Any, place: int) -> dict[str, Any]:
    match call:
        case {"function": {"name": str(name), **function}} if _TOOL_NAME.fullmatch(name):
            arguments = function.get("arguments", "{}")
            written = arguments if isinstance(arguments, str) else as_json(arguments)
            return make_call(name, written, str(call.get("id") or ""))
        case {"function": {"name": name}}:
            raise InputError(
                f"message {place}: {name!r} cannot be a tool's name: letters, digits, _ -"
            )
        case _:
            raise InputError(
                f"message {place}: a tool call needs a function with name and arguments"
            )


def as_json(value: Any, indent: int | None = None) -> str:
    """Return JSON as the `tojson` of published templates writes it."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


@lru_cache(maxsize=256)
def _loose(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Match the markers with any number of joiners after the first character."""
    ordered = sorted(markers, key=len, reverse=True)
    return re.compile("|".join(f"{re.escape(m[0])}{JOINER}*{re.escape(m[1:])}" for m in ordered))


def find_marker(text: str, markers: tuple[str, ...]) -> str | None:
    """Return the first marker that stands in a text."""
    match = literal_pattern(markers).search(text) if markers else None
    return match[0] if match else None


def break_up(text: str, markers: tuple[str, ...]) -> str:
    """Put a joiner (U+2060) after the first character of each marker; one more where there are some
    already. Time is linear in the text."""
    # Nearly no text holds a marker's end, and a pattern costs a hundred times this look.
    if not any(marker[1:] in text for marker in markers):
        return text
    return _loose(markers).sub(lambda match: match[0][0] + JOINER + match[0][1:], text)


def unbreak(text: str, markers: tuple[str, ...]) -> str:
    """Undo `break_up`."""
    if not markers or JOINER not in text:
        return text
    return _loose(markers).sub(lambda m: m[0][0] + m[0][2:] if m[0][1:2] == JOINER else m[0], text)


def guard(text: str, markers: tuple[str, ...], place: int) -> str:
    """Break up the markers in a text of a message.

    Raises:
        InputError: one is a single character, and cannot be broken up.
    """
    for marker in markers:
        if len(marker) == 1 and marker in text:
            raise InputError(
                f"message {place} holds {marker!r}, which the format has for a marker and which"
                " cannot be broken up: take it out"
            )
    return break_up(text, markers)
