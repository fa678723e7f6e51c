"""Chats, which are lists of messages, and the text form in which judges read a chat of several
turns (messages with their speakers).

In the text a turn starts at the beginning of a line with its speaker, and all its further lines are
indented, so that no text within a turn can pass for another turn. The fence around the whole text
(`llm/prompts.py`) prevents it from passing for a part of the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from textevolve.json_texts import parse_text, write_text

RawMessage: TypeAlias = Mapping[str, Any]

USER = "User"
ASSISTANT = "Assistant"
_SPEAKERS = {
    **dict.fromkeys(("system", "developer"), "System"),
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "gpt", "ai", "model", "bot", "chatbot"), ASSISTANT),
    **dict.fromkeys(("tool", "function", "ipython"), "Tool"),
}
_CONTENTS = ("content", "tool_calls", "function_call")


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """The content of one message. `speaker`: User, Assistant, System, Tool, `Tool (NAME)` if the
    message names the tool, or `Other (ROLE)`. `text`: its text, which names other parts, such as
    images, in brackets. `calls`: the tool calls of the message, each as text."""

    speaker: str
    text: str
    calls: tuple[str, ...] = ()


Chat: TypeAlias = tuple[ChatTurn, ...]


def read_chat(value: object) -> Chat | None:
    """Return the turns of a list of messages ({role, content} or {from, value}), or of its JSON;
    None for anything else. An empty list is no chat."""
    messages = list_messages(value)
    return tuple(map(read_message, messages)) if messages else None


def read_texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list of texts, or of its JSON; empty for anything else, and for a list
    with any other item."""
    value = parse_text(value)
    texts = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    strings = tuple(text for text in texts if isinstance(text, str))
    return strings if len(strings) == len(texts) else ()


def list_messages(value: object) -> Sequence[RawMessage] | None:
    """Return the messages of a list, or of its JSON; None for anything else."""
    value = parse_text(value)
    if not isinstance(value, list | tuple):
        return None
    messages = cast("Sequence[object]", value)
    return cast("Sequence[RawMessage]", messages) if all(map(_is_message, messages)) else None


def _is_message(value: object) -> bool:
    message = _object(value)
    if isinstance(message.get("role"), str):
        return any(name in message for name in _CONTENTS)
    return isinstance(message.get("from"), str) and isinstance(message.get("value"), str)


def _object(value: object) -> RawMessage:
    """Return the value if it is a mapping; otherwise an empty mapping."""
    return cast(RawMessage, value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    """Return the value if it is a list; otherwise a list with the value as its only item."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)


def read_message(message: RawMessage) -> ChatTurn:
    """Convert a message to a turn with speaker, text and tool calls."""
    speaker = speaker_of(str(message.get("role") or message.get("from")))
    if speaker == "Tool" and message.get("name"):
        speaker = f"Tool ({_plain(str(message['name']))})"
    parts = [_read_part(part) for part in _list(message.get("content", message.get("value")))]
    raw_calls = [*_list(message.get("tool_calls")), message.get("function_call")]
    calls = [call for _, call in parts if call] + [
        _read_call(entry) for entry in raw_calls if entry
    ]

    return ChatTurn(speaker, "\n".join(text for text, _ in parts if text), tuple(calls))


def speaker_of(role: str) -> str:
    """Return the speaker for a role: User, Assistant, System or Tool; for an unknown role `Other
    (ROLE)`."""
    name = role.strip().lower()
    return _SPEAKERS.get(name) or f"Other ({_plain(name)})"


def _read_part(part: object) -> tuple[str, str]:
    """Return the text of a part of a message's content, and the tool call in it; each is empty if
    there is none."""
    if not isinstance(part, Mapping):
        return "" if part is None else str(part), ""
    fields = _object(cast(object, part))
    kind = str(fields.get("type", ""))
    if isinstance(fields.get("text"), str):
        return fields["text"], ""
    if kind == "tool_use":
        return "", _read_call(fields)
    if kind == "tool_result":
        return "\n".join(_read_part(each)[0] for each in _list(fields.get("content"))), ""

    return f"({'image' if 'image' in kind else _plain(kind) or 'part of no type'})", ""


def _read_call(call: object) -> str:
    """Return a tool call as `NAME(ARGUMENTS)` in one line."""
    fields = _object(call)
    function = _object(fields.get("function")) or fields
    raw = function.get("arguments", function.get("input", ""))
    arguments = write_text(raw)
    return (
        f"{_plain(str(function.get('name', function.get('function', ''))))}"
        f"({' '.join(arguments.split())})"
    )


def _plain(name: str) -> str:
    """Return a name without special characters, on one line of at most 40 characters."""
    return re.sub(r"[^\w .-]+", "", name)[:40]


def write_chat(chat: Chat) -> str:
    """Return a chat as one text. For a single turn of the user or the assistant without tool calls
    it is that turn's text alone, without the speaker."""
    if len(chat) == 1 and chat[0].speaker in ("User", ASSISTANT) and not chat[0].calls:
        return chat[0].text
    return "\n".join(line for turn in chat for line in _write_turn(turn))


def _write_turn(turn: ChatTurn) -> Iterator[str]:
    if turn.text or not turn.calls:
        lines = turn.text.rstrip("\r\n").splitlines(keepends=True)
        yield f"{turn.speaker}: {'  '.join(lines)}".rstrip(" ")
    for call in turn.calls:
        yield f"{turn.speaker} calls {call}"


def replies_of(chat: Chat) -> list[tuple[Chat, ChatTurn]]:
    """Return a pair for each turn of the assistant: the turns before it, and the turn."""
    return [(chat[:at], turn) for at, turn in enumerate(chat) if turn.speaker == ASSISTANT]
