"""The trajectory of an application's answer: passages retrieved, tools called, steps taken.

Targets report trajectories, and recorded runs have them in columns; metrics and judges read them
from a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from textevolve.errors import InputError
from textevolve.json_texts import (
    is_array,
    is_mapping,
    is_object,
    is_sequence,
    parse_printed,
    parse_text,
    write_text,
)
from textevolve.mappings import drop_none, first_of
from textevolve.messages import (
    ARGUMENTS,
    CALL_NAMES,
    fields_of,
    list_messages,
    pair_results,
    read_message,
    result_text,
)

RESULT_NAMES = ("result", "output", "tool_output")
"""The names that frameworks use for the result of a call."""
PASSAGE_FIELDS = ("text", "content", "page_content", "passage", "chunk", "snippet", "node")
"""The names that frameworks use for the text of a passage."""
TRAJECTORY_FIELDS = ("contexts", "tool_calls", "steps", "errors", "expected_tools")
"""The names of the columns, and of the fields of an application's answer, that hold its
trajectory."""
RECORDED = ("tool_calls", "steps", "errors")
"""The parts of a trajectory that belong to one output; the other parts belong to its row and hold
for all outputs."""
MOST_LEVELS = 100
"""The maximum nesting depth of the arguments and the result of a call."""
NO_ANSWER = "(no final answer)"
"""The output of a trajectory that ended without a final answer."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of an application. `arguments`: parsed from JSON, or the raw text if it is not
    valid JSON; None if not recorded. `result` and `error`: texts; other values were converted to
    JSON."""

    name: str
    arguments: Any = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The trajectory of an answer. `contexts`: the retrieved passages, best first. `tool_calls`:
    the calls in order; None if the application does not report calls. `steps`: the number of steps;
    None if not reported. `errors`: the errors of steps other than tool calls. `expected_tools`: the
    calls that the row expects."""

    contexts: tuple[str, ...] = ()
    tool_calls: tuple[ToolUse, ...] | None = None
    steps: int | None = None
    errors: tuple[str, ...] = ()
    expected_tools: tuple[ToolUse, ...] | None = None

    def as_row(self) -> dict[str, Any]:
        """Return the known fields as the columns of a row, for metrics and tables."""
        row = {name: value for name, value in asdict(self).items() if value not in (None, ())}
        for name in ("tool_calls", "expected_tools"):
            if (calls := getattr(self, name)) is not None:
                row[name] = [drop_none(asdict(c)) for c in calls]
        return row


def read_trajectory(values: Mapping[str, Any], where: str) -> Trajectory | None:
    """Read the trajectory in the fields of a row or an answer; None if it has none. `where`: the
    place for error messages.

    Raises:
        InputError: a field cannot be read; names `where`.
    """
    stated = {
        name: parse_text(value)
        for name in TRAJECTORY_FIELDS
        if (value := values.get(name)) not in (None, "")
    }
    if not stated:
        return None
    steps = stated.get("steps")
    errors = _as_list(stated.get("errors"))

    if is_array(steps):
        errors += filter(None, map(_find_error, filter(is_object, steps)))
        steps = len(steps)
    elif steps is not None and (steps := _read_count(steps)) is None:
        raise InputError(f"{where}: steps must be a list or a number, not {stated['steps']!r:.60}")

    calls = {
        name: read_tool_calls(value, where) for name, value in stated.items() if "tool" in name
    }
    passages = read_contexts(stated["contexts"], where) if "contexts" in stated else ()

    return Trajectory(passages, steps=steps, errors=tuple(map(str, errors)), **calls)


def _read_count(value: object) -> int | None:
    """Return a whole number that is not negative; None for any other value. Tables that have a gap
    in a column write its numbers as 3.0."""
    text = str(value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and not isinstance(value, bool) else None


def _as_list(value: object) -> list[Any]:
    """Return a list unchanged, a text as a list of one, and an empty list for any other value."""
    if is_sequence(value):
        return list(value)
    return [value] if isinstance(value, str) else []


def passage_text(passage: object) -> str | None:
    """Return the text of a passage: the passage itself, or the text in one of its
    `PASSAGE_FIELDS`, which may be objects, too; None if there is no text."""
    while is_mapping(passage):
        passage = first_of(passage, PASSAGE_FIELDS)
    return passage if isinstance(passage, str) else None


def read_contexts(value: object, where: str) -> tuple[str, ...]:
    """Read passages from a text, a list of texts, a list of objects with a text, or a text
    that is one of these as JSON or Python writes it. None is no passage.

    Raises:
        InputError: a passage has no text; names `where`.
    """
    parsed = parse_printed(parse_text(value))
    items = parsed if is_sequence(parsed) else [parsed]
    texts: list[str] = []

    for item in items:
        text = "" if item is None else passage_text(item)
        if text is None:
            raise InputError(
                f"{where}: a passage of contexts must be a text, or an object with a text in one of"
                f" the fields {', '.join(PASSAGE_FIELDS)}, not {item!r:.60}"
            )

        if text.strip():
            texts.append(text)

    return tuple(texts)


def read_tool_calls(value: object, where: str) -> tuple[ToolUse, ...]:
    """Read tool calls in the format of TextEvolve, OpenAI, Anthropic, LangChain or Inspect, from
    names of tools, from chat messages with calls, or from JSON of any of these.

    Raises:
        InputError: a call cannot be read; names `where`.
    """
    parsed = parse_text(value)
    if isinstance(parsed, str) and not parsed.lstrip().startswith(("[", "{")):
        parsed = parsed.split(",")
    if not is_sequence(parsed):
        raise InputError(f"{where}: tool calls must be a list, not {value!r:.60}")
    if list_messages(parsed):
        return _read_messages(parsed, where)

    return tuple(_read_call(entry, where) for entry in parsed)


def _read_messages(items: Sequence[Any], where: str) -> tuple[ToolUse, ...]:
    """Return the tool calls in the messages of a chat, in order, each with its result."""
    uses: list[ToolUse] = []
    for call, result in pair_results(map(read_message, items)):
        use = _read_call({"name": call.name, "arguments": call.arguments}, where)
        if result is not None:
            text = result_text(result)
            use = replace(use, result=text, error=text or "error" if result.is_error else None)
        uses.append(use)

    return tuple(uses)


def _read_call(item: Any, where: str) -> ToolUse:
    call = fields_of(item) or {"name": item}
    call = drop_none({**call, **fields_of(call.get("function"))})
    name = first_of(call, CALL_NAMES)
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{where}: a tool call must be an object with a name, not {item!r:.60}")
    arguments = first_of(call, ARGUMENTS)
    arguments = parse_text({} if arguments == "" else arguments)
    if _is_deep({**call, "": arguments}, MOST_LEVELS):
        raise InputError(f"{where}: the arguments of a call of {name:.60} are nested too deeply")

    result = _as_text(first_of(call, RESULT_NAMES))

    return ToolUse(name.strip(), arguments, result, _find_error(call))


def _is_deep(value: Any, levels: int) -> bool:
    if not levels:
        return True
    if isinstance(value, str):
        return False

    parts = value.values() if is_object(value) else _as_list(value)
    return any(_is_deep(part, levels - 1) for part in parts)


def _find_error(step: Mapping[str, Any]) -> str | None:
    """Return the error of a tool call or a step, from its text, its flag or that of its result in
    MCP; None without an error."""
    result = fields_of(parse_text(step.get("result")))
    error = (
        step.get("error")
        or step.get("is_error")
        or step.get("status") == "error"
        or result.get("isError")
    )
    if not error:
        return None
    return _as_text(step.get("content") or "error" if error is True else error)


def _as_text(value: object) -> str | None:
    return None if value is None else write_text(value)
