"""Chats, which are lists of messages, and the text form in which judges read a chat of several
turns (messages with their speakers).

In the text a turn starts at the beginning of a line with its speaker, and all its further lines are
indented, so that no text within a turn can pass for another turn. The fence around the whole text
(`llm/prompts.py`) prevents it from passing for a part of the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from textevolve.errors import InputError
from textevolve.images import Pictures
from textevolve.json_texts import parse_text, write_text
from textevolve.messages import (
    RawMessage,
    RecordedCall,
    is_message,
    list_entries,
    list_messages,
    plain_name,
    read_message,
    result_parts,
)

USER = "User"
ASSISTANT = "Assistant"
_SPEAKERS = {
    **dict.fromkeys(("system", "developer"), "System"),
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "gpt", "ai", "model", "bot", "chatbot"), ASSISTANT),
    **dict.fromkeys(("tool", "function", "ipython"), "Tool"),
}


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """The content of one message. `speaker`: User, Assistant, System, Tool, `Tool (NAME)` if the
    message names the tool, or `Other (ROLE)`. `text`: its text, which names other parts, such as
    images, in brackets. `calls`: the tool calls of the message, each as text. `thought`: what was
    thought before it, which is no part of what was said. `name`: that of the speaker, if the
    message has one. `others`: the number of parts that are only named. `images`: the pictures of
    the chat up to this message, as data URLs in the order of their numbers."""

    speaker: str
    text: str
    calls: tuple[str, ...] = ()
    thought: str = ""
    name: str = ""
    others: int = 0
    images: tuple[str, ...] = ()


Chat: TypeAlias = tuple[ChatTurn, ...]


def read_chat(value: object, pictures: Pictures | None = None) -> Chat | None:
    """Return the turns of a list of messages, or of its JSON; None for anything else. An empty list
    is no chat. `pictures`: collects the pictures; without it they are only named."""
    messages = list_messages(value)
    if not messages:
        return None
    return tuple(turn for message in messages for turn in read_turns(message, pictures))


def read_texts(value: object) -> tuple[str, ...]:
    """Return the texts of a list of texts, or of its JSON; empty for anything else, and for a list
    with any other item."""
    items = list_entries(parse_text(value))
    texts = tuple(item for item in items if isinstance(item, str))
    return texts if len(texts) == len(items) else ()


def text_of(value: object, name: str, where: str) -> str:
    """Return the value of a column as text: a chat turn by turn, a number in its written form.

    Raises:
        InputError: the value is of another type; names the first item of a list that is no message.
    """
    if (chat := read_chat(value)) is not None:
        return write_chat(chat)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)

    faults = [place for place, item in enumerate(list_entries(value), 1) if not is_message(item)]
    reason = f"; item {faults[0]} is no message of a chat" if faults else ""
    raise InputError(f"{where}: '{name}' must be text, not {type(value).__name__}{reason}")


def read_transcript(text: str) -> Chat | None:
    """Return the turns of a text that writes a chat as `Human: ...` and `Assistant: ...`, each
    after a blank line, as the HH data set does; None for any other text."""
    if not text.lstrip().startswith("Human:") or "\n\nAssistant:" not in text:
        return None
    pieces = re.split(r"\n\n(Human|Assistant):", f"\n\n{text.lstrip()}")[1:]
    turns = [
        ChatTurn(speaker_of(role), answer.strip())
        for role, answer in zip(pieces[::2], pieces[1::2], strict=True)
    ]
    return tuple(turns)


def read_turns(raw: RawMessage, pictures: Pictures | None = None) -> tuple[ChatTurn, ...]:
    """Convert a message to turns: one for each result of a tool, and one for what its speaker said.
    Anthropic's messages of the user hold both."""
    pictures = pictures or Pictures()
    message = read_message(raw, describe=pictures)
    results = [(result.name, result_parts(result, pictures)) for result in message.results]
    images = tuple(pictures.urls)
    turns = tuple(
        ChatTurn(
            f"Tool ({plain_name(name)})" if name else "Tool",
            parts.text,
            others=parts.others,
            images=images,
        )
        for name, parts in results
    )
    if turns and not message.text and not message.calls:
        return turns

    calls = tuple(map(_write_call, message.calls))
    turn = ChatTurn(
        speaker_of(message.role),
        message.text,
        calls,
        message.thought,
        plain_name(message.name),
        message.others,
        images,
    )

    return (*turns, turn)


def speaker_of(role: str) -> str:
    """Return the speaker for a role: User, Assistant, System or Tool; for an unknown role `Other
    (ROLE)`."""
    name = role.strip().lower()
    return _SPEAKERS.get(name) or f"Other ({plain_name(name)})"


def _write_call(call: RecordedCall) -> str:
    """Return a tool call as `NAME(ARGUMENTS)` in one line."""
    arguments = "" if call.arguments is None else write_text(call.arguments)
    return f"{plain_name(call.name)}({' '.join(arguments.split())})"


def write_chat(chat: Chat) -> str:
    """Return a chat as one text. For a single turn of the user or the assistant without tool calls
    it is that turn's text alone, without the speaker."""
    if len(chat) == 1 and chat[0].speaker in ("User", ASSISTANT) and not chat[0].calls:
        return chat[0].text
    return "\n".join(line for turn in chat for line in _write_turn(turn))


def _write_turn(turn: ChatTurn) -> Iterator[str]:
    speaker = f"{turn.speaker} ({turn.name})" if turn.name else turn.speaker
    # A message that holds a thought alone says nothing.
    if turn.text or not (turn.calls or turn.thought):
        lines = turn.text.rstrip("\r\n").splitlines(keepends=True)
        yield f"{speaker}: {'  '.join(lines)}".rstrip(" ")
    for call in turn.calls:
        yield f"{speaker} calls {call}"


def find_last_reply(chat: Chat) -> int | None:
    """Return the position of the assistant's last turn that says something, or else of the turn of
    the assistant at the end; None if there is neither."""
    places = [place for place, turn in enumerate(chat) if turn.speaker == ASSISTANT]
    saying = [place for place in places if chat[place].text.strip()]
    if saying:
        return saying[-1]
    return places[-1] if places and places[-1] == len(chat) - 1 else None


def has_no_reply(messages: Sequence[RawMessage]) -> bool:
    """Tell whether neither an assistant nor a tool has a turn in a chat."""
    turns = (turn for message in messages for turn in read_turns(message))
    return all(turn.speaker in (USER, _SPEAKERS["system"]) for turn in turns)
