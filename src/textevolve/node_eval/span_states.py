"""Read a node from a span's attributes and events: its name, input, output and tokens.

The names follow OpenTelemetry's conventions for generative AI, new and old, OpenInference,
OpenLLMetry and Pydantic AI; the first one that is present is used. Other data are no input or
output, and become attributes of the node. `span_messages.py` reads messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from textevolve.json_texts import CONTAINERS, parse_text
from textevolve.node_eval.span_messages import (
    SpanMessage,
    as_fields,
    flatten,
    join_texts,
    read_message,
    read_message_body,
    read_messages,
    read_numbered,
    unwrap_result,
)

Attributes: TypeAlias = Mapping[str, Any]
Events: TypeAlias = Sequence[tuple[str, Attributes]]
State: TypeAlias = "dict[str, Any] | None"
"""The input or output of a node; None if it was not recorded."""

INPUTS = (
    "gen_ai.tool.call.arguments",
    "gen_ai.retrieval.query.text",
    "gen_ai.memory.query.text",
    "input.value",
    "traceloop.entity.input",
    "tool_arguments",
    "reranker.query",
)
"""The attributes that may hold the input of a node that has no messages."""
OUTPUTS = (
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
    "gen_ai.memory.records",
    "output.value",
    "traceloop.entity.output",
    "tool_response",
    "final_result",
)
"""The attributes that may hold the output of a node that has no messages."""
DOCUMENTS = ("retrieval.documents.", "reranker.output_documents.")
"""The prefixes of attributes with retrieved documents."""
TOOL_LISTS = (
    *("gen_ai.tool.definitions", "llm.tools", "llm.tools.", "llm.request.functions."),
    "gen_ai.agent.tools",
    *("model_request_parameters", "llm.invocation_parameters", "input.value"),
)
"""The attributes with the definitions of the available tools, directly or under the keys
`TOOL_KEYS` of an object."""
TOOL_KEYS = ("tools", "function_tools")
SCHEMAS = ("parameters", "parameters_json_schema", "input_schema", "inputSchema")
"""The keys that may hold the schema of a tool's parameters."""
NAMES = (
    *("gen_ai.tool.name", "gen_ai.agent.name", "gen_ai.workflow.name", "tool.name", "agent.name"),
    "graph.node.id",
)
"""The attributes that may hold the name of a node."""

IDS = {
    "session_id": ("session.id", "gcp.vertex.agent.session_id"),
    "user_id": ("user.id", "enduser.id"),
    "thread_id": ("gen_ai.conversation.id", "gcp.vertex.agent.session_id"),
}
"""The attributes with the ids of the session, the user and the conversation (`thread_id`) of a
span."""

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
    "model_request_parameters",
)
"""The prefixes of attributes that belong to a convention. Other attributes that are no input or
output become attributes of the node."""

INPUT_MESSAGES = (
    ("attribute", "gen_ai.input.messages"),
    ("event", "gen_ai.input.messages"),
    ("named event", "message"),
    ("event", "gen_ai.prompt"),
    ("numbered", "gen_ai.prompt."),
    ("attribute", "gen_ai.prompt"),
    ("numbered", "llm.input_messages."),
    ("numbered", "llm.prompts."),
    ("pydantic-ai", "pydantic_ai.all_messages"),
    ("body", "input.value"),
    ("crewai", "output.value"),
)
"""For each convention, the form and the name under which the messages to a model or an agent are
recorded."""

OUTPUT_MESSAGES = (
    ("attribute", "gen_ai.output.messages"),
    ("event", "gen_ai.output.messages"),
    ("named event", "choice"),
    ("event", "gen_ai.completion"),
    ("numbered", "gen_ai.completion."),
    ("attribute", "gen_ai.completion"),
    ("numbered", "llm.output_messages."),
    ("numbered", "llm.choices."),
    ("body", "output.value"),
)
"""The same for the messages of a model's or an agent's answer."""
CREWAI = {"raw", "pydantic"}
"""Fields of the JSON in which CrewAI wraps the answer of a task, a crew or an agent. The text of
the answer is `raw`; the `messages` of a task or an agent begin with those to the agent."""
EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
"""The roles of messages that are events, by the event's name."""
EXCEPTIONS = ("exception", "gen_ai.client.operation.exception")
"""The names of events with an exception."""


def operation_of(attributes: Attributes) -> str:
    """Return the operation by OpenTelemetry's conventions; empty if the span names none."""
    return _text(attributes.get("gen_ai.operation.name"))


def kind_of(attributes: Attributes) -> str:
    """Return OpenInference's kind of span, in capitals; empty if the span names none."""
    return _text(attributes.get("openinference.span.kind")).upper()


def node_name_of(attributes: Attributes, span: str) -> str:
    """Return the name of the tool or agent that a span runs, otherwise the span's own name."""
    if operation_of(attributes) in ("execute_tool", "invoke_agent", "invoke_workflow") or (
        kind_of(attributes) in ("TOOL", "AGENT")
    ):
        return next((name for key in NAMES if (name := _text(attributes.get(key)))), span)
    return span


def input_of(attributes: Attributes, events: Events) -> State:
    """Return a node's input: its `text`, with `messages` if there are any, and the available
    `tools`; or the arguments of a tool."""
    found = _pick(_messages(INPUT_MESSAGES, "user", attributes, events))
    if not any(message.content for message in found):
        state = _first(attributes, INPUTS)
        if state is not None or not found:
            return state
    system = flatten(parse_text(_instructions(attributes, events), CONTAINERS))
    state = _conversation([SpanMessage("system", system), *found] if system else found)
    tools = tools_of(attributes)
    return {**state, "tools": tools} if tools else state


def tools_of(attributes: Attributes) -> list[dict[str, Any]]:
    """Return the definitions of the tools that a model or an agent could call."""
    values: list[Any] = [read_numbered(attributes, prefix) for prefix in TOOL_LISTS]
    values += [parse_text(attributes.get(key), CONTAINERS) for key in TOOL_LISTS]
    fields = [cast(dict[str, Any], one) for one in values if isinstance(one, dict)]
    values += [one.get(key) for one in fields for key in TOOL_KEYS]
    lists = [cast(list[object], one) for one in values if isinstance(one, list)]
    tools = ([tool for raw in one if (tool := _read_tool(raw))] for one in lists)
    return next(filter(None, tools), list[dict[str, Any]]())


def _read_tool(raw: object) -> dict[str, Any]:
    """Return the name, the description and the parameters of a tool; empty if it has no name."""
    fields = as_fields(raw) or {"name": raw}
    for key in ("tool", "json_schema", "function", "toolSpec"):
        fields = as_fields(fields[key]) if key in fields else fields
    if not _text(fields.get("name")):
        return {}
    known = ((name, fields.get(name)) for name in ("name", "description", *SCHEMAS))
    return {"parameters" if n in SCHEMAS else n: parse_text(v) for n, v in known if v}


def output_of(attributes: Attributes, events: Events) -> State:
    """Return a node's output: like `input_of`, or the result of a tool, a retriever or an agent. In
    a whole transcript the last messages are the answer."""
    found = _pick(_messages(OUTPUT_MESSAGES, "assistant", attributes, events))
    if not any(message.content for message in found):
        state = _first(attributes, OUTPUTS)
        state = _documents(attributes) if state is None else state
        if state is not None or not found:
            return state
    others = [n for n, one in enumerate(found, 1) if one.role != "assistant"]
    answer = found[others[-1] :] if others else found
    return {"text": join_texts(answer or found), "messages": _as_dicts(found)}


def ids_of(attributes: Attributes) -> dict[str, str]:
    """Return the ids that a span has of its session, user and conversation, by the names of
    `IDS`."""
    known = (
        (n, next((a for k in keys if (a := attributes.get(k))), None)) for n, keys in IDS.items()
    )
    return {name: str(value) for name, value in known if value is not None}


def attributes_of(attributes: Attributes) -> dict[str, Any]:
    """Return the attributes that are neither a state nor part of the conventions, such as the
    user's own measurements."""
    known = {*INPUTS, *OUTPUTS}
    return {
        key: value
        for key, value in attributes.items()
        if key not in known and not key.startswith(CONVENTIONS)
    }


def tokens_of(attributes: Attributes) -> int | None:
    """Return the recorded total of tokens, otherwise the sum of prompt and answer tokens; None if
    the span has neither."""
    for total in ("llm.token_count.total", "llm.usage.total_tokens", "gen_ai.usage.total_tokens"):
        if (count := _count(attributes.get(total))) is not None:
            return count
    for parts in (
        ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
        ("gen_ai.aggregated_usage.input_tokens", "gen_ai.aggregated_usage.output_tokens"),
        ("llm.token_count.prompt", "llm.token_count.completion"),
    ):
        known = [n for key in parts if (n := _count(attributes.get(key))) is not None]
        if known:
            return sum(known)
    return None


def error_of(attributes: Attributes, events: Events, status: str | None) -> str | None:
    """Return the error of a failed span; None for others."""
    kind = _text(attributes.get("error.type"))
    if status is None and not kind:
        return None
    said = [
        ": ".join(part for part in (_text(a.get(f"exception.{k}")) for k in KEYS) if part)
        for name, a in events
        if name in EXCEPTIONS
    ]
    return status or next(filter(None, said), "") or kind or "failed, without saying why"


KEYS = ("type", "message")
"""The fields of a recorded exception."""


def _messages(
    table: Sequence[tuple[str, str]], role: str, attributes: Attributes, events: Events
) -> Iterator[list[SpanMessage]]:
    """Read the messages, by each of the conventions; `role`: for messages without one."""
    for form, key in table:
        match form:
            case "attribute":
                yield read_messages(attributes.get(key), role)
            case "event":
                yield [one for _, a in events for one in read_messages(a.get(key), role)]
            case "numbered":
                yield read_messages(read_numbered(attributes, key), role)
            case "body":
                is_model = kind_of(attributes) == "LLM"
                yield read_message_body(attributes.get(key), role) if is_model else []
            case "pydantic-ai":
                yield _before_the_run(read_messages(attributes.get(key), role), attributes)
            case "crewai":
                task = as_fields(attributes.get(key))
                messages = (
                    read_messages(task.get("messages"), role) if task.keys() >= CREWAI else []
                )
                yield _before_the_run(messages, attributes)
            case _:
                yield [
                    replace(read_message(_body(a), ""), role=EVENT_ROLES[name])
                    for name, a in events
                    if name in EVENT_ROLES and name.endswith(key)
                ]


def _pick(candidates: Iterable[list[SpanMessage]]) -> list[SpanMessage]:
    """Return the first list with readable content, otherwise the first that says that the content
    was empty; empty without either."""
    empty: list[SpanMessage] = []
    for found in candidates:
        if any(message.content for message in found):
            return found
        if not empty and any(message.content is not None for message in found):
            empty = found
    return empty


def _before_the_run(messages: list[SpanMessage], attributes: Attributes) -> list[SpanMessage]:
    """Return the messages before the agent's own first one in this run. Messages of earlier runs,
    which Pydantic AI records as well, are kept, whoever wrote them."""
    first = _count(attributes.get("pydantic_ai.new_message_index")) or 0
    own = (n for n, one in enumerate(messages) if n >= first and one.role == "assistant")
    return messages[: next(own, len(messages))]


def _instructions(attributes: Attributes, events: Events) -> object:
    key = "gen_ai.system_instructions"
    return next((a[key] for a in (attributes, *(e for _, e in events)) if a.get(key)), None)


def _documents(attributes: Attributes) -> State:
    found = (read_numbered(attributes, prefix) for prefix in DOCUMENTS)
    return next((_as_state(documents) for documents in found if documents), None)


def _first(attributes: Attributes, keys: Sequence[str]) -> State:
    value = next((value for key in keys if (value := attributes.get(key)) is not None), None)
    is_tool = "TOOL" in kind_of(attributes) or operation_of(attributes) == "execute_tool"
    value = unwrap_result(value) if is_tool else value
    return None if value is None else _as_state(value)


def _as_state(value: object) -> dict[str, Any]:
    """Return an object unchanged, a result of CrewAI with its `text`; for other values a state
    with the `text` and the original `value`."""
    parsed = parse_text(value, CONTAINERS)
    if isinstance(parsed, dict):
        fields = cast(dict[str, Any], parsed)
        return {"text": fields["raw"], **fields} if fields.keys() >= CREWAI else fields
    if isinstance(parsed, str):
        return {"text": parsed}
    return {"text": flatten(parsed), "value": parsed}


def _conversation(messages: list[SpanMessage]) -> dict[str, Any]:
    if len(messages) == 1:
        text = messages[0].content or ""
    else:
        text = "\n\n".join(f"{one.role}: {one.content or ''}" for one in messages)
    return {"text": text, "messages": _as_dicts(messages)}


def _as_dicts(messages: Iterable[SpanMessage]) -> list[dict[str, Any]]:
    return [
        {"role": one.role, "content": one.content or ""}
        | ({"tool_calls": list(one.calls)} if one.calls else {})
        for one in messages
    ]


def _body(attributes: Attributes) -> dict[str, Any]:
    """Return the fields of a message that is recorded as an event, under current and older names.
    The content is not parsed, since it may itself be JSON."""
    named = {key.removeprefix("gen_ai.event."): value for key, value in attributes.items()}
    return {key: v if key == "content" else parse_text(v, CONTAINERS) for key, v in named.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 0 else None
