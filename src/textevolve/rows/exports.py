"""Rows that other programs exported with their texts in nested fields: a table of names translates
them to the usual columns.

Sessions of coding agents become rows, too: the lines of a log are gathered to one chat. Logs of
Inspect and results of promptfoo, whose rows must be put together, are in `tables.py`.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from textevolve.errors import InputError
from textevolve.json_texts import as_array, find_path, parse_printed
from textevolve.mappings import drop_empty, first_of, omit
from textevolve.messages import fields_of, is_message
from textevolve.rows.trajectories import list_objects

if TYPE_CHECKING:
    from textevolve.rows.tables import Row

# Exports that are rows already, but with the texts in nested fields. Another one is a line here.


@dataclass(frozen=True, slots=True)
class KnownExport:
    """The export of another program.

    Attributes:
        program: The name of the program, for messages.
        fields: The fields by which a row is recognised; it has them all.
        paths: For each usual column the paths that may have its value; the first that has it
            counts.
        joined: The columns that may be lists of texts with a | between them.
    """

    program: str
    fields: frozenset[str]
    paths: Mapping[str, tuple[str, ...]]
    joined: tuple[str, ...] = ()

    def read(self, row: Row, own_names: Collection[str] = ()) -> Row:
        """Return the row with the usual columns in place of the fields that they are read from.
        `own_names`: the columns that the user has named the fields of."""
        values: dict[str, Any] = {}
        roots: set[str] = set()
        for column, paths in self.paths.items():
            for path in () if column in own_names else paths:
                if (value := find_path(row, path)) is not None:
                    read = parse_printed(value) if column in self.joined else value
                    is_joined = column in self.joined and isinstance(read, str)
                    values[column] = _JOIN.split(value) if is_joined else read
                    roots.add(path.partition(".")[0])
                    break

        return {**{name: row[name] for name in row if name not in roots}, **values}


_JOIN = re.compile(r"(?<=[^\s|-])\|(?=[^\s|-])")
"""A | between two texts; one beside a blank stands in a table or in a command."""
_LABELS = {
    f"label_{number}": (
        f"annotations.{number - 1}.result.0.value.choices.0",
        f"annotations.{number - 1}.result.0.value.rating",
    )
    for number in range(1, 6)
}

_INPUT = ("input.messages", "input.input", "input.question", "input.*", "input")
_LANGFUSE = {
    "input": _INPUT,
    "output": ("output.content", "output.output", "output.answer", "output.*", "output"),
}
_LANGFUSE_ITEM = {
    "input": _INPUT,
    "reference": tuple(
        f"{name}{path}"
        for name in ("expectedOutput", "expected_output")
        for path in (".output", ".answer", ".*", "")
    ),
}

KNOWN_EXPORTS = (
    KnownExport(
        "OpenAI's batches",
        frozenset(("custom_id", "response")),
        {
            "id": ("custom_id",),
            "output": (
                "response.body.choices.0.message.content",
                "response.body.output.0.content.0.text",
                "response.body.output.1.content.0.text",
            ),
        },
    ),
    KnownExport(
        "lm-eval",
        frozenset(("doc_id", "doc", "target", "resps")),
        {
            "id": ("doc_id",),
            "input": ("arguments.gen_args_0.arg_0", "arguments.0.0"),
            "output": ("filtered_resps.0", "resps.0.0"),
            "reference": ("target",),
        },
    ),
    KnownExport(
        "MT-Bench",
        frozenset(("question_id", "model_id", "choices")),
        {
            "id": ("answer_id", "question_id"),
            "output": ("choices.0.turns.0.content", "choices.0.turns.0"),
        },
    ),
    KnownExport(
        "Label Studio",
        frozenset(("data", "annotations")),
        {
            "input": ("data.input", "data.prompt", "data.question", "data.instruction"),
            "output": ("data.output", "data.response", "data.completion", "data.answer"),
            "reference": ("data.reference",),
            **_LABELS,
        },
    ),
    KnownExport(
        "LangSmith",
        frozenset(("inputs", "outputs")),
        {
            "input": ("inputs.input", "inputs.question", "inputs.messages", "inputs.*"),
            "output": ("outputs.output", "outputs.answer", "outputs.response", "outputs.*"),
            "reference": (
                "reference_outputs.output",
                "reference_outputs.answer",
                "reference_outputs.*",
            ),
        },
    ),
    KnownExport("Langfuse", frozenset(("projectId", "input", "output")), _LANGFUSE),
    KnownExport("Langfuse", frozenset(("projectId", "input", "expectedOutput")), _LANGFUSE_ITEM),
    KnownExport("Langfuse", frozenset(("datasetId", "input", "expectedOutput")), _LANGFUSE_ITEM),
    KnownExport("Langfuse", frozenset(("dataset_id", "input", "expected_output")), _LANGFUSE_ITEM),
    KnownExport(
        "Every Eval Ever",
        frozenset(("sample_id", "evaluation_id", "answer_attribution")),
        {
            "id": ("sample_id",),
            "input": ("input.raw",),
            "output": ("output.raw.0",),
            "reference": ("input.reference",),
        },
    ),
    KnownExport(
        "DeepEval",
        frozenset(("input", "actual_output")),
        {
            "retrieval_context": ("retrieval_context",),
            "context": ("context",),
            "tool_calls": ("tools_called",),
        },
        joined=("retrieval_context", "context"),
    ),
)


# The tests of promptfoo, whose tables have a check in each of some columns.

EXPECTED = "__expected"
THRESHOLD = "__threshold"
_EXPECTED = re.compile(rf"{EXPECTED}\d*")
"""The names of the columns in which promptfoo's tests have their checks."""


def gather_checks(row: Row) -> Row:
    """Return the row with the checks of promptfoo's columns in the column `checks`."""
    names = [name for name in row if _EXPECTED.fullmatch(str(name))]
    if not names:
        return row
    own = [{EXPECTED: row[name]} for name in names if row[name] not in (None, "")]
    checks: Any = [*as_array(row.get("checks")), *own]
    if row.get(THRESHOLD):
        checks = {"threshold": row[THRESHOLD], "assert": checks}

    return {**omit(row, [*names, THRESHOLD]), "checks": checks}


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
    history = list_objects(document, "history")
    steps = list_objects(document, "trajectory")
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
