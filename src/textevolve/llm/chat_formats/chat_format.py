"""The description of a chat format, and rendering of conversations in it.

A description has the markers around the text of each role, the place of the system message, the
rules for the order of roles, the trimming of white space, and the text that asks for the next
answer. Tool calls are left to the models' own templates. One Jinja template (`chat_format.jinja`)
renders all descriptions, here and, written out by `to_jinja`, at a server. A conversation that a
format cannot express is refused, so nothing is dropped silently. `catalogue` has the known formats,
`parsing` reads rendered prompts back, and `detection` recognises formats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field, ValidationError

from textevolve.errors import InputError
from textevolve.evaluation import empty_default
from textevolve.json_texts import is_array
from textevolve.llm.prompts import JOINER, literal_pattern
from textevolve.mappings import drop_none
from textevolve.spec import Frozen

Messages = Sequence[Mapping[str, Any]]
"""Messages of the chat protocol, each a mapping with `role` and `content`."""


OnMarker = Literal["neutralise", "keep"]
"""The treatment of a marker of the format inside a message's text. "neutralise": an invisible
character breaks it up, which `unbreak` removes; "keep": the marker stays, and a server may read it
as a change of speaker."""

ROLES = ("system", "user", "assistant")
_FIELDS = {"role", "content", "reasoning_content"}


class ChatFile(BaseModel):
    """The content of a chat file: its messages, and `tools`, the function definitions, or None; and
    the fields by which a chat request says how a server is to render it, as in vLLM."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    tools: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = {}

    @property
    def asks(self) -> bool:
        """Return whether the prompt ends by asking for the next answer."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    @property
    def rendering(self) -> dict[str, Any]:
        """Return the arguments that only a template of a model knows, without unset ones."""
        set_arguments = {
            "documents": self.documents,
            "continue_final_message": self.continue_final_message or None,
            "chat_template": self.chat_template,
        }
        return {**self.chat_template_kwargs, **drop_none(set_arguments)}


def read_conversation(text: str, name: str) -> ChatFile:
    """Parse a JSON text that holds a list of messages, or an object with `messages` and optional
    `tools`.

    Raises:
        InputError: the text is not JSON, or has no messages; `name` names it in the message.
    """
    try:
        body: Any = json.loads(text)
        return ChatFile.model_validate(body if isinstance(body, dict) else {"messages": body})
    except ValidationError as error:
        fault = error.errors()[0]
        part = fault["loc"][0]
        if part not in ("messages", "tools"):
            raise InputError(f"{name}: {part}: {fault['msg']}") from error
        raise InputError(
            f"{name}: the {part} must be a list of one or more JSON objects"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON: {error}") from error


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check messages of the protocol, and reduce each to the fields that a format can write.

    Raises:
        InputError: there is no message, or no format can write one of them; the message of the
            error says which and why.
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
    unknown = [key for key in message if key not in _FIELDS and message[key]]
    if unknown:
        raise InputError(
            f"message {place}: no format can write the field '{unknown[0]}'; leave it out"
        )

    thought = str(message.get("reasoning_content") or "")

    return make_message(str(role), join_text_parts(message.get("content"), place), thought)


def make_message(role: str, text: str, thought: str = "") -> dict[str, Any]:
    """Return a message of the protocol; the field for reasoning is left out if it is empty."""
    return {"role": role, "content": text} | ({"reasoning_content": thought} if thought else {})


def join_text_parts(content: Any, place: int) -> str:
    """Return a content as one text.

    Raises:
        InputError: it has parts that are no texts; names the message by its place.
    """
    if isinstance(content, str):
        return content
    if not is_array(content):
        raise InputError(f"message {place}: content must be a text, not {type(content).__name__}")
    texts: list[str] = []

    for part in content:
        match part:
            case {"type": "text", "text": text}:
                texts.append(str(text))
            case _:
                raise InputError(
                    f"message {place}: formats write texts alone, not images; leave the images out"
                )

    return "".join(texts)


@lru_cache(maxsize=256)
def _loose(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the markers that allows any number of joiners after the first
    character."""
    ordered = sorted(markers, key=len, reverse=True)
    return re.compile("|".join(f"{re.escape(m[0])}{JOINER}*{re.escape(m[1:])}" for m in ordered))


def find_marker(text: str, markers: tuple[str, ...]) -> str | None:
    """Return the marker that occurs first in a text, the longest one at that place; None if there
    is none."""
    match = literal_pattern(markers).search(text) if markers else None
    return match[0] if match else None


def break_up(text: str, markers: tuple[str, ...]) -> str:
    """Put a joiner (U+2060) after the first character of each marker in a text, or one more if it
    has some already. Time is linear in the text."""
    # Nearly no text holds a marker's end, and a pattern costs a hundred times this look.
    if not any(marker[1:] in text for marker in markers):
        return text
    return _loose(markers).sub(lambda match: match[0][0] + JOINER + match[0][1:], text)


def unbreak(text: str, markers: tuple[str, ...]) -> str:
    """Undo `break_up`: remove one joiner from each broken-up marker."""
    if not markers or JOINER not in text:
        return text
    return _loose(markers).sub(lambda m: m[0][0] + m[0][2:] if m[0][1:2] == JOINER else m[0], text)


def guard(text: str, markers: tuple[str, ...], place: int) -> str:
    """Break up the format's markers in the text of a message.

    Raises:
        InputError: a marker in the text is a single character, so it cannot be broken up.
    """
    for marker in markers:
        if len(marker) == 1 and marker in text:
            raise InputError(
                f"message {place} has {marker!r}, a marker of the format that cannot be escaped;"
                " remove it"
            )

    return break_up(text, markers)


CONTROL_TOKEN = re.compile(
    r"<\|[^|\s<>]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<</?\w{1,40}>>|</?[A-Za-z_]\w{0,40}>|\[/?[A-Z_]{2,40}\]"
)

Trim = Literal["none", "both", "left", "right"]


class TurnMarkers(Frozen):
    """The markers around the text of one role's messages. `trim`: the side on which white space of
    the text is removed."""

    before: str
    after: str
    trim: Trim = "none"


class SystemTurn(TurnMarkers):
    """The way a format writes the system message.

    Attributes:
        placement: Where it is written: as a message of its own ("turn"), before the first message
            without a marker ("prefix"), or inside the first or the last message of the user.
        preamble: A fixed text between `before` and the text of a system message at the beginning.
        default: The text if the conversation has no system message; None: nothing is written.
        later: Whether system messages may also follow other messages.
        written_empty: Whether an empty system message is written.
        joined_trim: What is trimmed in a user's message that contains the system message: the
            user's text, the whole, or nothing.
    """

    placement: Literal["turn", "prefix", "first-user", "last-user"] = "turn"
    preamble: str = ""
    default: str | None = None
    later: bool = False
    written_empty: bool = True
    joined_trim: Literal["content", "whole", "none"] = "content"

    @property
    def inside(self) -> bool:
        """Return whether the system message is written inside a user's message."""
        return self.placement in ("first-user", "last-user")


class Thoughts(Frozen):
    """The way a format writes an assistant's reasoning, which is part of a message's text between
    two tags. Reasoning of earlier answers is left out.

    Attributes:
        opening: The tag before the reasoning.
        closing: The tag after the reasoning.
        strip: The characters that are removed after left-out reasoning.
        wrap: Whether the last answer, if it follows the last question, is written with its
            reasoning, even if that is empty.
    """

    opening: str = "<think>"
    closing: str = "</think>"
    strip: str = ""
    wrap: bool = False


class ChatFormat(Frozen):
    """The description of a chat format.

    Attributes:
        name: The name in the catalogue.
        title: The name for people.
        user: The markers of the user's messages.
        assistant: The markers of the assistant's messages.
        system: How the system message is written; None: the format has none.
        bos: The text of the token that begins a prompt.
        writes_bos: Whether that token is written; otherwise the tokeniser adds it.
        eos: The text of the token that ends an answer.
        separator: The text between two messages.
        generation: The text at the end that asks for the next answer.
        ending: The text at the end of a conversation that asks for no answer.
        alternate: Whether user and assistant must take turns, the user first.
        stop: The texts at which an answer ends.
        thoughts: How reasoning is written; None: the format has no reasoning.
        more_markers: Further control tokens of the model, such as those of tool calls.
    """

    name: str
    title: str
    user: TurnMarkers
    assistant: TurnMarkers
    system: SystemTurn | None = None
    bos: str = ""
    writes_bos: bool = False
    eos: str = ""
    separator: str = ""
    generation: str = ""
    ending: str = ""
    alternate: bool = False
    stop: tuple[str, ...] = ()
    thoughts: Thoughts | None = None
    more_markers: tuple[str, ...] = ()

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Return all texts that could forge a change of speaker: control tokens, and the words that
        replace them in formats without control tokens."""
        turns = [self.user, self.assistant, *([self.system] if self.system else [])]
        texts = [text for turn in turns for text in (turn.before, turn.after)]
        texts += [self.bos, self.eos, self.generation, self.ending, *self.stop]
        openings = {turn.before for turn in turns}
        markers: list[str] = []
        for text in texts:
            tokens = CONTROL_TOKEN.findall(text)
            markers += tokens or ([text.strip()] if text in openings and text.strip() else [])

        return tuple(dict.fromkeys([*markers, *self.more_markers]))

    @cached_property
    def plain(self) -> dict[str, Any]:
        """Return the description in the form that `chat_format.jinja` takes, without
        empty fields."""
        return self.model_dump(exclude_none=True, exclude={"title", "more_markers"})


def render_chat(
    format: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    on_marker: OnMarker = "neutralise",
) -> str:
    """Render a conversation as a prompt in this format.

    `messages`: messages of the chat protocol, without tools. `on_marker`: how to treat a marker of
    the format inside a message's text; with "keep" the result is byte-equal to that of the
    published template.

    Raises:
        InputError: the format cannot express the conversation; says what to do.
    """
    talk = read_messages(messages)

    if on_marker == "neutralise":
        for place, message in enumerate(talk, 1):
            for name in ("content", "reasoning_content"):
                if message.get(name):
                    message[name] = guard(message[name], format.markers, place)

    return _compiled()(f=format.plain, messages=talk, add_generation_prompt=add_generation_prompt)


def to_jinja(format: ChatFormat) -> str:
    """Return a Jinja chat template that renders the same text as `render_chat` with markers kept,
    and refuses the same conversations. A template cannot break up markers inside texts."""
    description = json.dumps(format.plain, ensure_ascii=False)
    return f"{{%- set f = {description} -%}}\n{_source()}"


@cache
def _source() -> str:
    return resources.files(__package__ or "").joinpath("chat_format.jinja").read_text("utf-8")


@cache
def _compiled() -> Callable[..., str]:
    import jinja2

    environment = jinja2.Environment(autoescape=False)  # plain text: escaping would alter it
    names: dict[str, Any] = environment.globals
    names["raise_exception"] = _raise_refusal
    return environment.from_string(_source()).render


def _raise_refusal(reason: str) -> None:
    raise InputError(reason)


# Parse a rendered prompt back into its conversation.
#
# The text of a prompt that `render_chat` wrote is restored exactly: markers inside texts were
# broken up by an invisible character, so they cannot be confused with a change of speaker, and
# they are joined again here. A system message inside a user's message stays part of that message
# if no marker separates the two. Tool calls and their results are not parsed: markers of tools are
# refused, and parts without a marker are text.

_SHOWN = 40


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A conversation that was parsed from a prompt. `add_generation_prompt`: whether the prompt
    ends by asking for the next answer."""

    messages: tuple[dict[str, Any], ...]
    add_generation_prompt: bool


def parse_chat(format: ChatFormat, text: str) -> ParsedChat:
    """Parse a rendered prompt back into its conversation. A missing BOS token is allowed.

    Raises:
        InputError: the text is not in the format, or ends inside a turn; says where.
    """
    reader = _Reader(format, text)
    if not (format.bos and format.user.before.startswith(format.bos)):
        reader.take(format.bos)
    if format.system is not None and not format.system.inside:
        reader.read_system(format.system)
    begun = bool(reader.messages)

    while (asks := reader.closing()) is None:
        if begun:
            reader.require(format.separator)
        begun = True
        reader.read_turn()

    if not reader.messages:
        raise reader.wrong("a turn")

    return ParsedChat(tuple(reader.messages), asks)


def convert(
    text: str, source: ChatFormat, target: ChatFormat, *, on_marker: OnMarker = "neutralise"
) -> str:
    """Convert a rendered prompt into another format. A system message that is the default of the
    first format is dropped.

    Raises:
        InputError: the text is not in the first format, or the second cannot express it.
    """
    parsed = parse_chat(source, text)
    default = source.system.default if source.system else None
    is_default = parsed.messages[0] == {"role": "system", "content": default}

    return render_chat(
        target,
        parsed.messages[1:] if is_default else parsed.messages,
        add_generation_prompt=parsed.add_generation_prompt,
        on_marker=on_marker,
    )


@dataclass
class _Reader:
    """A parser's state: the text, the position `at`, and the messages that were read so far."""

    format: ChatFormat
    text: str
    at: int = 0
    messages: list[dict[str, Any]] = empty_default(list)

    @property
    def last(self) -> str:
        """Return the role of the last message; empty if there is none."""
        return self.messages[-1]["role"] if self.messages else ""

    def add(self, role: str, text: str) -> None:
        """Add a message, with the broken-up markers in its text restored."""
        self.messages.append(make_message(role, self.restore(text)))

    def take(self, literal: str) -> bool:
        """Skip a fixed text if the prompt continues with it; return whether it does."""
        stands = self.text.startswith(literal, self.at)
        self.at += len(literal) if stands else 0
        return stands

    def require(self, literal: str) -> None:
        if not self.take(literal):
            raise self.wrong(repr(literal))

    def wrong(self, expected: str) -> InputError:
        there = self.text[self.at : self.at + _SHOWN]
        return InputError(
            f"the text is not in the format {self.format.name}: {expected} is expected at"
            f" character {self.at + 1}, not {there!r}"
        )

    def is_marked(self, text: str) -> bool:
        return find_marker(text, self.format.markers) is not None

    def restore(self, text: str) -> str:
        """Return a text as it was before its markers were broken up."""
        if marker := find_marker(text, self.format.markers):
            raise InputError(
                f"the text is not in the format {self.format.name}: the marker {marker!r} is at a"
                f" place where no speaker changes, near {text[:_SHOWN]!r}"
            )

        return unbreak(text, self.format.markers)

    @cached_property
    def turns(self) -> list[tuple[str, TurnMarkers]]:
        """Return the roles with their markers, those with the longest opening first."""
        turns = [("user", self.format.user), ("assistant", self.format.assistant)]
        system = self.format.system
        if system is not None and system.later and system.before:
            turns.append(("system", system))
        return sorted(turns, key=lambda turn: -len(turn[1].before))

    @cached_property
    def openings(self) -> list[str]:
        """Return the texts that begin a message and are markers."""
        return [turn.before for _, turn in self.turns if self.is_marked(turn.before)]

    def until(self, after: str) -> str:
        """Return the text of a message up to its end marker, which is skipped. If the format has no
        end marker, the next message or the end of the text must follow."""
        end = re.escape(after)
        if not self.is_marked(after):
            format = self.format
            ends = [re.escape(text) + r"\Z" for text in {format.generation, format.ending, ""}]
            ends += [re.escape(format.separator + opening) for opening in self.openings]
            end += f"(?={'|'.join(ends)})"

        match = re.compile(end).search(self.text, self.at)
        if match is None:
            raise self.wrong(f"a turn that ends with {after!r}" if after else "the end of a turn")
        content = self.text[self.at : match.start()]
        self.at = match.end()

        return content

    def closing(self) -> bool | None:
        """Return True if the text ends here by asking for an answer, False if it ends without that,
        and None if messages follow."""
        remaining = self.text[self.at :]
        prompt = self.format.generation
        if remaining == prompt and (prompt or self.last == "user"):
            return True
        return False if remaining == self.format.ending else None

    def read_turn(self) -> None:
        system = self.format.system
        thoughts = self.format.thoughts
        for role, turn in self.turns:
            fits = role != "assistant" or self.last == "user" or self.is_marked(turn.before)
            if not (fits and self.take(turn.before)):
                continue
            if role == "user" and system is not None:
                self.read_system_within(system)
            text = self.until(turn.after)
            # Where there is no reasoning, an empty one is written.
            if role == "assistant" and thoughts is not None and thoughts.wrap:
                text = text.removeprefix(f"{thoughts.opening}\n\n{thoughts.closing}\n\n")
            self.add(role, text)
            return

        expected = {repr(turn.before) for _, turn in self.turns if turn.before}
        raise self.wrong(" or ".join(sorted(expected)))

    def read_system(self, system: SystemTurn) -> None:
        """Read a system message that begins the text."""
        opens_turn = not system.before and self.text.startswith(tuple(self.openings), self.at)
        if opens_turn or not self.take(system.before):
            return
        self.require(system.preamble)
        text = self.until(system.after)
        if text or system.before or system.after or self.format.separator:
            self.add("system", text)

    def read_system_within(self, system: SystemTurn) -> None:
        """Read a system message inside a user's message, if markers set it apart."""
        if system.inside and self.is_marked(system.before) and self.take(system.before):
            after = system.after.rstrip()
            end = self.text.find(after, self.at)
            if end < 0:
                raise self.wrong(f"a system message that ends with {system.after!r}")
            self.add("system", self.text[self.at : end])
            self.at = end + len(after)
            self.take(system.after.removeprefix(after))
