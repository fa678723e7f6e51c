"""What a span's attributes and events say of a node: its name, what went in and came out, tokens.

The names are those of OpenTelemetry's conventions for generative AI, new and old, of OpenInference
and of OpenLLMetry; the first that is there is taken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from textevolve.node_eval.node_lines import WHOLE
from textevolve.node_eval.snapshots import mask_json, take_snapshot

Attributes: TypeAlias = Mapping[str, Any]
Events: TypeAlias = Sequence[tuple[str, Attributes]]
State: TypeAlias = "dict[str, Any] | None"

INPUTS = (
    "gen_ai.tool.call.arguments",
    "gen_ai.retrieval.query.text",
    "gen_ai.memory.query.text",
    "input.value",
    "traceloop.entity.input",
)
OUTPUTS = (
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
    "gen_ai.memory.records",
    "output.value",
    "traceloop.entity.output",
)
NAMES = ("gen_ai.tool.name", "gen_ai.agent.name", "gen_ai.workflow.name", "tool.name", "agent.name")

CONVENTIONS = (
    "gen_ai.",
    "llm.",
    "openinference.",
    "input.",
    "output.",
    "tool.",
    "agent.",
    "error.",
    "embedding.",
    "retrieval.",
    "traceloop.",
    "server.",
    "session.",
    "user.",
)
"""Whatever begins otherwise is the user's own attribute, and stands in the output state."""

INPUT_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}


def operation_of(attributes: Attributes) -> str:
    """The operation by the conventions; empty where the span names none."""
    return _text(attributes.get("gen_ai.operation.name"))


def kind_of(attributes: Attributes) -> str:
    """OpenInference's kind of span, in capitals; empty where it names none."""
    return _text(attributes.get("openinference.span.kind")).upper()


def name_of(attributes: Attributes, span: str) -> str:
    """The tool's or the agent's name where it runs one; else the span's."""
    if operation_of(attributes) in ("execute_tool", "invoke_agent", "invoke_workflow") or (
        kind_of(attributes) in ("TOOL", "AGENT")
    ):
        return next((name for key in NAMES if (name := _text(attributes.get(key)))), span)
    return span


def input_of(attributes: Attributes, events: Events) -> State:
    """`text`, with `messages` where there were any; or the object that a tool was given."""
    system = _parse(attributes.get("gen_ai.system_instructions"))
    for found in (
        _messages(attributes.get("gen_ai.input.messages"), "user"),
        _event_messages(events, "gen_ai.input.messages", "user"),
        _told(events),
        _event_messages(events, "gen_ai.prompt", "user"),
        _numbered(attributes, "gen_ai.prompt.", "", "user"),
        _messages(attributes.get("gen_ai.prompt"), "user"),
        _numbered(attributes, "llm.input_messages.", "message.", "user"),
    ):
        if found:
            first = [{"role": "system", "content": _flatten(system)}] if system else []
            return _conversation([*first, *found])
    return _first(attributes, INPUTS)


def output_of(attributes: Attributes, events: Events) -> State:
    """As `input_of`, with the attributes that are the user's own beside."""
    own = {k: v for k, v in attributes.items() if not k.startswith(CONVENTIONS)}
    for found in (
        _messages(attributes.get("gen_ai.output.messages"), "assistant"),
        _event_messages(events, "gen_ai.output.messages", "assistant"),
        _choices(events),
        _event_messages(events, "gen_ai.completion", "assistant"),
        _numbered(attributes, "gen_ai.completion.", "", "assistant"),
        _messages(attributes.get("gen_ai.completion"), "assistant"),
        _numbered(attributes, "llm.output_messages.", "message.", "assistant"),
    ):
        if found:
            text = "\n".join(message["content"] for message in found)
            return {**own, "text": text, "messages": found}
    state = _first(attributes, OUTPUTS)
    return {**own, **state} if state is not None else own or None


def tokens_of(attributes: Attributes) -> int | None:
    """Of prompt and answer together; None where nothing is said."""
    for total in ("llm.token_count.total", "llm.usage.total_tokens", "gen_ai.usage.total_tokens"):
        if (count := _count(attributes.get(total))) is not None:
            return count
    for parts in (
        ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
        ("llm.token_count.prompt", "llm.token_count.completion"),
    ):
        known = [n for key in parts if (n := _count(attributes.get(key))) is not None]
        if known:
            return sum(known)
    return None


def error_of(attributes: Attributes, events: Events, status: str | None) -> str | None:
    """What a span that failed says of it; None for one that did not."""
    kind = _text(attributes.get("error.type"))
    if status is None and not kind:
        return None
    said = [
        ": ".join(part for part in (_text(a.get(f"exception.{k}")) for k in KEYS) if part)
        for name, a in events
        if name == "exception"
    ]
    return status or next(filter(None, said), "") or kind or "failed, without saying why"


KEYS = ("type", "message")


def _first(attributes: Attributes, keys: Sequence[str]) -> State:
    for key in keys:
        if (value := attributes.get(key)) is not None:
            return _as_state(value)
    return None


def _as_state(value: object) -> dict[str, Any]:
    """An object as it is; anything else under `text`, and what it was as `value`."""
    parsed = _parse(value)
    if isinstance(parsed, dict):
        return cast(dict[str, Any], parsed)
    if isinstance(parsed, str):
        return {"text": parsed}
    return {"text": _flatten(parsed), "value": parsed}


def _parse(value: object) -> object:
    """JSON out of a text that is some; else the value itself."""
    if not isinstance(value, str) or value.strip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _conversation(messages: list[dict[str, str]]) -> dict[str, Any]:
    if len(messages) == 1:
        text = messages[0]["content"]
    else:
        text = "\n\n".join(f"{one['role']}: {one['content']}" for one in messages)
    return {"text": text, "messages": messages}


def _messages(value: object, role: str) -> list[dict[str, str]]:
    """Messages out of JSON or a list; a mere text is one message of `role`."""
    parsed = _parse(value)
    if isinstance(parsed, dict):
        return [_message(cast(object, parsed), role)]
    if isinstance(parsed, str) and parsed:
        return [{"role": role, "content": parsed}]
    if not isinstance(parsed, list):
        return []
    return [_message(one, role) for one in cast(list[object], parsed)]


def _message(raw: object, role: str) -> dict[str, str]:
    if not isinstance(raw, dict):
        return {"role": role, "content": _flatten(raw)}
    fields = cast(dict[str, Any], raw)
    fields = cast(dict[str, Any], fields["message"]) if _is_wrapped(fields) else fields
    parts = [fields[key] for key in ("parts", "content", "tool_calls") if fields.get(key)]
    said = "\n".join(text for part in parts if (text := _flatten(part)))
    return {"role": _text(fields.get("role")) or role, "content": said}


def _is_wrapped(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("message"), dict) and "content" not in fields


def _flatten(value: object, depth: int = 0) -> str:
    """The text of a content: of a part, of parts, or whatever else was recorded."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth < 10:
        pieces = (_flatten(part, depth + 1) for part in cast(list[object], value))
        return "\n".join(piece for piece in pieces if piece)
    if isinstance(value, dict):
        part = cast(dict[str, Any], value)
        for key in ("content", "text"):
            if isinstance(part.get(key), str):
                return part[key]
        call = cast(object, part.get("function", part))
        if isinstance(call, dict) and "name" in call and "arguments" in call:
            named = cast(dict[str, Any], call)
            return f"{named['name']}({_json(named['arguments'])})"
        for key in ("response", "result"):
            if key in part:
                return _json(part[key])
    return _json(cast(object, value))


def _json(value: object) -> str:
    """As a text, in which no secret stands that would be masked outside of it."""
    if isinstance(value, str):
        return mask_json(value, WHOLE)
    return json.dumps(take_snapshot(value, WHOLE), ensure_ascii=False)


def _numbered(attributes: Attributes, prefix: str, inner: str, role: str) -> list[dict[str, str]]:
    """Messages that are flattened into keys such as `gen_ai.prompt.0.content`."""
    found: dict[int, dict[str, str]] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix):
            continue
        number, _, rest = key.removeprefix(prefix).partition(".")
        if not number.isdecimal() or rest not in (f"{inner}role", f"{inner}content"):
            continue
        message = found.setdefault(int(number), {"role": role, "content": ""})
        message[rest.removeprefix(inner)] = _flatten(value)
    return [found[number] for number in sorted(found)]


def _event_messages(events: Events, key: str, role: str) -> list[dict[str, str]]:
    return [m for _, attributes in events for m in _messages(attributes.get(key), role)]


def _told(events: Events) -> list[dict[str, str]]:
    """Messages of the kind that was one event each."""
    return [
        {**_message(_body(attributes), INPUT_EVENTS[name]), "role": INPUT_EVENTS[name]}
        for name, attributes in events
        if name in INPUT_EVENTS
    ]


def _choices(events: Events) -> list[dict[str, str]]:
    return [_message(_body(a), "assistant") for name, a in events if name == "gen_ai.choice"]


def _body(attributes: Attributes) -> dict[str, Any]:
    parse: Callable[[object], object] = _parse
    return {key.removeprefix("gen_ai.event."): parse(v) for key, v in attributes.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 0 else None
