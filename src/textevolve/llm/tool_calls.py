"""Calls of tools as answers bring them: whole, or in the parts of a stream.

Arguments stay the text that the model wrote, also where that is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from textevolve.llm.model import ToolCall


def _as_text(value: object) -> str:
    """Some endpoints send arguments as an object in place of its text."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_Written = Annotated[str, BeforeValidator(_as_text)]


class SentFunction(BaseModel):
    name: _Written = ""
    arguments: _Written = ""


class SentToolCall(BaseModel):
    """A call, or what a chunk of a stream adds to one. `index`: its place among the answer's."""

    index: Annotated[int | None, BeforeValidator(_number)] = None
    id: _Written = ""
    function: SentFunction = SentFunction()


def join_tool_calls(parts: Iterable[SentToolCall]) -> list[SentToolCall]:
    """The calls that a stream's parts make up, by their indexes. Endpoints that give none, or the
    same one to all, are understood by the ids, which only a call's first part has."""
    found: dict[tuple[int, int], SentToolCall] = {}
    latest: dict[int, int] = {}
    last = 0
    for part in parts:
        index = last if part.index is None else part.index
        known = found.get((index, latest.get(index, 0)))
        if known is not None and part.id and known.id and part.id != known.id:
            latest[index] = latest.get(index, 0) + 1
            known = None
        last = index
        found[index, latest.get(index, 0)] = part if known is None else _grown(known, part)
    return [call for _, call in sorted(found.items(), key=lambda one: one[0])]


def _grown(call: SentToolCall, part: SentToolCall) -> SentToolCall:
    before, more = call.function, part.function
    function = SentFunction(
        name=before.name or more.name, arguments=before.arguments + more.arguments
    )
    return SentToolCall(index=call.index, id=call.id or part.id, function=function)


def as_tool_calls(sent: Iterable[SentToolCall]) -> tuple[ToolCall, ...]:
    """The calls as the rooms see them; one without an id is named by its place."""
    return tuple(
        ToolCall(one.id or f"call_{place}", one.function.name, one.function.arguments)
        for place, one in enumerate(sent)
    )


def tool_names(calls: Iterable[ToolCall]) -> str:
    """The functions that are called, as a person reads them."""
    return ", ".join(dict.fromkeys(call.name or "a function without a name" for call in calls))


def as_sent(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """The calls as the protocol's messages and answers have them."""
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]
