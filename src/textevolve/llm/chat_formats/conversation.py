"""Conversations as they are read: the protocol's messages, checked, and markers in them broken up.

A marker inside a text is broken up by an invisible character after its first one, and one more
where the text had such a thing already, so that it can be undone to the letter. How a conversation
is written in a format is the business of `chat_format`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

from textevolve.errors import InputError
from textevolve.llm.fence import JOINER, literal_pattern

OnMarker = Literal["neutralise", "refuse", "keep"]
"""What becomes of a marker of the format that stands in a text: it is broken up (`unbreak` undoes
it), or the conversation is refused, or it stays and a server may read it as a change of speaker."""

ROLES = ("system", "user", "assistant", "tool")
_KNOWN = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class SaidCall(NamedTuple):
    """A tool call of a message. `arguments`: JSON, as the model wrote it."""

    name: str
    arguments: str
    id: str = ""


class Said(NamedTuple):
    """One message. `answers`: the id of the call that a message of the role "tool" answers.
    `place`: its number, from 1, for what is said of it in errors."""

    role: str
    text: str
    calls: tuple[SaidCall, ...] = ()
    answers: str = ""
    thought: str = ""
    place: int = 0


def read_said(messages: Sequence[Mapping[str, Any]]) -> list[Said]:
    """Messages of the protocol, checked.

    Raises:
        InputError: there is none, or one that no text format can hold; says which and why.
    """
    if not messages:
        raise InputError("there are no messages to render: give at least one")
    if any(not isinstance(message, Mapping) for message in cast(Sequence[object], messages)):
        raise InputError('messages must be a list of {"role": ..., "content": ...}')
    return [_read(message, place) for place, message in enumerate(messages, 1)]


def _read(message: Mapping[str, Any], place: int) -> Said:
    role = message.get("role")
    if role not in ROLES:
        raise InputError(f"message {place}: role must be one of {', '.join(ROLES)}, not {role!r}")
    if not _KNOWN.issuperset(message):
        unknown = [key for key in message if key not in _KNOWN and message[key] is not None]
        if unknown:
            raise InputError(f"message {place}: no format writes '{unknown[0]}': leave it out")
    if message.get("name") and role != "tool":
        raise InputError(f"message {place}: no format writes names: put the name into the content")
    calls = tuple(_read_call(call, place) for call in message.get("tool_calls") or ())
    if calls and role != "assistant":
        raise InputError(f"message {place}: only an assistant calls tools, not the {role}")
    return Said(
        role=role,
        text=_read_text(message.get("content"), place, bool(calls)),
        calls=calls,
        answers=str(message.get("tool_call_id") or ""),
        thought=str(message.get("reasoning_content") or ""),
        place=place,
    )


def _read_text(content: Any, place: int, empty: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and empty:
        return ""
    if isinstance(content, list):
        parts = cast(list[Any], content)
        texts = [
            str(cast(dict[str, Any], part).get("text"))
            for part in parts
            if isinstance(part, dict) and cast(dict[str, Any], part).get("type") == "text"
        ]
        if len(texts) == len(parts):
            return "".join(texts)
        raise InputError(f"message {place}: only texts can be written, not images: leave them out")
    raise InputError(f"message {place}: content must be a text, not {type(content).__name__}")


def _read_call(call: Any, place: int) -> SaidCall:
    given = cast(dict[str, Any], call) if isinstance(call, dict) else {}
    function = given.get("function")
    if not isinstance(function, dict):
        raise InputError(f"message {place}: a tool call needs a function with name and arguments")
    found = cast(dict[str, Any], function)
    name, arguments = str(found.get("name") or ""), found.get("arguments", "{}")
    if not _TOOL_NAME.fullmatch(name):
        raise InputError(f"message {place}: {name!r} cannot be a tool's name: letters, digits, _ -")
    written = arguments if isinstance(arguments, str) else as_json(arguments)
    return SaidCall(name, written, str(given.get("id") or ""))


def write_message(said: Said) -> dict[str, Any]:
    """A message of the protocol, with the fields alone that say something."""
    message: dict[str, Any] = {"role": said.role, "content": said.text}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.calls:
        message["tool_calls"] = [
            {
                **({"id": call.id} if call.id else {}),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in said.calls
        ]
    if said.answers:
        message["tool_call_id"] = said.answers
    return message


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON as the `tojson` of published templates writes it."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def load_arguments(call: SaidCall, place: int) -> Any:
    """The arguments of a call, read.

    Raises:
        InputError: they are not JSON.
    """
    try:
        return json.loads(call.arguments)
    except ValueError as error:
        told = f"message {place}: the arguments of {call.name} are not JSON ({error})"
        raise InputError(f"{told}: mend them, or leave the call out") from error


@lru_cache(maxsize=256)
def _loose(markers: tuple[str, ...]) -> re.Pattern[str]:
    """The markers, with any number of joiners after the first character."""
    ordered = sorted(markers, key=len, reverse=True)
    return re.compile("|".join(f"{re.escape(m[0])}{JOINER}*{re.escape(m[1:])}" for m in ordered))


def find_marker(text: str, markers: tuple[str, ...]) -> str | None:
    """The first marker that stands in a text."""
    found = literal_pattern(markers).search(text) if markers else None
    return found[0] if found else None


def break_up(text: str, markers: tuple[str, ...]) -> str:
    """The text with a joiner (U+2060) after the first character of each marker; one more where
    there are some already. Time is linear in the text."""
    # Nearly no text holds a marker's end, and a pattern costs a hundred times this look.
    if not any(marker[1:] in text for marker in markers):
        return text
    return _loose(markers).sub(lambda match: match[0][0] + JOINER + match[0][1:], text)


def unbreak(text: str, markers: tuple[str, ...]) -> str:
    """Undoes `break_up`."""
    if not markers or JOINER not in text:
        return text
    return _loose(markers).sub(lambda m: m[0][0] + m[0][2:] if m[0][1:2] == JOINER else m[0], text)


def broken_messages(
    said: Sequence[Said], markers: tuple[str, ...], on_marker: OnMarker
) -> Iterator[Said]:
    """The messages with what `on_marker` says done to every text of them."""
    single = tuple(marker for marker in markers if len(marker) == 1)
    for one in said:
        if on_marker == "keep":
            yield one
            continue
        if on_marker == "refuse":
            for text in (one.text, one.thought, *(call.arguments for call in one.calls)):
                if found := find_marker(text, markers):
                    told = f"message {one.place} holds {found!r}, a marker of the format"
                    raise InputError(f"{told}: take it out, or have it neutralised")
            yield one
            continue
        for marker in single:
            if any(marker in text for text in (one.text, one.thought)):
                told = f"message {one.place} holds {marker!r}, which the format has for a marker"
                raise InputError(f"{told} and which cannot be broken up: take it out")
        text = break_up(one.text, markers)
        if one.calls or one.answers or one.thought:
            calls = tuple(c._replace(arguments=break_up(c.arguments, markers)) for c in one.calls)
            answers, thought = break_up(one.answers, markers), break_up(one.thought, markers)
            yield one._replace(text=text, calls=calls, answers=answers, thought=thought)
        else:
            yield one if text is one.text else one._replace(text=text)
