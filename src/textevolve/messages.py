"""Read recorded messages: what was said, what was thought, which tools were called, what they gave.

A message may have the form of OpenAI's chats or responses, of Anthropic's blocks, of Gemini's
parts, of Bedrock's, of LangChain's messages, of ShareGPT, or of the conventions of traces. Rows,
trajectories and traces read messages through this module, so nothing after it looks into a raw
message again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from textevolve.json_texts import CONTAINERS, is_mapping, is_sequence, parse_text, write_text
from textevolve.loading import late_re
from textevolve.mappings import drop_none, first_of, map_values, pick

RawMessage: TypeAlias = Mapping[str, Any]

BODIES = ("content", "parts", "contents", "blocks", "prompt", "completion")
"""The fields that may hold what a message says. A message may have several of them."""
CALL_LISTS = ("tool_calls", "invalid_tool_calls")
"""The fields that may hold the calls of a message beside its content."""
CONTENTS = (*BODIES, *CALL_LISTS, "function_call", "refusal")
"""The fields of which a message with a role has at least one."""
INNER = ("message", "kwargs", "data")
"""The fields under which LangChain, events and sessions nest the fields of a message."""
ROLES_OF_TYPES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}
"""The roles of LangChain's types of messages, and of Gemini's speaker."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thought", "reasoning_details")
"""The fields beside the content in which endpoints give a thought."""

THOUGHTLESS = ("user", "human", "system", "developer")
"""The roles whose texts are left as they are: tags in them are quotations."""

WRAPPERS = {
    "message_content": "text",
    "document": "text",
    "tool_call": "tool_call",
    "function": "function",
    "function_call": "function_call",
    "functionCall": "function_call",
    "toolUse": "tool_use",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "toolResult": "tool_result",
    "reasoningContent": "reasoning",
    "reasoningText": "reasoning",
}
"""The fields under which formats nest a part, each with the type of the part if it names none."""
CALL_PARTS = ("tool_use", "tool_call", "tool-call", "function", "function_call", "toolUse")
RESULT_PARTS = ("tool_result", "tool-result", "tool_call_response", "toolResult")
THOUGHT_PARTS = ("thinking", "reasoning", "redacted_thinking")
SHOWN = "(image "
"""The beginning of the mark, before its number, that stands in a text for a picture shown."""
HIDDEN = "(hidden)"
"""The thought of a part that has none in plain text."""
ARGUMENTS = (
    *("arguments", "args", "input", "parameters", "input_parameters", "kwargs"),
    *("inputParameters", "tool_input", "tool_kwargs", "rawInput", "params"),
)
"""The fields that may hold the arguments of a call."""
CALL_IDS = ("tool_call_id", "tool_use_id", "call_id", "toolUseId", "toolCallId", "id")
"""The fields that may hold the id of a call, in the call and in its result."""
CALL_NAMES = ("name", "tool_name", "toolName", "tool", "function")
"""The fields that may hold the name of the tool that is called."""
# The Responses API has items without a role: calls, their outputs, and thoughts.
CALL_ITEM = "_call"
RESULT_ITEM = "_call_output"

MEDIA = {
    **dict.fromkeys(("image", "image_url", "image-url", "input_image"), "image"),
    "computer_screenshot": "image",
    **dict.fromkeys(("audio", "audio-url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video-url", "video_url"), "video"),
    **dict.fromkeys(("file", "input_file", "document-url", "document"), "file"),
    **dict.fromkeys(("blob", "uri", "binary"), "file"),
}
"""The types of parts that are no text, and the fields that hold such a part, by their names."""
EMBEDDED = ("inline_data", "inlineData", "file_data", "fileData")
"""The fields in which Gemini has a medium; its kind is that of its MIME type."""
KINDS = ("type", "part_kind", "block_type")
"""The fields in which formats name the type of a part."""
MOST_LEVELS = 12
"""The maximum depth of nested parts that are read."""

_TAGS = r"think|thinking|thought|seed:think"
_SPACE = r"[\s\ufeff]*"
_PAIR = late_re(rf"{_SPACE}<({_TAGS})(?:\s[^<>]*)?>(.*?)</\1>\s*", re.DOTALL | re.IGNORECASE)
# The chat template has opened the thought, so only its end is in the text, on a line of its own.
# An answer that quotes the tag within a line is left alone.
_END_ALONE = late_re(rf"(.*?)^[^\S\n]*</(?:{_TAGS})>[ \t]*(?:\n|\Z)\s*", re.DOTALL | re.MULTILINE)
_BRACKETS = late_re(
    rf"{_SPACE}(?:\[THINK\](.*?)\[/THINK\]|◁think▷(.*?)◁/think▷"
    r"|<\|begin_of_thought\|>(.*?)<\|end_of_thought\|>"
    r"|<\|START_THINKING\|>(.*?)<\|END_THINKING\|>)\s*",
    re.DOTALL,
)
_CHANNELS = late_re(
    r"\s*<\|channel\|>analysis<\|message\|>(.*?)<\|end\|>"
    r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>",
    re.DOTALL,
)
_OPENED = late_re(rf"<(?:{_TAGS})>", re.IGNORECASE)


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
    what was thought before it. `others`: the number of parts that are only named, not shown."""

    role: str
    name: str
    text: str
    thought: str
    calls: tuple[RecordedCall, ...]
    results: tuple[RecordedResult, ...]
    others: int


def fields_of(value: object) -> dict[str, Any]:
    """Return the entries of a mapping; empty for any other value."""
    return dict(value) if is_mapping(value) else {}


def list_entries(value: object) -> list[Any]:
    """Return the items of a list or a tuple, or of its JSON; empty for any other value."""
    parsed = parse_text(value)
    return list(parsed) if is_sequence(parsed) else []


def list_messages(value: object) -> Sequence[RawMessage] | None:
    """Return the messages of a list, or of its JSON; None for anything else."""
    messages = parse_text(value)
    return messages if is_sequence(messages) and all(map(is_message, messages)) else None


def is_message(value: object) -> bool:
    """Tell whether a value has the form of a message."""
    fields = open_message(fields_of(value))
    if isinstance(fields.get("role"), str):
        return any(name in fields for name in CONTENTS)
    if _is_item(fields.get("type")):
        return True
    return isinstance(fields.get("from"), str) and isinstance(fields.get("value"), str)


def _is_item(kind: object) -> bool:
    """Tell whether this is the type of an item of the Responses API that has no role."""
    return kind == "reasoning" or str(kind).endswith((CALL_ITEM, RESULT_ITEM))


def open_message(raw: RawMessage) -> RawMessage:
    """Return the fields of a message without what is around them, with its role if it is known."""
    fields = dict(raw)
    for key in INNER:
        inner = fields.get(key)
        # What stands beside the inner fields counts where they say nothing themselves.
        fields |= drop_none(fields_of(inner))
        if isinstance(inner, list):
            fields["content"] = inner
    if fields.get("role") or "from" in fields:
        return fields

    # A serialised message has the names of its class as id.
    names = map(str, (fields.get("type"), *list_entries(fields.get("id"))))
    roles = [ROLES_OF_TYPES[name] for name in names if name in ROLES_OF_TYPES]
    if roles:
        return {**fields, "role": roles[-1]}
    is_plain = fields.get("type") in ("system", "tool", "user", "assistant")

    return {**fields, "role": fields["type"]} if is_plain and "content" in fields else fields


def describe_part(fields: Mapping[str, Any]) -> str:
    """Return the name of a part that is no text, in brackets; data that is marked as JSON is
    written out."""
    if "json" in fields:
        return write_text(fields["json"])
    kind = medium_of(fields) or plain_name(str(fields.get("type", "")))
    return f"({kind or 'part of no type'})"


def medium_of(fields: Mapping[str, Any]) -> str:
    """Return what a part shows that is no text: an image, audio, a video or a file; empty for other
    parts."""
    kind = str(fields.get("type", ""))
    if kind in MEDIA:
        # A file may be of any kind, which its MIME type shows.
        medium = _medium_of_data(fields) if MEDIA[kind] == "file" else MEDIA[kind]
        return str(fields.get("modality") or medium)

    for key in EMBEDDED:
        if data := fields_of(fields.get(key)):
            return _medium_of_data(data)

    # Bedrock's parts name no type.
    names = (MEDIA[key] for key in MEDIA if not kind and isinstance(fields.get(key), Mapping))

    return next(names, "")


def _medium_of_data(fields: Mapping[str, Any]) -> str:
    """Return the medium of embedded data by its MIME type."""
    return MEDIA.get(str(first_of(fields, MIME_TYPES)).partition("/")[0], "file")


DescribePart: TypeAlias = Callable[[Mapping[str, Any]], str]
"""A function that writes a part that is no text as a text."""


def read_message(
    raw: RawMessage, role: str = "", describe: DescribePart = describe_part
) -> RecordedMessage:
    """Read a message of any of the forms. `role`: that of a message that names none. `describe`:
    writes the parts that are no text."""
    # Tables have every field in each message, empty where it says nothing.
    fields = drop_none(open_message(raw))
    kind = fields.get("type")
    role = str(fields.get("role") or fields.get("from") or _role_of_item(fields) or role)
    parts = MessageParts(describe)

    if _is_item(kind) or (kind in (*CALL_PARTS, *RESULT_PARTS) and "content" not in fields):
        parts.add(fields)
    else:
        names = (*BODIES, "value") if "from" in fields else BODIES
        for name in names:
            parts.add_body(fields.get(name))

    # A tool's message is itself the result, unless results are among its parts.
    is_tool = role.lower() in ("tool", "function") or "tool_call_id" in fields
    if is_tool and not (parts.results or parts.calls):
        parts.results.append(_read_result(fields))
        parts.texts.clear()

    if isinstance(fields.get("refusal"), str):
        parts.texts.append(fields["refusal"])
    thought = first_of(fields, THOUGHTS)
    if isinstance(thought, str):
        parts.thoughts.append(thought)

    # Some frameworks write a call as a part of the content and once more beside it, where it is
    # whole: a part that was streamed has no arguments.
    calls = [_read_call(call) for call in _list_calls(fields) if call]
    if len(calls) >= len(parts.calls):
        parts.calls = calls

    text = parts.text
    if role.lower() not in THOUGHTLESS:
        in_text, text = split_thought(text)
        parts.thoughts.append(in_text)

    return RecordedMessage(
        role=role,
        # The name of an item without a role is that of the tool.
        name="" if _is_item(kind) else str(fields.get("name") or ""),
        text=text,
        thought="\n".join(filter(None, parts.thoughts)),
        calls=tuple(parts.calls),
        results=tuple(parts.results),
        others=parts.others,
    )


def _role_of_item(fields: Mapping[str, Any]) -> str:
    """Return the role of an item of the Responses API; empty for any other message."""
    kind = fields.get("type")
    if not _is_item(kind):
        return ""
    return "tool" if str(kind).endswith(RESULT_ITEM) else "assistant"


def _list_calls(fields: Mapping[str, Any]) -> list[Any]:
    """Return the calls beside the content of a message, with those whose arguments LangChain could
    not parse, and the one of the older form."""
    calls = [call for name in CALL_LISTS for call in list_entries(fields.get(name))]
    calls.append(fields_of(fields.get("function_call")))
    if "function_call_name" in fields:
        arguments = fields.get("function_call_arguments_json")
        calls.append({"name": fields["function_call_name"], "arguments": arguments})

    return calls


class MessageParts:
    """The parts of a message's content, sorted by what they are."""

    def __init__(self, describe: DescribePart) -> None:
        self.describe = describe
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[RecordedCall] = []
        self.results: list[RecordedResult] = []
        self.others = 0

    @property
    def text(self) -> str:
        return "\n".join(filter(None, self.texts))

    def add_body(self, body: object) -> None:
        """Add a content, unless an equal one was added before: some write what was said as a text
        and as parts."""
        other = MessageParts(self.describe)
        other.add(body)

        if other.text not in (self.text, *self.texts):
            self.texts.append(other.text)
        self.thoughts += other.thoughts
        self.calls = self.calls or other.calls
        self.results += other.results
        self.others += other.others

    def add(self, part: object, depth: int = 0) -> None:
        """Add a part, or the parts of a list."""
        if depth > MOST_LEVELS:
            self.texts.append(self.describe({"type": "part nested too deeply"}))
        elif is_sequence(part):
            for inner in part:
                self.add(inner, depth + 1)
        elif is_mapping(part):
            self._add_object(_open_part(fields_of(part)), depth)
        elif part is not None:
            self.texts.append(str(part))

    def _add_object(self, fields: Mapping[str, Any], depth: int) -> None:
        kind = str(fields.get("type", ""))
        spoken_text = first_of(fields, ("text", "content", "parts"))

        if _is_thought(fields):
            self.thoughts.append(_read_thought(fields))
        elif kind in RESULT_PARTS or kind.endswith(RESULT_ITEM):
            self.results.append(_read_result(fields))
        elif _is_call(fields, kind):
            self.calls.append(_read_call(fields))
            # A call of a server's own tool has its result in the same item.
            if kind.endswith(CALL_ITEM) and fields.keys() & {"output", "errorText"}:
                self.results.append(_read_result({**fields, "call_id": self.calls[-1].id}))
        elif medium_of(fields):
            self.texts.append(self._name_part(fields))
        elif isinstance(spoken_text, str | list):
            self.add(cast("object", spoken_text), depth + 1)
        elif isinstance(value := fields_of(spoken_text).get("value"), str):
            self.texts.append(value)
        elif kind == "refusal":
            self.texts.append(str(fields.get("refusal", "")))
        elif fields not in ({"type": "text"}, {"type": "step-start"}):
            self.others += "json" not in fields
            self.texts.append(self.describe(fields))

    def _name_part(self, fields: Mapping[str, Any]) -> str:
        name = self.describe(fields)
        self.others += not name.startswith(SHOWN)
        return name

    def name_media(self, value: object) -> object:
        """Return data in which a name stands in place of each medium whose bytes are in it."""
        if is_sequence(value):
            return list(map(self.name_media, value))
        fields = fields_of(value)
        # A file's content may be a text.
        if medium_of(fields) not in ("", "file") and drop_media(fields) != fields:
            return self._name_part(fields)

        return map_values(self.name_media, fields) or value


def _open_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part without the objects around them."""
    fields = drop_none(part)
    for key, kind in WRAPPERS.items():
        if isinstance(fields.get(key), Mapping):
            # A call's id may stand beside the object.
            outer = {"type": kind, **pick(fields, ("id",))}
            return _open_part({**outer, **fields[key]})

    kind = first_of(fields, KINDS)
    if {"toolCallId", "state"} <= fields.keys():
        # A call in a chat of Vercel's SDK, with its result, has the tool's name in its type.
        return {"toolName": str(kind).removeprefix("tool-"), **fields, "type": "tool_call"}

    return fields if kind is None else {**fields, "type": kind}


def _is_call(fields: Mapping[str, Any], kind: str) -> bool:
    if kind in CALL_PARTS or kind.endswith(CALL_ITEM):
        return True
    is_named = "name" in fields and "text" not in fields
    return is_named and any(key in fields for key in ARGUMENTS)


def _read_thought(fields: Mapping[str, Any]) -> str:
    """Return the text of a thought, or a mark that its text was not recorded."""
    value = first_of(fields, ("thinking", "text", "reasoning", "summary", "content"))
    if isinstance(value, str):
        return value or HIDDEN

    texts = (str(fields_of(part).get("text", "")) for part in list_entries(value))
    return "\n".join(filter(None, texts)) or HIDDEN


def _read_call(raw: object) -> RecordedCall:
    fields = _open_part(fields_of(raw)) or {"name": str(raw)}
    kind = str(fields.get("type", ""))
    arguments = first_of(fields, (*ARGUMENTS, "action", "queries"))
    inner = parse_text(arguments)
    if isinstance(inner, str):
        arguments = inner  # a text of JSON that was written as JSON once more
    name = first_of(fields, CALL_NAMES) or kind.removesuffix(CALL_ITEM)
    id = first_of(fields, CALL_IDS)

    return RecordedCall(str(id or ""), str(name), arguments)


def _read_result(fields: Mapping[str, Any]) -> RecordedResult:
    id = first_of(fields, CALL_IDS)
    content = first_of(fields, ("content", "output", "response", "result", "errorText", *BODIES))
    # MCP marks the content itself.
    marks = (fields.get("is_error"), fields.get("isError"), fields_of(content).get("isError"))
    is_error = True in marks or fields.get("status") == "error"

    return RecordedResult(
        str(id or ""),
        str(fields.get("name") or ""),
        content,
        is_error or bool(first_of(fields, ("error", "errorText"))),
    )


def result_parts(result: RecordedResult, describe: DescribePart) -> MessageParts:
    """Return the parts of the content of a result. An object that is no picture is one text, its
    JSON, in which media are named. So are those in a text of JSON; without any it stays as it is.
    """
    parts = MessageParts(describe)
    data: object = parse_text(result.content, CONTAINERS)
    named = data
    with suppress(RecursionError):
        named = parts.name_media(data)
    content = result.content if named == data else named
    is_picture = MEDIA.get(str(fields_of(content).get("type"))) == "image"
    is_whole = content is None or is_picture or is_sequence(content)
    parts.add(content if is_whole else write_text(content))

    return parts


def result_text(result: RecordedResult, describe: DescribePart = describe_part) -> str:
    """Return the content of a result as text: the texts of its parts, or JSON."""
    return result_parts(result, describe).text


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
    open_places = [place for place, known_result in enumerate(results) if known_result is None]
    with_id = [place for place in open_places if result.id and calls[place].id == result.id]
    if with_id:
        return with_id[0]
    if result.id and any(call.id == result.id for call in calls):
        return None  # its call has a result already

    unnamed = [place for place in open_places if not (result.id and calls[place].id)]
    of_name = [place for place in unnamed if calls[place].name == result.name]

    return next(iter(of_name or unnamed), None)


def split_thought(text: str) -> tuple[str, str]:
    """Split a text into the thoughts at its beginning and the answer after them; the thought is
    empty if there is none."""
    thoughts: list[str] = []
    place = 0
    forms = (_PAIR, _BRACKETS, _CHANNELS)
    while match := next(filter(None, (form.match(text, place) for form in forms)), None):
        thoughts.append(match[match.lastindex or 1].strip())
        place = match.end()
    if thoughts:
        return "\n".join(thoughts), text[place:]

    if "</th" in text and (match := _END_ALONE.match(text)) and not _OPENED.search(match[1]):
        return match[1].strip(), text[match.end() :]

    return "", text


def drop_thoughts(value: object) -> object:
    """Return the output of a step without thoughts: those at the beginning of its texts, and the
    parts and fields of its messages that hold them. Texts of users stay as they are."""
    if isinstance(value, str):
        return split_thought(value)[1]
    if is_sequence(value):
        if all(isinstance(item, str) for item in value):
            # The pieces of one text that was streamed.
            joined_text = "".join(value)
            answer = split_thought(joined_text)[1]
            return value if answer == joined_text else answer
        kept_items = [drop_thoughts(item) for item in value if not _is_thought(item)]
        return tuple(kept_items) if isinstance(value, tuple) else kept_items
    if not is_mapping(value):
        return value

    fields = fields_of(value)
    if str(fields.get("role") or fields.get("type")).lower() in THOUGHTLESS:
        return fields
    # A field such as `reasoning` may be a part of a structured answer outside of a message.
    left_out = THOUGHTS if is_message(fields) else THOUGHTS[:1]

    return {name: drop_thoughts(part) for name, part in fields.items() if name not in left_out}


DATA = ("data", "base64", "bytes", "b64_json", "file_data", "content")
"""The fields that may hold the bytes of a medium."""
MIME_TYPES = ("mime_type", "mimeType", "media_type", "mediaType")
_DATA_ADDRESS = late_re(
    r"data:(?:(\w+)/[\w.+-]+)?(?:; ?[\w=.+\"-]+)*; ?base64,[A-Za-z0-9+/=_%-]*", re.IGNORECASE
)
_LONG_RUN = late_re(r"[A-Za-z0-9+/_-]{400,}={0,2}")


def drop_media(value: object) -> object:
    """Return data with a mark such as `<image>` for each embedded medium: nobody can read its
    bytes, and a judge would have to pay for them."""
    if isinstance(value, str):
        text = _DATA_ADDRESS.sub(
            lambda match: f"<{MEDIA.get(str(match[1]).lower(), 'file')}>", value
        )
        return _LONG_RUN.sub(_name_data, text)
    if is_sequence(value):
        return list(map(drop_media, value))
    if not is_mapping(value):
        return value

    fields = fields_of(value)
    mime = first_of(fields, MIME_TYPES)
    medium = _medium_of_data(fields) if mime else ""
    # A field such as `file` beside others may be any field of a state.
    if "type" in fields or len(fields) == 1 or any(key in fields for key in EMBEDDED):
        medium = medium_of(fields) or medium
    if medium and not str(mime).startswith("text/") and _has_data(fields):
        return f"<{medium}>"

    return map_values(drop_media, fields)


def _name_data(match: re.Match[str]) -> str:
    """Return a mark for a long run of base64; a long word of another kind stays as it is."""
    run = match[0]
    is_data = not (run.isupper() or run.islower()) and any(map(str.isdigit, run))
    return f"<{len(run):,} characters of data>" if is_data else run


def _has_data(fields: Mapping[str, Any], depth: int = 0) -> bool:
    """Tell whether a part holds the bytes of a medium."""
    if any(isinstance(fields.get(key), str | bytes) for key in DATA):
        return True
    return depth < MOST_LEVELS and any(
        _has_data(fields_of(part), depth + 1) for part in fields.values()
    )


def _is_thought(part: object) -> bool:
    """Tell whether a part of a list is a thought."""
    fields = _open_part(fields_of(part))
    return fields.get("type") in THOUGHT_PARTS or fields.get("thought") is True


def plain_name(name: str) -> str:
    """Return a name without special characters, on one line of at most 40 characters."""
    return re.sub(r"[^\w .-]+", "", name)[:40]
