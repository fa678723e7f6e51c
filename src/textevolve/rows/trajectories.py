"""Trajectories of agents in ATIF, the format in which harnesses exchange the runs of agents: read
one as a chat, and write a chat as one.

A step of ATIF becomes the message of its speaker and one message for each result that the step
observed. Messages keep the fields of their step that no reader of chats knows (`STEP_FIELDS`), so
that a chat is written again with its tokens, costs and times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from textevolve.json_texts import as_array, as_object, is_array, is_object, write_text
from textevolve.ledger import leave_out
from textevolve.mappings import drop_empty, drop_none, omit, pick
from textevolve.messages import RawMessage, read_message, result_text
from textevolve.rows.chats import ASSISTANT, USER, speaker_of

AtifDocument: TypeAlias = Mapping[str, Any]
"""A document of ATIF."""

VERSION = "ATIF-v1.8"
"""The version that is written. Any version of ATIF is read."""
OF_STEPS = ("timestamp", "extra", "is_copied_context")
OF_AGENTS = ("model_name", "reasoning_effort", "metrics", "llm_call_count")
STEP_FIELDS = (*OF_STEPS, *OF_AGENTS)
"""The fields of a step that its message keeps under the same names; those of `OF_AGENTS` only
steps of the agent may have."""
METRICS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
"""The metrics of a step that nodes and samples have, too."""
ENVIRONMENT = "environment"
"""The role of an observation that is the result of no tool call."""
_SOURCES = {ASSISTANT: "agent", USER: "user"}


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """A step of a trajectory.

    Attributes:
        fields: The step as it was recorded.
        messages: What its speaker said, and each observation.
        subagents: The trajectories of the sub-agents that it called, by the ids of the calls.
    """

    fields: Mapping[str, Any]
    messages: list[dict[str, Any]]
    subagents: Sequence[tuple[str, AtifDocument]]


def is_trajectory(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a trajectory in ATIF."""
    version = str(document.get("schema_version"))
    return version.startswith("ATIF") and is_array(document.get("steps"))


def list_objects(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return list(map(as_object, as_array(fields.get(name))))


def read_steps(document: AtifDocument) -> Iterator[TrajectoryStep]:
    """Yield the steps of a trajectory. Ids of calls are unique within a step alone, so messages
    have the number of the step before them."""
    embedded = list_objects(document, "subagent_trajectories")
    subagents = {str(subagent.get("trajectory_id")): subagent for subagent in embedded}
    calls: dict[str, dict[str, Any]] = {}

    for number, fields in enumerate(list_objects(document, "steps"), 1):
        own_calls: list[dict[str, Any]] = []
        for call in list_objects(fields, "tool_calls"):
            id = str(call.get("tool_call_id"))
            name = str(call.get("function_name") or "")
            calls[id] = {"id": f"{number}.{id}", "name": name, "arguments": call.get("arguments")}
            own_calls.append(calls[id])

        source = str(fields.get("source"))
        said = {
            "content": fields.get("message"),
            "reasoning_content": fields.get("reasoning_content"),
            "tool_calls": own_calls,
        }
        speaker = {"role": "assistant" if source == "agent" else source, "content": ""}
        messages = [{**speaker, **drop_empty(said), **pick(fields, STEP_FIELDS)}]
        observed = list_objects(as_object(fields.get("observation")), "results")
        # A result without the id of its call is that of the only call.
        only_call = own_calls[0] if len(own_calls) == len(observed) == 1 else None
        called: list[tuple[str, AtifDocument]] = []
        for result in observed:
            call = calls.get(str(result.get("source_call_id")), only_call)
            id = "" if call is None else call["id"]
            ids = [str(r.get("trajectory_id")) for r in list_objects(result, SUBAGENTS)]
            own = [subagents[name] for name in ids if name in subagents]
            called += [(id, subagent) for subagent in own]
            content = result.get("content") or "\n".join(map(_find_answer, own))
            if call is None:
                messages.append({"role": ENVIRONMENT, "content": content})
            else:
                about = {"role": "tool", "tool_call_id": id, "name": call["name"]}
                messages.append({**about, "content": content})

        yield TrajectoryStep(fields, messages if any(said.values()) else messages[1:], called)


SUBAGENTS = "subagent_trajectory_ref"


def _find_answer(document: AtifDocument) -> str:
    """Return the last text of a trajectory's agent, which is the result of a sub-agent; empty if it
    says nothing."""
    messages = [message for step in read_steps(document) for message in step.messages]
    texts = [read_message(message).text for message in messages if message["role"] == "assistant"]
    return next(filter(None, reversed(texts)), "")


def id_of(document: AtifDocument) -> str:
    """Return the id of a trajectory, or else that of its session; empty without either."""
    return str(document.get("trajectory_id") or document.get("session_id") or "")


def read_trajectory_row(document: AtifDocument) -> dict[str, Any]:
    """Return a trajectory as a row: a chat with its number of steps, and the other fields of the
    document. What sub-agents did is recorded as left out."""
    steps = list(read_steps(document))
    subagents = len(as_array(document.get("subagent_trajectories")))
    leave_out("sub-agent", "what it did is no part of the chat of its agent", subagents)
    by_agent = [step.fields for step in steps if step.fields.get("source") == "agent"]
    row = {
        "id": id_of(document),
        "messages": [message for step in steps for message in step.messages],
        "steps": sum(fields.get("is_copied_context") is not True for fields in by_agent),
        **omit(document, ("schema_version", "steps", "subagent_trajectories", "trajectory_id")),
    }
    if row["id"] == row.get("session_id"):
        del row["session_id"]

    return {name: value for name, value in row.items() if value not in (None, "")}


def write_trajectory(
    messages: Sequence[RawMessage],
    session_id: str = "",
    agent: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a chat as a document of ATIF. Parts of messages that are no text are named in
    brackets, and arguments that are no object stand in the field `value` of one.

    Args:
        messages: The chat; messages may have the fields of a step (`STEP_FIELDS`).
        session_id: The id of the session; empty for none.
        agent: What is known of the agent: its name, version and model_name.
        extra: Further facts about the trajectory.
    """
    steps: list[dict[str, Any]] = []
    ids: list[str] = []

    for raw in messages:
        message = read_message(raw)
        observed = [(result.id, result_text(result)) for result in message.results]
        if message.role == ENVIRONMENT:
            observed = [("", message.text)]
        for id, content in observed if steps else ():
            caller = {"source_call_id": id} if id in ids else {}
            observation = steps[-1].setdefault("observation", {"results": []})
            observation["results"].append({**caller, "content": content})
        if observed:
            continue

        source = _SOURCES.get(speaker_of(message.role), "system")
        step: dict[str, Any] = {
            "step_id": len(steps) + 1,
            "source": source,
            "message": message.text,
        }
        step |= pick(raw, STEP_FIELDS if source == "agent" else OF_STEPS)
        calls: list[dict[str, Any]] = [
            {
                "tool_call_id": call.id or str(place),
                "function_name": call.name,
                "arguments": _write_arguments(call.arguments),
            }
            for place, call in enumerate(message.calls, 1)
        ]
        ids = [call["tool_call_id"] for call in calls]
        step |= drop_empty({"reasoning_content": message.thought, "tool_calls": calls})
        steps.append(step)

    document = {
        "schema_version": VERSION,
        "session_id": session_id or None,
        "agent": {"name": "unknown", "version": "unknown", **drop_none(agent or {})},
        "steps": steps,
        "extra": dict(extra or {}) or None,
    }
    return drop_none(document)


def _write_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call as an object."""
    if arguments is None:
        return {}
    return arguments if is_object(arguments) else {"value": write_text(arguments)}
