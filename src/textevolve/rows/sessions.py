"""Sessions of coding agents as rows: the lines of a log are gathered to one chat, with the tool
calls and their results, which `textevolve.messages` reads.

A table says for each program by which fields its lines are recognised, and which of them hold a
message.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from textevolve.errors import InputError
from textevolve.json_texts import as_array, as_object
from textevolve.mappings import drop_empty, first_of
from textevolve.messages import fields_of, is_message

LogLine: TypeAlias = Mapping[str, Any]
"""A line of a log: the values of its fields."""


@dataclass(frozen=True, slots=True)
class SessionLog:
    """The log of a program that writes an object for each event of a session.

    Attributes:
        program: The name of the program, for messages.
        fields: The fields of which a line of the log has at least one group.
        types: The types of its lines; empty if lines name no type.
        messages: The types of the lines with a message; empty if any line may be one.
        inner: The field of a line that holds the message; empty if the line is the message.
        ids: The fields of a line, or of its inner object, that may hold the id of the session.
    """

    program: str
    fields: tuple[frozenset[str], ...]
    types: frozenset[str] = frozenset()
    messages: tuple[str, ...] = ()
    inner: str = ""
    ids: tuple[str, ...] = ()

    def is_line(self, line: LogLine) -> bool:
        """Tell whether this is a line of such a log."""
        has_fields = any(line.keys() >= names for names in self.fields)
        return has_fields and (not self.types or line.get("type") in self.types)

    def find_message(self, line: LogLine) -> LogLine | None:
        """Return the message in a line; None if it holds none."""
        if self.messages and line.get("type") not in self.messages:
            return None
        message = fields_of(line.get(self.inner)) if self.inner else line
        return message if is_message(message) else None


SESSION_LOGS = (
    SessionLog(
        "Claude Code",
        fields=(
            frozenset(("uuid", "sessionId")),
            frozenset(("leafUuid", "summary")),
            frozenset(("messageId", "snapshot")),
            frozenset(("operation", "sessionId")),
            # What `claude --output-format stream-json` prints.
            frozenset(("session_id", "uuid")),
            frozenset(("session_id", "message")),
            frozenset(("session_id", "subtype")),
        ),
        types=frozenset(
            (
                *("user", "assistant", "system", "summary", "result", "attachment", "progress"),
                *("file-history-snapshot", "queue-operation"),
            )
        ),
        messages=("user", "assistant"),
        inner="message",
        ids=("sessionId", "session_id"),
    ),
    SessionLog(
        "Codex",
        fields=(frozenset(("timestamp", "payload")),),
        types=frozenset(
            ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
        ),
        messages=("response_item",),
        inner="payload",
        ids=("session_id", "id"),
    ),
    # Codex before autumn 2025: the first line is about the session, the others are items.
    SessionLog("Codex", fields=(frozenset(("id", "timestamp", "instructions")),), ids=("id",)),
)
"""The logs that are known, each by its lines."""

TRAJECTORY = {"history", "trajectory", "info", "environment", "replay_config"}
"""The fields of a trajectory of SWE-agent."""
BARE = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal"),
    *("reasoning_content", "extra", "timestamp"),
}
"""The fields of a message that is no row with columns of its own."""


def find_session_log(line: LogLine) -> SessionLog | None:
    """Return the program whose log begins with such a line; None if no known one does."""
    return next((log for log in SESSION_LOGS if log.is_line(line)), None)


def join_sessions(rows: Iterator[tuple[str, LogLine]], name: str) -> Iterator[tuple[str, LogLine]]:
    """Yield one row for each session if these are the lines of a log, with its `messages`; yield
    any other rows unchanged. `name`: that of the file.

    Raises:
        InputError: it is a log without messages.
    """
    first = next(rows, None)
    if first is None:
        return
    log = find_session_log(first[1])
    if log is None:
        yield from _join_chat(itertools.chain([first], rows), Path(name).stem)
        return

    sessions: dict[str, list[LogLine]] = {}
    places: dict[str, str] = {}
    session_id = ""
    left_out = 0

    for where, line in itertools.chain([first], rows):
        # The first id counts: in Codex's log later lines have ids of their own.
        if log.inner == "message" or not session_id:
            session_id = _find_id(log, line) or session_id
        message = log.find_message(line)
        if message is None or line.get("isMeta") is True:
            continue
        if line.get("isSidechain") is True:
            left_out += 1  # what a sub-agent said is another chat
            continue

        places.setdefault(session_id, where)
        sessions.setdefault(session_id, []).append(message)

    if not sessions:
        raise InputError(f"{name}: a session of {log.program} without messages")
    if left_out:
        logging.getLogger("textevolve").warning(
            f"{name}: {left_out} {'message' if left_out == 1 else 'messages'} of sub-agents in the"
            " session left out"
        )
    for id, messages in sessions.items():
        yield places[id], drop_empty({"id": id, "messages": messages})


def _join_chat(rows: Iterator[tuple[str, LogLine]], id: str) -> Iterator[tuple[str, LogLine]]:
    """Yield one row with this id if all rows are the messages of a chat, with nothing else in them;
    otherwise the rows as they are."""
    messages: list[tuple[str, LogLine]] = []
    for where, row in rows:
        if not (row.keys() <= BARE and "role" in row and is_message(row)):
            yield from messages
            yield where, row
            yield from rows
            return
        messages.append((where, row))

    roles = {message["role"] for _, message in messages}
    if len(roles) > 1:
        yield messages[0][0], {"id": id, "messages": [message for _, message in messages]}
    else:
        yield from messages


def _find_id(log: SessionLog, line: LogLine) -> str:
    """Return the id of the session in a line; empty if it has none."""
    own = first_of(line, log.ids)
    inner = first_of(fields_of(line.get(log.inner)), log.ids)
    return str(own or inner or "")


def read_session(document: LogLine) -> LogLine | None:
    """Return the row of a trajectory of SWE-agent; None for any other document."""
    history = list(map(as_object, as_array(document.get("history"))))
    steps = list(map(as_object, as_array(document.get("trajectory"))))
    if not history or not document.keys() <= TRAJECTORY or not all(map(is_message, history)):
        return None

    messages: list[LogLine] = [message for message in history if not message.get("is_demo")]
    if steps and not any(message.get("tool_calls") for message in messages):
        # Its actions are texts: the steps have them apart from the thoughts, and the observations.
        opening = itertools.takewhile(lambda m: m.get("role") != "assistant", messages)
        messages = [*opening, *_list_steps(steps)]

    return drop_empty({"messages": messages, "info": document.get("info")})


def _list_steps(steps: Iterable[LogLine]) -> Iterator[LogLine]:
    """Yield the messages of steps: an action is the call of the tool that it begins with."""
    for step in steps:
        action = str(step.get("action") or "").strip()
        message: dict[str, Any] = {
            "role": "assistant",
            "content": str(step.get("thought") or step.get("response") or ""),
        }
        if action:
            message["tool_calls"] = [{"name": action.split()[0], "arguments": {"command": action}}]
        yield message
        if action:
            yield {"role": "tool", "content": str(step.get("observation") or "")}
