"""The way of an application to its answer: passages retrieved, tools called, steps taken.

Targets report it, and recorded runs have it in columns; metrics and judges read it from a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from textevolve.errors import InputError
from textevolve.json_texts import parse_text, write_text

ARGUMENT_NAMES = ("arguments", "args", "input", "parameters")
"""Names that frameworks have for the arguments of a call."""
PASSAGE_FIELDS = ("text", "content", "page_content")
"""Names that frameworks have for the text of a passage."""
STATED = ("contexts", "tool_calls", "steps", "errors", "expected_tools")
"""Fields of an answer, and columns, that state a trajectory."""
RECORDED = ("tool_calls", "steps", "errors")
"""Those of them that belong to one output, and not to its row."""
MOST_LEVELS = 100
"""To which the arguments and the result of a call may be nested."""
NO_ANSWER = "(no final answer)"
"""The output of a trajectory that ended without one."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool by an application. `arguments`: as parsed; the text itself if it is broken
    JSON; None if they were not recorded. `result` and `error` are texts, JSON where they were none.
    """

    name: str
    arguments: Any = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """`contexts`: retrieved passages, the best first. `tool_calls`: in their order; None where the
    application does not report them. `steps`: how many it took, if it reports that. `errors`: of
    steps that are no tool calls. `expected_tools`: the calls that the row expects."""

    contexts: tuple[str, ...] = ()
    tool_calls: tuple[ToolUse, ...] | None = None
    steps: int | None = None
    errors: tuple[str, ...] = ()
    expected_tools: tuple[ToolUse, ...] | None = None

    def as_row(self) -> dict[str, Any]:
        """Return what is known as the columns of a row, for metrics and tables."""
        row = {name: value for name, value in asdict(self).items() if value not in (None, ())}
        for name in ("tool_calls", "expected_tools"):
            if (calls := getattr(self, name)) is not None:
                row[name] = [{n: v for n, v in asdict(c).items() if v is not None} for c in calls]
        return row


def read_trajectory(values: Mapping[str, Any], where: str) -> Trajectory | None:
    """Read the trajectory that a row or an answer states; None if it states none.

    Raises:
        InputError: a field cannot be read; names `where`.
    """
    stated = {
        name: parse_text(value) for name in STATED if (value := values.get(name)) not in (None, "")
    }
    if not stated:
        return None
    steps, errors = stated.get("steps"), _as_list(stated.get("errors"))
    if isinstance(steps, list):
        listed = cast("list[Any]", steps)
        errors += filter(None, map(_find_error, _list_objects(listed)))
        steps = len(listed)
    elif steps is not None and not str(steps).isdecimal():
        raise InputError(f"{where}: steps must be a list or a number, not {steps!r:.60}")
    calls = {n: read_tool_calls(stated[n], where) for n in STATED if "tool" in n and n in stated}
    passages = read_contexts(stated["contexts"], where) if "contexts" in stated else ()
    count = None if steps is None else int(str(steps))
    return Trajectory(passages, steps=count, errors=tuple(map(str, errors)), **calls)


def _as_list(value: object) -> list[Any]:
    """Return a list as it is, a text as its only item, and of anything else none."""
    if isinstance(value, list | tuple):
        return list(cast("list[Any]", value))
    return [value] if isinstance(value, str) else []


def _list_objects(value: object) -> list[dict[str, Any]]:
    return [item for item in _as_list(value) if isinstance(item, dict)]


def read_contexts(value: object, where: str) -> tuple[str, ...]:
    """Read passages: a text, a list of texts or of objects with one, or JSON of these."""
    parsed = parse_text(value)
    items = cast("list[Any]", parsed) if isinstance(parsed, list | tuple) else [parsed]
    texts: list[str] = []
    for item in items:
        passage = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {"text": item}
        text = next((passage[name] for name in PASSAGE_FIELDS if name in passage), None)
        if not isinstance(text, str):
            raise InputError(
                f"{where}: a passage of contexts must be a text, or an object with"
                f" {', '.join(PASSAGE_FIELDS)}, not {item!r:.60}"
            )
        texts += [text] if text.strip() else []
    return tuple(texts)


def read_tool_calls(value: object, where: str) -> tuple[ToolUse, ...]:
    """Read tool calls as we, OpenAI, Anthropic or LangChain write them, names alone, the messages
    of a chat with its calls, or JSON of these."""
    parsed = parse_text(value)
    if isinstance(parsed, str) and not parsed.lstrip().startswith(("[", "{")):
        parsed = parsed.split(",")
    if not isinstance(parsed, list | tuple):
        raise InputError(f"{where}: tool calls must be a list, not {value!r:.60}")
    items = cast("list[Any]", parsed)
    messages = [entry for entry in _list_objects(items) if "role" in entry]
    calls = _list_calls(messages) if messages else items
    return tuple(_read_call(entry, where) for entry in calls)


def _list_calls(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """List the calls of a chat, each once, with its result in a message of a tool."""
    calls: dict[str, Any] = {}
    for message in messages:
        for call in _list_objects(parse_text(message.get("tool_calls"))):
            calls.setdefault(str(call.get("id") or f"#{len(calls)}"), call)
        if (id := str(message.get("tool_call_id"))) in calls:
            outcome = {"result": message.get("content"), "error": _find_error(message)}
            calls[id] = {**calls[id], **outcome}
    return list(calls.values())


def _read_call(item: Any, where: str) -> ToolUse:
    call = cast("dict[str, Any]", item) if isinstance(item, Mapping) else {"name": item}
    if isinstance(call.get("function"), Mapping):
        call = {**call, **call["function"]}
    name = call.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{where}: a tool call must be an object with a name, not {item!r:.60}")
    arguments = next((call[key] for key in ARGUMENT_NAMES if call.get(key) is not None), None)
    arguments = parse_text(arguments or {}) if isinstance(arguments, str) else arguments
    if _is_deep({**call, "": arguments}, MOST_LEVELS):
        raise InputError(f"{where}: a call of {name:.60} is nested too deeply")
    return ToolUse(name.strip(), arguments, _as_text(call.get("result")), _find_error(call))


def _is_deep(value: Any, levels: int) -> bool:
    parts = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else value
    inner = [] if isinstance(parts, str) else _as_list(parts)
    return not levels or any(_is_deep(item, levels - 1) for item in inner)


def _find_error(step: Mapping[str, Any]) -> str | None:
    """Return the error of a call or a step, by its text or a flag; None without one."""
    error = step.get("error") or step.get("is_error") or step.get("status") == "error"
    if not error:
        return None
    return _as_text(step.get("content") or "error" if error is True else error)


def _as_text(value: object) -> str | None:
    return None if value is None else write_text(value)
