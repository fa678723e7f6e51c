"""The way of an application to its answer: passages retrieved, tools called, steps taken.

Targets report it, and recorded runs have it in columns; metrics and judges read it from a case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from textevolve.errors import InputError

ARGUMENT_NAMES = ("arguments", "args", "input", "parameters")
"""Names that frameworks have for the arguments of a call."""
PASSAGE_FIELDS = ("text", "content", "page_content")
"""Names that frameworks have for the text of a passage."""
STATED = ("contexts", "tool_calls", "steps")
"""Fields of an answer, and columns, that state a trajectory."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool by an application. Arguments that are no JSON object stand under the name
    "". `result` and `error` are texts, JSON where they were none."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """`contexts`: retrieved passages, the best first. `tool_calls`: in their order; None where the
    application does not report them. `steps`: how many it took, if it reports that."""

    contexts: tuple[str, ...] = ()
    tool_calls: tuple[ToolUse, ...] | None = None
    steps: int | None = None

    def as_row(self) -> dict[str, Any]:
        """Return what is known as the columns of a row, for metrics and tables."""
        calls = self.tool_calls
        row: dict[str, Any] = {"contexts": list(self.contexts)} if self.contexts else {}
        row |= {} if calls is None else {"tool_calls": [_without_none(asdict(c)) for c in calls]}
        return row | ({} if self.steps is None else {"steps": self.steps})


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def read_trajectory(values: Mapping[str, Any], where: str) -> Trajectory | None:
    """Read the trajectory that a row or an answer states; None if it states none.

    Raises:
        InputError: a field cannot be read; names `where`.
    """
    contexts, calls, steps = (values.get(name) for name in STATED)
    if contexts is None and calls is None and steps is None:
        return None
    steps = len(cast("list[Any]", steps)) if isinstance(steps, list) else steps
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 0):
        raise InputError(f"{where}: steps must be a number of steps, not {steps!r:.60}")
    passages = () if contexts is None else read_contexts(contexts, where)
    return Trajectory(passages, None if calls is None else read_tool_calls(calls, where), steps)


def read_contexts(value: object, where: str) -> tuple[str, ...]:
    """Read passages: a text, a list of texts or of objects with one, or JSON of these."""
    parsed = _parse(value)
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
    """Read tool calls as we, OpenAI, Anthropic or LangChain write them, or JSON of these."""
    items = _parse(value)
    if not isinstance(items, list | tuple):
        raise InputError(f"{where}: tool_calls must be a list, not {value!r:.60}")
    return tuple(_read_call(item, where) for item in cast("list[Any]", items))


def _read_call(item: Any, where: str) -> ToolUse:
    call = cast("dict[str, Any]", item) if isinstance(item, Mapping) else {}
    if isinstance(call.get("function"), Mapping):
        call = {**call, **call["function"]}
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: a tool call must be an object with a name, not {item!r:.60}")
    arguments = _parse(next(filter(None, map(call.get, ARGUMENT_NAMES)), None))
    if isinstance(arguments, dict):
        known = cast("dict[str, Any]", arguments)
    else:
        known = {} if arguments is None else {"": arguments}
    return ToolUse(name, known, _as_text(call.get("result")), _as_text(call.get("error")))


def _parse(value: object) -> object:
    """Return the array or object that a JSON text holds; other values as they are."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value


def _as_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
