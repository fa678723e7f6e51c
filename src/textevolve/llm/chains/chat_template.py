"""The user's prompt templates as lists of parts: plain text, and slots that are filled with values.

The parts are the canonical form, in which nothing has to be escaped. No template is evaluated as
code, and slots in a filled-in value are not filled.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from textevolve.errors import InputError
from textevolve.json_texts import is_mapping, is_sequence
from textevolve.llm.model import Message
from textevolve.loading import late_regex, regex
from textevolve.texts.placeholders import ARGUMENT, COMMAND, find_expression, placeholder_pattern

ChatRole: TypeAlias = Literal["system", "user", "assistant"]
ROLES: tuple[str, ...] = get_args(ChatRole)

NAME = r"[^\W\d][\w\p{M}]*(?:\.(?:[^\W\d][\w\p{M}]*|\d+))*"
"""The pattern of a slot's name; a dot selects a field or a key of the value before it, or an item
of a list by its number from 0."""

PATH = "a name, its field or its item ({name.field}, {name.0}), without a format, filter or loop"
"""The forms that a slot of a template may have, as error messages name them."""
_BRACKETS = late_regex(r"\{\{?\s*([^\W\d][\w\p{M}]*)((?:\.\w+|\[\d+\]|\[(['\"])\w+\3\])+)\s*\}\}?")
"""A value with a field or an item in brackets, as in Python and Jinja."""
_SLOT = late_regex(rf"{COMMAND}|{placeholder_pattern(NAME)}")


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder in a template, which is replaced by the value with its name."""

    name: str


TemplatePart: TypeAlias = str | Slot


@dataclass(frozen=True, slots=True)
class TemplateMessage:
    """A message of a template: its role, and the parts (texts and slots) that form its text."""

    role: ChatRole
    parts: tuple[TemplatePart, ...]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template of a prompt: the messages with their slots."""

    messages: tuple[TemplateMessage, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the template's slots, each once, in order of appearance."""
        parts = (part for message in self.messages for part in message.parts)
        return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, Slot)))

    def find_fault(self, names: Collection[str]) -> str:
        """Return the fault of a template in which one of the names has a format, a filter or
        another expression in its braces, which no slot has; empty if none has."""
        for message in self.messages:
            text = "".join(part for part in message.parts if isinstance(part, str))
            for match in _BRACKETS.finditer(text):
                if match[1] in names:
                    path = match[1] + regex.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", match[2])
                    return f"{match[0]} is not filled in; write {{{path}}}"
            if fault := find_expression(text, names, PATH):
                return fault

        return ""

    def fill(self, values: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the messages with each slot replaced by its value.

        Raises:
            InputError: a value is missing.
        """
        return tuple(
            Message(message.role, _fill(message.parts, values)) for message in self.messages
        )

    def describe(self) -> list[list[Any]]:
        """Return the template as JSON data: each message as its role and parts, a text as a string,
        a slot as a list."""
        return [
            [
                message.role,
                [part if isinstance(part, str) else [part.name] for part in message.parts],
            ]
            for message in self.messages
        ]


def _fill(parts: Sequence[TemplatePart], values: Mapping[str, Any]) -> tuple[str, ...]:
    texts: list[str] = []
    for part in parts:
        text = part if isinstance(part, str) else value_text(find_value(part.name, values))
        if text:
            texts.append(text)

    return tuple(texts) or ("",)


def find_value(name: str, values: Mapping[str, Any]) -> Any:
    """Return the value of a name; each dot selects a key, a field or an item of the value before
    it.

    Raises:
        InputError: there is no such value.
    """
    root, *fields = name.split(".")
    if root not in values:
        raise InputError(f"there is no value '{root}'; there are: {', '.join(values)}")
    value: object = values[root]

    for field in fields:
        if is_mapping(value) and field in value:
            value = value[field]
        elif field in _fields_of(value):
            value = getattr(value, field)
        elif field.isdecimal() and is_sequence(value):
            if int(field) >= len(value):
                raise InputError(f"'{name}': the list has {len(value)} items, counted from 0")
            value = value[int(field)]
        else:
            raise InputError(f"'{name}': the value has no field '{field}'")

    return value


def _fields_of(value: object) -> Collection[str]:
    """Return the names of the fields of a model, dataclass or named tuple; empty for
    other values."""
    if isinstance(value, BaseModel):
        return type(value).model_fields
    kind: Any = type(value)
    return getattr(kind, "__dataclass_fields__", ()) or getattr(kind, "_fields", ())


def value_text(value: object) -> str:
    """Format a value for a prompt: a text unchanged, other values as JSON."""
    value = unwrap_messages(value)
    if isinstance(value, str):
        return value
    plain = to_jsonable_python(value, serialize_unknown=True, by_alias=True)
    return json.dumps(plain, ensure_ascii=False)


def unwrap_messages(value: object) -> object:
    """Return the text of a message of LangChain, and a mapping with the texts of its messages;
    other values are unchanged. Messages with more than a text stay, as do lists of them, which are
    chats."""
    if is_mapping(value):
        return {name: unwrap_messages(item) for name, item in value.items()}
    if not hasattr(value, "response_metadata"):
        return value
    message = cast("Any", value)
    text = str(message.text)
    is_whole = not getattr(message, "tool_calls", None) and (text or not message.content)

    return text if is_whole else message


def merge(parts: Iterable[TemplatePart]) -> tuple[TemplatePart, ...]:
    """Merge adjacent texts, and drop empty parts."""
    merged: list[TemplatePart] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part != "":
            merged.append(part)

    return tuple(merged)


def read_text_template(text: str, names: Collection[str] | None = None) -> tuple[TemplatePart, ...]:
    """Split a template into texts and slots; `{name}` and `{{ name }}` are slots. With `names`,
    only these names are slots and other braces are plain text; otherwise every name in braces is
    one. In a LaTeX command single braces are text."""
    parts: list[TemplatePart] = []
    end = 0

    for name, start, stop in _find_slots(text):
        if names is None or name in names:
            parts += [text[end:start], Slot(name)]
            end = stop

    return merge([*parts, text[end:]])


def _find_slots(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each slot, and where it starts and ends."""
    for match in _SLOT.finditer(text):
        name = match[1]
        if name is not None:
            yield name, match.start(), match.end()
            continue
        for argument in ARGUMENT.finditer(text, match.start(), match.end()):
            if regex.fullmatch(NAME, argument[1]):
                # The outer braces are those of the command.
                yield argument[1], argument.start() + 1, argument.end() - 1


def write_text_template(parts: Sequence[TemplatePart]) -> str:
    """Return the template as text in which each slot is `{name}`, or `{{ name }}` where braces
    stand around one.

    Raises:
        InputError: plain text in it would be read as a slot.
    """
    names = {part.name for part in parts if isinstance(part, Slot)}
    for form in ("{{{}}}", "{{{{ {} }}}}"):  # the second one also stands between plain braces
        text = "".join(part if isinstance(part, str) else form.format(part.name) for part in parts)
        if read_text_template(text, names) == merge(parts):
            return text

    raise InputError(
        "the template has braces as plain text that would be read as one of its placeholders"
    )


def take_template(
    template: str | ChatTemplate | Iterable[tuple[str, str] | Mapping[str, str]],
) -> ChatTemplate:
    """Convert a template of the user: the text of a single user message, or a list of messages,
    each with a role and a text.

    Raises:
        InputError: there is no message, a role is unknown, or a text is missing.
    """
    if isinstance(template, ChatTemplate):
        return template
    messages: list[TemplateMessage] = []

    for message in [("user", template)] if isinstance(template, str) else template:
        match message:
            case Mapping():
                role = message.get("role")
                text = message.get("content")
            case (role, text):
                pass
            case _:
                raise InputError(
                    "each message of a template must be a pair (role, text), or an object with role"
                    " and content"
                )

        if not isinstance(text, str):
            raise InputError(f"the text of a message is not a text but {type(text).__name__}")
        messages.append(TemplateMessage(check_role(role), read_text_template(text)))

    if not any(message.parts for message in messages):
        raise InputError("the template is blank")

    return ChatTemplate(tuple(messages))


def check_role(role: object) -> ChatRole:
    """Return the role of a message if it is a known one.

    Raises:
        InputError: no message has this role.
    """
    if role not in ROLES:
        raise InputError(f"the role of a message is {', '.join(ROLES)}, not {role!r:.40}")
    return cast(ChatRole, role)
