"""Read the messages to and from models, as instrumentations record them, as texts.

A message may be JSON, a list, or flattened into numbered attributes; its content may be a text, a
list of parts, or tool calls. `span_states.py` finds the attributes that hold messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from textevolve.json_texts import CONTAINERS, as_array, as_object, parse_text
from textevolve.mappings import drop_none, first_of, map_values
from textevolve.node_eval.snapshots import WHOLE, mask_json, take_snapshot

CONTENTS = (
    "parts",
    "content",
    "contents",
    "refusal",
    "function_call",
    "tool_calls",
    "prompt",
    "completion",
)
"""The keys that may hold a message's content; a message may have several of them."""

WRAPPERS = ("message_content", "tool_call", "function", "document", "toolUse", "toolResult")
"""The keys under which formats nest an object: OpenInference an element of a list, OpenAI and
Bedrock the function that is called."""
PART_NAMES = {"type", "text", "toolUse", "toolResult"}
"""The keys of which each part of a content has at least one."""
INNER = ("message", "kwargs", "data")
"""Keys under which LangChain's messages, and events, nest the fields of a message."""
ROLES = {"human": "user", "ai": "assistant"}
"""The usual names of roles by those of LangChain."""
BODIES = ("messages", "choices", "generations", "output", "input", "prompts")
"""The keys under which a request or an answer has its messages."""

ARGUMENTS = ("arguments", "args", "input")
"""The keys that may hold the arguments of a tool call."""
CALLS = ("tool_call", "tool_use", "function", "function_call", "toolUse")
"""The types of parts that are tool calls."""

MEDIA = {
    **dict.fromkeys(("image", "image_url", "image-url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio-url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video-url"), "video"),
    **dict.fromkeys(("file", "input_file", "document-url", "blob", "uri", "binary"), "file"),
}
"""The types of parts that are no text, with their names in marks such as `<image>`."""

ADDRESSES = ("url", "uri", "image_url", "image", "audio", "video", "file", "file_id")
"""The keys that may hold the address of a medium."""
MOST_LEVELS = 12
"""The maximum depth of nested parts that are read."""


@dataclass(frozen=True, slots=True)
class SpanMessage:
    """One message of a span. `content` is None if no content was recorded, or none can be read.
    `calls`: its tool calls as recorded."""

    role: str
    content: str | None
    calls: tuple[Mapping[str, Any], ...] = ()


def read_messages(value: object, role: str) -> list[SpanMessage]:
    """Read messages from JSON or a list, or from a request to a model or its answer in the form of
    an SDK; a plain text is one message. `role`: the role of messages that name none."""
    parsed: object = parse_text(value, CONTAINERS)
    if fields := as_object(parsed):
        bodies = (fields[key] for key in BODIES if isinstance(fields.get(key), list | str))
        body = next(bodies, None)
        return [read_message(fields, role)] if body is None else read_messages(body, role)
    if raws := as_array(parsed):
        batch = as_array(raws[0])
        return read_messages(batch, role) if batch else [read_message(raw, role) for raw in raws]
    return [SpanMessage(role, parsed)] if isinstance(parsed, str) and parsed else []


def read_message(raw: object, role: str) -> SpanMessage:
    if not isinstance(raw, dict):
        return SpanMessage(role, flatten(raw, []))
    fields = {**as_object(cast(object, raw))}
    for key in INNER:
        # What stands beside the inner fields counts where they say nothing themselves.
        inner = fields.get(key)
        fields |= drop_none(as_object(inner))
        fields |= {"content": inner} if isinstance(inner, list) else {}
    if "function_call_name" in fields:
        arguments = fields.get("function_call_arguments_json")
        fields["tool_calls"] = [{"name": fields["function_call_name"], "arguments": arguments}]
    parts = [_parse_parts(fields[key]) for key in CONTENTS if fields.get(key) not in (None, [])]
    if not parts and "name" in fields and fields.get("type") in CALLS:
        parts = [fields]
    calls: list[Mapping[str, Any]] = []
    texts = [text for part in parts if (text := flatten(part, calls))]
    content = "\n".join(dict.fromkeys(texts))  # some write what was said as a text and as parts
    name = str(fields.get("role") or ROLES.get(str(fields.get("type"))) or role)
    return SpanMessage(ROLES.get(name, name), content if parts else None, tuple(calls))


def as_fields(value: object) -> dict[str, Any]:
    """Return the fields of an object, or of its JSON text; empty for any other value."""
    return as_object(parse_text(value, CONTAINERS))


def unwrap_result(value: object) -> object:
    """Return the result of a tool from the message in which LangChain passes it on, or a value from
    the object in which LangSmith wraps it."""
    fields = as_fields(value)
    if "tool_call_id" in fields and "content" in fields:
        return fields["content"]
    if len(fields) == 1 or fields.get("type") in ("tool", "constructor"):
        inner = first_of(fields, ("data", "kwargs", "output"))
        return value if inner is None else unwrap_result(inner)
    return value


def read_numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Rebuild messages flattened into keys such as `gen_ai.prompt.0.content`."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        path = key.removeprefix(prefix).split(".")
        if not key.startswith(prefix) or len(path) > MOST_LEVELS or not _is_number(path[0]):
            continue
        place: dict[str, Any] = root
        for part in path[:-1]:
            below: object = place.setdefault(part, {})
            # What has a value of its own has no parts.
            place = as_object(below)
        place.setdefault(path[-1], value)
    return _as_lists(root) if root else []


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _as_lists(tree: Any) -> Any:
    if not (fields := as_object(tree)):
        return tree
    made = map_values(_as_lists, fields)
    if all(map(_is_number, made)):
        return [made[key] for key in sorted(made, key=int)]
    return made


def _parse_parts(value: object) -> object:
    """Parse a text that holds message parts as JSON; any other text stays unchanged."""
    parts = as_array(parse_text(value, CONTAINERS)) if isinstance(value, str) else []
    are_parts = [PART_NAMES & as_object(part).keys() for part in parts]
    return parts if parts and all(are_parts) else value


def flatten(value: object, calls: list[Mapping[str, Any]], depth: int = 0) -> str:
    """Return a message's content as text, whether it is a part, a list of parts, or other data. Its
    tool calls are added to `calls`."""
    if value is None or isinstance(value, str):
        return value or ""
    if depth < MOST_LEVELS and isinstance(value, list):
        pieces = (flatten(part, calls, depth + 1) for part in as_array(cast(object, value)))
        return "\n".join(filter(None, pieces))
    part = as_object(value)
    if depth >= MOST_LEVELS or not part:
        return write_json(value)
    kind = str(part.get("type"))
    if kind in MEDIA:
        return _describe_media(part, kind)
    for key in WRAPPERS:
        if isinstance(part.get(key), dict):
            inner = {"type": key, **part[key]}
            if key in CALLS and "name" in inner:
                inner.setdefault("id", part.get("id"))
            return flatten(inner, calls, depth + 1)
    if "name" in part and (kind in CALLS or any(key in part for key in ARGUMENTS)):
        given = first_of(drop_none(part), ARGUMENTS)
        calls.append({"id": part.get("id"), "name": part["name"], "arguments": given})
        # Arguments that were not recorded are no empty ones.
        return f"{part['name']}({'…' if given is None else write_json(given)})"
    for key in ("content", "text"):
        if isinstance(part.get(key), str | list):
            return flatten(part[key], calls, depth + 1)
    result: object = next((part[key] for key in ("response", "result") if key in part), part)
    # The calls in a result are not those of the message.
    is_list = isinstance(result, list)
    return flatten(cast(object, result), [], depth + 1) if is_list else write_json(result)


def _describe_media(part: dict[str, Any], kind: str) -> str:
    """Return a mark such as `<image: https://...>` for media; embedded data is left out."""
    called = part.get("modality") or MEDIA[kind]
    address: Any = part
    while inner := as_object(address):
        address = next((inner[key] for key in ADDRESSES if inner.get(key)), None)
    if not isinstance(address, str) or address.startswith("data:"):
        return f"<{called}>"
    return f"<{called}: {address}>"


def write_json(value: object) -> str:
    """Return the value as a text with its secrets masked."""
    if isinstance(value, str):
        return mask_json(value, WHOLE)
    return json.dumps(take_snapshot(value, WHOLE), ensure_ascii=False)


def join_texts(messages: Iterable[SpanMessage]) -> str:
    return "\n".join(one.content or "" for one in messages)
