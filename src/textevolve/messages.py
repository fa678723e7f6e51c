"""Read recorded messages: what was said, what was thought, which tools were called, what they gave.

A message may have the form of OpenAI's chats or responses, of Anthropic's blocks, of Gemini's
parts, of LangChain's messages, or of ShareGPT. Rows and trajectories read messages through this
module, so nothing after it looks into a raw message again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from textevolve.json_texts import parse_text, write_text
from textevolve.mappings import drop_none, first_of

RawMessage: TypeAlias = Mapping[str, Any]

CONTENTS = ("content", "tool_calls", "function_call", "refusal", "parts")
"""The fields of which a message with a role has at least one."""
INNER = ("kwargs", "data")
"""The fields under which LangChain nests the fields of a message."""
ROLES_OF_TYPES = {
    "human": "user",
    "ai": "assistant",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}
"""The roles of LangChain's types of messages."""
ITEMS = ("function_call", "function_call_output", "reasoning")
"""The types of the items of OpenAI's Responses API that have no role."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""The fields beside the content in which endpoints give a thought."""
CALL_PARTS = ("tool_use", "function_call", "toolUse")
RESULT_PARTS = ("tool_result", "function_call_output", "toolResult")
THOUGHT_PARTS = ("thinking", "reasoning", "redacted_thinking")

_TAGS = r"think|thinking|thought"
_PAIR = re.compile(rf"\s*<({_TAGS})>(.*?)</\1>\s*", re.DOTALL | re.IGNORECASE)
# The chat template has opened the thought, so only its end is in the text, on a line of its own.
# An answer that quotes the tag within a line is left alone.
_END_ALONE = re.compile(rf"(.*?)^\s*</(?:{_TAGS})>[ \t]*(?:\n|\Z)\s*", re.DOTALL | re.MULTILINE)
_BRACKETS = re.compile(r"\s*\[THINK\](.*?)\[/THINK\]\s*", re.DOTALL)
_CHANNELS = re.compile(
    r"\s*<\|channel\|>analysis<\|message\|>(.*?)<\|end\|>"
    r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>",
    re.DOTALL,
)
_OPENED = re.compile(rf"<(?:{_TAGS})>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call in a message. `id`: empty if none was recorded; ids may occur twice in a chat.
    `arguments`: as recorded, a text or an object; None if not recorded."""

    id: str
    name: str
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """The result of a tool call. `id` and `name`: those of the call, as far as recorded. `content`:
    as recorded. `is_error`: whether it is marked as an error."""

    id: str
    name: str
    content: Any
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One message. `role`: as recorded. `name`: that of the speaker or the tool, if there is one.
    `text`: what was said, in which other parts, such as images, are named in brackets. `thought`:
    what was thought before it."""

    role: str
    name: str = ""
    text: str = ""
    thought: str = ""
    calls: tuple[RecordedCall, ...] = ()
    results: tuple[RecordedResult, ...] = ()


def fields_of(value: object) -> dict[str, Any]:
    """Return the entries of a mapping; empty for any other value."""
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def list_entries(value: object) -> list[Any]:
    """Return the items of a list or a tuple, or of its JSON; empty for any other value."""
    parsed = parse_text(value)
    return list(cast("Sequence[Any]", parsed)) if isinstance(parsed, list | tuple) else []


def list_messages(value: object) -> Sequence[RawMessage] | None:
    """Return the messages of a list, or of its JSON; None for anything else."""
    if not isinstance(parse_text(value), list | tuple):
        return None
    messages = list_entries(value)
    return messages if all(map(is_message, messages)) else None


def is_message(value: object) -> bool:
    """Tell whether a value has the form of a message."""
    fields = _unwrap(fields_of(value))
    if isinstance(fields.get("role"), str):
        return any(name in fields for name in CONTENTS)
    if fields.get("type") in ITEMS:
        return True
    return isinstance(fields.get("from"), str) and isinstance(fields.get("value"), str)


def _unwrap(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a message of LangChain without what is around them, with its role."""
    for key in INNER:
        if isinstance(fields.get(key), Mapping):
            fields = {**fields, **fields[key]}
    if "role" in fields or "from" in fields:
        return fields

    # A serialised message has the names of its class as id.
    names = [str(name) for name in (fields.get("type"), *list_entries(fields.get("id")))]
    roles = [ROLES_OF_TYPES[name] for name in names if name in ROLES_OF_TYPES]
    is_plain = fields.get("type") in ("system", "tool") and "content" in fields
    if roles:
        return {**fields, "role": roles[-1]}
    return {**fields, "role": fields["type"]} if is_plain else fields


def read_message(raw: RawMessage) -> RecordedMessage:
    """Read a message of any of the forms."""
    # Tables have every field in each message, empty where it says nothing.
    fields = drop_none(_unwrap(raw))
    role = str(fields.get("role") or fields.get("from") or _role_of_item(fields))
    parts = _MessageParts()

    if fields.get("type") in ITEMS:
        parts.add(fields)
    elif role.lower() in ("tool", "function") or "tool_call_id" in fields:
        parts.results.append(_read_result(fields))
    else:
        content = first_of(fields, ("content", "value", "parts"))
        for part in _parts_of(content):
            parts.add(part)

    if isinstance(fields.get("refusal"), str):
        parts.texts.append(fields["refusal"])
    thought = first_of(fields, THOUGHTS)
    if isinstance(thought, str):
        parts.thoughts.append(thought)

    # Some frameworks write a call as a part of the content and once more beside it.
    if not parts.calls:
        parts.calls += [_read_call(call) for call in _list_calls(fields) if call]

    text = "\n".join(filter(None, parts.texts))
    if role.lower() not in ("user", "human", "system", "developer"):
        in_text, text = split_thought(text)
        parts.thoughts.append(in_text)

    return RecordedMessage(
        role=role,
        name=str(fields.get("name") or ""),
        text=text,
        thought="\n".join(filter(None, parts.thoughts)),
        calls=tuple(parts.calls),
        results=tuple(parts.results),
    )


def _parts_of(content: object) -> Sequence[object]:
    """Return the parts of a content: the items of a list, or the content itself. A text that holds
    JSON is a text."""
    return cast("Sequence[object]", content) if isinstance(content, list | tuple) else (content,)


def _role_of_item(fields: Mapping[str, Any]) -> str:
    return "tool" if fields.get("type") == "function_call_output" else "assistant"


def _list_calls(fields: Mapping[str, Any]) -> list[Any]:
    """Return the calls beside the content of a message, with the one of the older form."""
    calls = list_entries(fields.get("tool_calls"))
    older = fields.get("function_call")

    return [*calls, older] if isinstance(older, Mapping) else calls


class _MessageParts:
    """The parts of a message's content, sorted by what they are."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[RecordedCall] = []
        self.results: list[RecordedResult] = []

    def add(self, part: object) -> None:
        if not isinstance(part, Mapping):
            if part is not None:
                self.texts.append(str(part))
            return

        fields = drop_none(fields_of(cast(object, part)))
        kind = str(fields.get("type", ""))
        if kind in THOUGHT_PARTS or fields.get("thought") is True:
            self.thoughts.append(_read_thought(fields))
        elif kind in CALL_PARTS or "functionCall" in fields:
            self.calls.append(_read_call(fields.get("functionCall", fields)))
        elif kind in RESULT_PARTS or "functionResponse" in fields:
            self.results.append(_read_result(fields.get("functionResponse", fields)))
        elif isinstance(fields.get("text"), str):
            self.texts.append(fields["text"])
        elif kind == "refusal":
            self.texts.append(str(fields.get("refusal", "")))
        else:
            self.texts.append(describe_part(fields))


def describe_part(fields: Mapping[str, Any]) -> str:
    """Return the name of a part that is no text, in brackets."""
    kind = str(fields.get("type", ""))
    if "image" in kind:
        return "(image)"
    return f"({plain_name(kind) or 'part of no type'})"


def _read_thought(fields: Mapping[str, Any]) -> str:
    value = first_of(fields, ("thinking", "text", "reasoning", "summary", "content"))
    if isinstance(value, str):
        return value

    texts = (str(fields_of(part).get("text", "")) for part in list_entries(value))
    return "\n".join(filter(None, texts))


def _read_call(raw: object) -> RecordedCall:
    fields = drop_none(fields_of(raw)) or {"name": str(raw)}
    function = fields_of(fields.get("function")) or fields
    arguments = first_of(function, ("arguments", "args", "input", "parameters"))
    name = function.get("name") or fields.get("function") or ""
    id = fields.get("call_id") or fields.get("id") or fields.get("toolUseId") or ""

    return RecordedCall(str(id), str(name), arguments)


def _read_result(fields: Mapping[str, Any]) -> RecordedResult:
    fields = drop_none(fields)
    id = first_of(fields, ("tool_call_id", "tool_use_id", "call_id", "toolUseId", "id"))
    content = first_of(fields, ("content", "output", "response", "result"))
    is_error = fields.get("is_error") is True or fields.get("status") == "error"

    return RecordedResult(
        str(id or ""), str(fields.get("name") or ""), content, is_error or bool(fields.get("error"))
    )


def result_text(result: RecordedResult) -> str:
    """Return the content of a result as text: the texts of its parts, or JSON."""
    content: object = result.content
    if not isinstance(content, list | tuple):
        return "" if content is None else write_text(content)

    parts = _MessageParts()
    for part in _parts_of(cast(object, content)):
        parts.add(part)

    return "\n".join(filter(None, parts.texts))


def pair_results(
    messages: Iterable[RecordedMessage],
) -> list[tuple[RecordedCall, RecordedResult | None]]:
    """Return all calls in order, each with its result; None without one.

    Ids are not unique within a chat, and some chats have none. A result belongs to the first call
    with its id that has no result yet; without an id to the first such call of its name, or to the
    first such call.
    """
    calls: list[RecordedCall] = []
    results: list[RecordedResult | None] = []

    for message in messages:
        calls += message.calls
        results += [None] * len(message.calls)
        for result in message.results:
            place = _find_call(calls, results, result)
            if place is not None:
                results[place] = result

    return list(zip(calls, results, strict=True))


def _find_call(
    calls: Sequence[RecordedCall], results: Sequence[RecordedResult | None], result: RecordedResult
) -> int | None:
    """Return the position of the call that a result belongs to; None if all calls have theirs."""
    open_places = [place for place, known in enumerate(results) if known is None]
    with_id = [place for place in open_places if result.id and calls[place].id == result.id]
    if with_id:
        return with_id[0]
    if result.id and any(call.id == result.id for call in calls):
        return None  # its call has a result already

    unnamed = [place for place in open_places if not (result.id and calls[place].id)]
    of_name = [place for place in unnamed if calls[place].name == result.name]

    return next(iter(of_name or unnamed), None)


def split_thought(text: str) -> tuple[str, str]:
    """Split a text into the thought at its beginning and the answer after it; the thought is empty
    if there is none."""
    for form in (_PAIR, _BRACKETS, _CHANNELS):
        if match := form.match(text):
            return match[match.lastindex or 1].strip(), text[match.end() :]

    if "</th" in text and (match := _END_ALONE.match(text)) and not _OPENED.search(match[1]):
        return match[1].strip(), text[match.end() :]

    return "", text


def plain_name(name: str) -> str:
    """Return a name without special characters, on one line of at most 40 characters."""
    return re.sub(r"[^\w .-]+", "", name)[:40]
