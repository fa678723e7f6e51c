"""Read a node from a span: its name, input, output and tokens.

The names follow OpenTelemetry's conventions for generative AI, new and old, OpenInference,
OpenLLMetry and Pydantic AI; the first one that is present is used. Other data are no input or
output, and become attributes of the node. `textevolve.messages` reads messages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from textevolve.json_texts import CONTAINERS, as_array, as_object, is_mapping, is_object, parse_text
from textevolve.mappings import drop_empty, first_of, map_values
from textevolve.messages import (
    BODIES,
    CONTENTS,
    MOST_LEVELS,
    ROLES_OF_TYPES,
    MessageParts,
    RecordedCall,
    RecordedMessage,
    fields_of,
    is_message,
    medium_of,
    open_message,
    plain_name,
    read_message,
    result_text,
)
from textevolve.node_eval.snapshots import MARK, WHOLE, mask_json, take_snapshot

# Read the messages to and from models, as instrumentations record them, as texts. A message may be
# JSON, a list, or flattened into numbered attributes.

OTHERS = "other_parts"
"""The key under which a message of a state has the number of its parts that are only named."""
PART_NAMES = {"type", "text", "toolUse", "toolResult"}
"""The keys of which each part of a content has at least one."""
LISTS = ("messages", "choices", "generations", "output", "input", "prompts")
"""The keys under which a request or an answer has its messages."""

ADDRESSES = ("url", "uri", "image_url", "image", "audio", "video", "file", "file_id")
"""The keys that may hold the address of a medium."""


@dataclass(frozen=True, slots=True)
class SpanMessage:
    """One message of a span. `content` is None if no content was recorded, or none can be read.
    `calls`: its tool calls as recorded. `thought`: what was thought before it. `name`: that of its
    speaker, if it has one. `others`: the number of parts that are only named, such as images."""

    role: str
    content: str | None
    calls: tuple[Mapping[str, Any], ...] = ()
    thought: str = ""
    name: str = ""
    others: int = 0

    @property
    def speaker(self) -> str:
        """The role, with the name if there is one."""
        return f"{self.role} ({self.name})" if self.name else self.role


def read_messages(value: object, role: str) -> list[SpanMessage]:
    """Read messages from JSON or a list, or from a request to a model or its answer in the form of
    an SDK; a plain text is one message. `role`: the role of messages that name none."""
    parsed: object = parse_text(value, CONTAINERS)
    if fields := as_object(parsed):
        lists = (fields[key] for key in LISTS if isinstance(fields.get(key), list | str))
        body = next(lists, None)
        return [read_raw(fields, role)] if body is None else read_messages(body, role)

    # Some write each message of a list as a text of JSON.
    inner = [(raw, parse_text(raw, "{")) for raw in as_array(parsed)]
    if raws := [message if is_message(message) else raw for raw, message in inner]:
        batch = as_array(raws[0])
        return read_messages(batch, role) if batch else [read_raw(raw, role) for raw in raws]

    is_text = isinstance(parsed, str) and parsed
    return [read_raw({"content": parsed}, role)] if is_text else []


def read_raw(raw: object, role: str) -> SpanMessage:
    """Read a message as a text: the results of tools, what was said, and tool calls. A thought is
    no part of it. `role`: the role of a message that names none."""
    if not is_mapping(raw):
        return SpanMessage(role, flatten(raw))
    fields = dict(open_message(fields_of(raw)))
    is_recorded = any(fields.get(key) not in (None, []) for key in CONTENTS)
    for key in BODIES:
        fields[key] = _parse_parts(fields.get(key))

    message = read_message(fields, role, write_part)
    content = _write_parts(message, message.text)

    role = ROLES_OF_TYPES.get(message.role, message.role)

    return SpanMessage(
        role,
        content if is_recorded or content else None,
        tuple({**asdict(call), "id": call.id or None} for call in message.calls),
        message.thought,
        # The name of a tool stands with its call.
        "" if message.results or message.calls else plain_name(message.name),
        message.others,
    )


def _write_parts(parts: RecordedMessage | MessageParts, text: str) -> str:
    """Return the results, the text and the calls of a message, one below the other."""
    results = [write_json(result_text(result, write_part)) for result in parts.results]
    calls = list(map(write_call, parts.calls))
    return "\n".join(filter(None, (*results, text, *calls)))


def write_call(call: RecordedCall) -> str:
    """Return a tool call as it stands in the text of a node."""
    # Arguments that were not recorded are no empty ones.
    arguments = "…" if call.arguments is None else write_json(call.arguments)
    return f"{call.name}({arguments})"


def write_part(part: Mapping[str, Any]) -> str:
    """Return a mark such as `<image: https://...>` for a medium, without embedded data, and JSON
    for other data."""
    medium = medium_of(part)
    if not medium:
        result = first_of(part, ("response", "result", "json"))
        return write_json(part if result is None else result)

    address: Any = part
    while inner := as_object(address):
        address = next((inner[key] for key in ADDRESSES if inner.get(key)), None)
    if not isinstance(address, str) or address.startswith("data:"):
        return f"<{medium}>"

    return f"<{medium}: {address}>"


_CUT_OBJECT = re.compile(r"\s*(?:\[\s*)*\{\s*\"")
_MESSAGE_KEY = re.compile(
    r'"(role|content|parts|messages|choices|generations|kwargs|tool_calls)"\s*:'
)
_MARK_OF_CUT = 64
"""The most characters that a tool writes after the place where it cut a text."""


def is_cut(value: object, is_json: bool) -> bool:
    """Tell whether a text is JSON that a limit on the length of attributes has cut, so that its end
    is missing. `is_json`: whether the convention or the span says that it is JSON; otherwise it
    must have a field of messages, since an answer may itself be a broken object."""
    if not isinstance(value, str) or not _CUT_OBJECT.match(value):
        return False
    if not (is_json or _MESSAGE_KEY.search(value)):
        return False
    try:
        json.loads(value)
    except json.JSONDecodeError as error:
        is_open = error.msg.startswith("Unterminated string")
        return is_open or error.pos >= len(value.rstrip()) - _MARK_OF_CUT
    except RecursionError:
        return False

    return False


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
    converted = map_values(_as_lists, fields)
    if all(map(_is_number, converted)):
        return [converted[key] for key in sorted(converted, key=int)]
    return converted


def _parse_parts(value: object) -> object:
    """Parse a text that holds message parts as JSON; any other text stays unchanged."""
    parts = as_array(parse_text(value, CONTAINERS)) if isinstance(value, str) else []
    are_parts = [PART_NAMES & as_object(part).keys() for part in parts]
    return parts if parts and all(are_parts) else value


def flatten(value: object) -> str:
    """Return data as text: a text as it is, the parts of a list, or JSON."""
    parts = MessageParts(write_part)
    parts.add(value)
    return _write_parts(parts, parts.text)


def write_json(value: object) -> str:
    """Return the value as a text with its secrets masked."""
    if isinstance(value, str):
        return mask_json(value, WHOLE)
    return json.dumps(take_snapshot(value, WHOLE), ensure_ascii=False)


def join_texts(messages: Iterable[SpanMessage]) -> str:
    return "\n".join(message.content for message in messages if message.content)


Attributes: TypeAlias = Mapping[str, Any]
SpanEvent: TypeAlias = tuple[str, Attributes]
"""The name of an event of a span, with its attributes."""
State: TypeAlias = "dict[str, Any] | None"
"""The input or output of a node; None if it was not recorded."""

# In all tables of names, one that ends with a dot stands for attributes with numbered names, such
# as `llm.tools.0.name`.
INPUTS = (
    "gen_ai.tool.call.arguments",
    "gen_ai.retrieval.query.text",
    "gen_ai.memory.query.text",
    "input.value",
    "traceloop.entity.input",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "reranker.query",
    "ai.toolCall.args",
    "ai.prompt.messages",
)
"""The attributes that may hold the input of a node that has no messages."""
OUTPUTS = (
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
    "gen_ai.memory.records",
    "output.value",
    "traceloop.entity.output",
    "tool_response",
    "gcp.vertex.agent.tool_response",
    "final_result",
    "retrieval.documents.",
    "reranker.output_documents.",
    "ai.toolCall.result",
    "ai.response.text",
    "ai.response.object",
    "ai.response.toolCalls",
)
"""The attributes that may hold the output of a node that has no messages."""
TOOL_LISTS = (
    "gen_ai.tool.definitions",
    "llm.tools",
    "llm.tools.",
    "llm.request.functions.",
    "gen_ai.agent.tools",
    "model_request_parameters",
    "llm.invocation_parameters",
    "input.value",
)
"""The attributes with the definitions of the available tools, directly or under the keys
`TOOL_KEYS` of an object."""
TOOL_KEYS = ("tools", "function_tools")
SCHEMAS = ("parameters", "parameters_json_schema", "input_schema", "inputSchema")
"""The keys that may hold the schema of a tool's parameters."""
NAMES = (
    "gen_ai.tool.name",
    "gen_ai.agent.name",
    "gen_ai.workflow.name",
    "tool.name",
    "agent.name",
    "ai.toolCall.name",
    "graph.node.id",
)
"""The attributes that may hold the name of a node."""

IDS = (
    ("gcp.vertex.agent.session_id", "session_id"),
    ("session.id", "session_id"),
    ("enduser.id", "user_id"),
    ("user.id", "user_id"),
    ("gcp.vertex.agent.session_id", "thread_id"),
    ("gen_ai.conversation.id", "thread_id"),
)
"""The attributes with the ids of the session, the user and the conversation (`thread_id`) of a
span; a later one overrides an earlier one."""

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
    "reranker.",
    "traceloop.",
    "server.",
    "session.",
    "user.",
    "logfire.",
    "pydantic_ai.",
    "langgraph.",
    "langfuse.",
    "model_request_parameters",
)
"""The prefixes of attributes that belong to a convention. Other attributes that are no input or
output become attributes of the node."""

INPUT = "input"
OUTPUT = "output"
ROLES_OF_SIDES = {INPUT: "user", OUTPUT: "assistant"}
"""The roles of messages to and from a model or an agent that name none."""
MESSAGES = {
    INPUT: (
        "gen_ai.input.messages",
        "gen_ai.prompt.",
        "gen_ai.prompt",
        "gen_ai.agent.invocation_input",
        "llm.input_messages.",
        "llm.prompts.",
        "ai.prompt.messages",
    ),
    OUTPUT: (
        "gen_ai.output.messages",
        "gen_ai.completion.",
        "gen_ai.completion",
        "gen_ai.agent.invocation_output",
        "llm.output_messages.",
        "llm.choices.",
    ),
}
"""The attributes of a span, or of its events, that may hold these messages."""
EVENT_ROLES = {
    INPUT: {
        "gen_ai.system.message": "system",
        "gen_ai.user.message": "user",
        "gen_ai.assistant.message": "assistant",
        "gen_ai.tool.message": "tool",
    },
    OUTPUT: {"gen_ai.choice": "assistant"},
}
"""The roles of messages that are events, by the event's name."""
CREWAI = {"raw", "pydantic"}
"""Fields of the JSON in which CrewAI wraps the answer of a task, a crew or an agent. The text of
the answer is `raw`; the `messages` of a task or an agent begin with those to the agent."""
TOKENS = (
    ("llm.token_count.total",),
    ("llm.usage.total_tokens",),
    ("gen_ai.usage.total_tokens",),
    ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
    ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
    ("gen_ai.aggregated_usage.input_tokens", "gen_ai.aggregated_usage.output_tokens"),
    ("llm.token_count.prompt", "llm.token_count.completion"),
)
"""The attributes with the number of tokens, or with its parts."""
EXCEPTIONS = ("exception", "gen_ai.client.operation.exception")
"""The names of events with an exception."""


OLD_OPERATIONS = {"chat": "chat", "completion": "text_completion", "embedding": "embeddings"}
"""OpenTelemetry's operations by the values of OpenLLMetry's `llm.request.type`."""
MARKS = {
    "gen_ai.tool.call.id": "execute_tool",
    "pydantic_ai.all_messages": "invoke_agent",
    "ai.toolCall.name": "execute_tool",
    "ai.prompt.messages": "chat",
    "ai.prompt": "invoke_agent",
}
"""The operations of spans that name none, of Pydantic AI 1 and of Vercel's SDK, by attributes that
only these operations have."""


@dataclass(frozen=True)
class Span:
    """A span of a trace. Times are nanoseconds since 1970, 0 if they were not recorded. `status`:
    the message of a failed span; None for a span that did not fail."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    start: int
    end: int
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    status: str | None

    @property
    def last(self) -> int:
        """Return the time at which the span ended, but not before it started: clocks of two
        machines differ, and a span that was exported too early has no end."""
        return max(self.start, self.end)

    @property
    def seconds(self) -> float | None:
        """Return how long the span took; None if its start or its end was not recorded."""
        return (self.last - self.start) / 1e9 if self.start and self.end else None

    # What follows is read from the attributes once, since each node asks it of all nodes around it.

    @cached_property
    def operation(self) -> str:
        """Return the operation by OpenTelemetry's conventions, or what OpenLLMetry called it before
        them, or what the attributes show; empty if the span has none."""
        old_name = OLD_OPERATIONS.get(_text(self.attributes.get("llm.request.type")), "")
        marks = (name for mark, name in MARKS.items() if mark in self.attributes and not self.kind)
        return _text(self.attributes.get("gen_ai.operation.name")) or old_name or next(marks, "")

    @cached_property
    def kind(self) -> str:
        """Return OpenInference's kind of span, in capitals; empty if the span names none."""
        kind = _text(self.attributes.get("openinference.span.kind")).upper()
        return "LLM" if kind in ("CHAT_MODEL", "GENERATION") else kind

    @cached_property
    def node_name(self) -> str:
        """Return the name of the tool or agent that the span runs, otherwise the span's own."""
        runs = self.operation in ("execute_tool", "invoke_agent", "invoke_workflow")
        keys = NAMES if runs or self.kind in ("TOOL", "AGENT") else ()
        return next((name for key in keys if (name := _text(self.attributes.get(key)))), self.name)

    @cached_property
    def tools(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools that a model or an agent could call."""
        for key in TOOL_LISTS:
            value: object = parse_text(_find_value(self.attributes, key), CONTAINERS)
            for raws in (value, *map(as_fields(value).get, TOOL_KEYS)):
                listed = as_array(raws)
                if tools := [tool for raw in listed if (tool := _read_tool(raw))]:
                    return tools

        return []


def input_of(span: Span) -> State:
    """Return a node's input: its `text`, with `messages` if there are any, and the available
    `tools`; or the arguments of a tool."""
    messages, state = _read_state(INPUT, INPUTS, span)
    if not messages:
        return state
    key = "gen_ai.system_instructions"
    places = (span.attributes, *(event for _, event in span.events))
    instructions = next((place[key] for place in places if place.get(key)), None)
    if system := flatten(parse_text(instructions, CONTAINERS)):
        messages = [SpanMessage("system", system), *messages]
    text = "\n\n".join(f"{message.speaker}: {message.content or ''}" for message in messages)
    text = text if len(messages) > 1 else join_texts(messages)
    tools = {"tools": span.tools} if span.tools else {}

    return {"text": text, "messages": _as_dicts(messages), **tools}


def _read_tool(raw: object) -> dict[str, Any]:
    """Return the name, the description and the parameters of a tool; empty if it has no name."""
    fields = as_fields(raw) or {"name": raw}
    for key in ("tool", "json_schema", "function", "toolSpec"):
        fields = as_fields(fields[key]) if key in fields else fields
    if not _text(fields.get("name")):
        return {}
    tool_fields = ((name, fields.get(name)) for name in ("name", "description", *SCHEMAS))
    return {"parameters" if n in SCHEMAS else n: parse_text(v) for n, v in tool_fields if v}


def output_of(span: Span) -> State:
    """Return a node's output: like `input_of`, or the result of a tool, a retriever or an agent. In
    a whole transcript the last messages are the answer."""
    messages, state = _read_state(OUTPUT, OUTPUTS, span)
    if not messages:
        return state
    other_places = [n for n, message in enumerate(messages, 1) if message.role != "assistant"]
    answer = messages[other_places[-1] :] if other_places else messages
    pieces = [message.content or "" for message in answer]
    if len(pieces) > 2 and "".join(pieces[:-1]) == pieces[-1]:
        answer = answer[-1:]  # a stream's parts, and the whole message after them
    return {"text": join_texts(answer or messages), "messages": _as_dicts(messages)}


def ids_of(span: Span) -> dict[str, str]:
    """Return the ids that a span has of its session, user and conversation, by the names of
    `IDS`."""
    named_ids = ((name, span.attributes.get(key)) for key, name in IDS)
    return {name: str(value) for name, value in named_ids if value}


def attributes_of(span: Span) -> dict[str, Any]:
    """Return the attributes that are neither a state nor part of the conventions, such as the
    user's own measurements."""
    return {
        key: value
        for key, value in span.attributes.items()
        if not key.startswith(CONVENTIONS) and key not in INPUTS + OUTPUTS
    }


def tokens_of(span: Span) -> int | None:
    """Return the recorded total of tokens, otherwise the sum of prompt and answer tokens; None if
    the span has neither."""
    for parts in TOKENS:
        counts = (_count(span.attributes.get(key)) for key in parts)
        if known_counts := [count for count in counts if count is not None]:
            return sum(known_counts)

    return None


def read_error(span: Span) -> str | None:
    """Return the error of a failed span; None for others."""
    kind = _text(span.attributes.get("error.type"))
    if span.status is None and not kind:
        return None
    raised = (
        ": ".join(filter(None, (_text(event.get(f"exception.{part}")) for part in EXCEPTION)))
        for name, event in span.events
        if name in EXCEPTIONS
    )

    return span.status or next(filter(None, raised), kind) or "failed, without saying why"


EXCEPTION = ("type", "message")
"""The fields of a recorded exception."""


def _read_state(side: str, keys: Sequence[str], span: Span) -> tuple[list[SpanMessage], State]:
    """Read the messages of a side. If they have no content, return the value of the first of `keys`
    instead, otherwise the messages that say that their content was empty."""
    empty: list[SpanMessage] = []
    for messages in _messages(side, span):
        contents = {message.content for message in messages}
        if any(contents):
            return messages, None
        empty = empty or (messages if "" in contents else [])

    values = [(key, _find_value(span.attributes, key)) for key in keys]
    # Some write the state itself in the place of its messages.
    objects = [(key, as_fields(span.attributes.get(key))) for key in MESSAGES[side]]
    values += [pair for pair in objects if pair[1] and pair[1].keys().isdisjoint(("role", *LISTS))]
    whole_values = [
        value
        for key, value in values
        if value is not None
        and not _is_cut(span, key, value)
        # Google's ADK writes an empty object if it is set to record no texts.
        and not (key.startswith("gcp.") and value == "{}")
    ]
    value = next(iter(whole_values), None)
    cut = _cut_values(side, keys, span)
    if value is None and cut:
        # A part of the JSON would be judged as if the model had said it.
        cut_text = str(cut[0])
        return [], {"text": f"{cut_text}{MARK.format('JSON that was cut')}"}
    if "TOOL" in span.kind or span.operation == "execute_tool":
        value = unwrap_result(value)

    return (empty, None) if value is None else ([], _as_state(value))


def _messages(side: str, span: Span) -> Iterator[list[SpanMessage]]:
    """Read the messages of a side by each of the conventions."""
    attributes = span.attributes
    role = ROLES_OF_SIDES[side]
    roles = EVENT_ROLES[side]
    yield [
        replace(read_raw(_body(event), ""), role=roles[name])
        for name, event in span.events
        if name in roles
    ]
    for key in MESSAGES[side]:
        value = _find_value(attributes, key)
        yield [] if _is_cut(span, key, value) else read_messages(value, role)
        values = [event.get(key) for _, event in span.events]
        whole_values = [value for value in values if not _is_cut(span, key, value)]
        yield [message for value in whole_values for message in read_messages(value, role)]
    if side == OUTPUT and (calls := attributes.get("ai.response.toolCalls")):
        answer = {"content": attributes.get("ai.response.text"), "tool_calls": calls}
        yield [read_raw(answer, role)]

    task = as_fields(attributes.get("output.value"))
    transcript = task.get("messages") if task.keys() >= CREWAI else None
    transcript = attributes.get("pydantic_ai.all_messages") if transcript is None else transcript

    if side == INPUT and transcript is not None:
        # Those of earlier runs, which Pydantic AI records as well, are kept, whoever wrote them.
        messages = read_messages(transcript, role)
        new_from = _count(attributes.get("pydantic_ai.new_message_index")) or 0
        new_answers = (
            n for n, message in enumerate(messages) if n >= new_from and message.role == "assistant"
        )
        yield messages[: next(new_answers, len(messages))]

    value = attributes.get(f"{side}.value")
    if span.kind == "LLM" and not _is_cut(span, f"{side}.value", value):
        yield read_messages(value, role)


def _is_cut(span: Span, key: str, value: object) -> bool:
    """Tell whether the value of this attribute is JSON of which a part is missing."""
    side = key.partition(".")[0]
    is_json = key.endswith(".messages") or "json" in _text(span.attributes.get(f"{side}.mime_type"))
    return is_cut(value, is_json)


def _cut_values(side: str, keys: Sequence[str], span: Span) -> list[object]:
    """Return the values of a side that were cut."""
    names = (*MESSAGES[side], *keys)
    places = (span.attributes, *(event for _, event in span.events))
    pairs = [(name, place.get(name)) for name in names for place in places]
    return [value for name, value in pairs if _is_cut(span, name, value)]


def _find_value(attributes: Attributes, key: str) -> Any:
    """Return the value of an attribute, or the list of numbered ones; None without it."""
    return (read_numbered(attributes, key) or None) if key[-1] == "." else attributes.get(key)


def _as_state(value: object) -> dict[str, Any]:
    """Return an object unchanged, a result of CrewAI with its `text`; for other values a state
    with the `text` and the original `value`."""
    parsed = parse_text(value, CONTAINERS)
    if is_object(parsed):
        return {"text": parsed["raw"], **parsed} if parsed.keys() >= CREWAI else parsed
    if isinstance(parsed, str):
        return {"text": parsed}

    text = write_json(parsed) if isinstance(parsed, bool) else flatten(parsed)
    return {"text": text, "value": parsed}


def _as_dicts(messages: Iterable[SpanMessage]) -> list[dict[str, Any]]:
    return [
        {"role": message.role, "content": message.content or ""}
        | drop_empty(
            {"tool_calls": list(message.calls), "thought": message.thought, OTHERS: message.others}
        )
        for message in messages
    ]


def _body(attributes: Attributes) -> dict[str, Any]:
    """Return the fields of a message that is recorded as an event, under current and older names.
    The content is not parsed, since it may itself be JSON."""
    fields: dict[str, Any] = {}
    for key, value in attributes.items():
        name = key.removeprefix("gen_ai.event.")
        fields[name] = value if name == "content" else parse_text(value, CONTAINERS)

    return fields


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 0 else None
