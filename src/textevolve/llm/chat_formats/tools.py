"""How an instruction format writes tools: what may be called, calls, and what came of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, cast

from textevolve.errors import InputError
from textevolve.llm.chat_formats.conversation import (
    OnMarker,
    Said,
    as_json,
    break_up,
    find_marker,
    load_arguments,
)
from textevolve.spec import Frozen

_PLACE = re.compile(r"\$(name|arguments|id|content|json)")


class ToolFormat(Frozen):
    """Tools in a format.

    Declarations: `placement` says whether they stand at the end of the system message, at the
    beginning of the first user's turn, or before the last one; None: the format declares none.
    `joint` stands between the system's text and them. `system_mark`: stands before the system's
    preamble where there are tools. `style`: each tool as JSON, or as Mistral's templates spell it.

    Calls: `call` with $name, $arguments and $id; `raw_arguments`: as the model wrote them, and not
    as JSON of one spelling. `text_beside`: whether an answer with calls may have a text, too;
    `text_joint` stands between the two. `assistant_before`: what opens an answer with calls, where
    it is not what opens any other.

    Results: `result` with $content, or $json for the content as a JSON string, and $id; those in a
    row share `results_before` and `results_after`. `answer_before`: what opens an answer to them.
    """

    placement: Literal["system", "first-user", "last-user"] | None = None
    before: str = ""
    separator: str = ""
    after: str = ""
    joint: str = ""
    indent: int | None = None
    style: Literal["json", "mistral"] = "json"
    system_mark: str = ""
    assistant_before: str | None = None
    calls_before: str = ""
    call: str = ""
    calls_separator: str = ""
    calls_after: str = ""
    raw_arguments: bool = False
    text_beside: bool = True
    text_joint: str = ""
    single_call: bool = False
    id_length: int | None = None
    results_before: str = ""
    result: str = ""
    results_separator: str = ""
    results_after: str = ""
    answer_before: str | None = None

    @cached_property
    def marking(self) -> tuple[str, ...]:
        """The texts whose control tokens are markers."""
        calls = (self.assistant_before or "", self.calls_before, self.call, self.calls_after)
        results = (self.results_before, self.result, self.results_after)
        return (*calls, *results, self.answer_before or "", *_edges(self))


def _edges(tools: ToolFormat) -> tuple[str, ...]:
    """The control tokens right around declarations; not those in the prose about them."""
    return (tools.before, tools.after) if tools.style == "mistral" else ()


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template of a call or a result, with its places filled in one pass."""
    return _PLACE.sub(lambda match: values[match[1]], template)


def pieces(template: str) -> list[str]:
    """A template's fixed texts and the names of its places, in turns."""
    return _PLACE.split(template)


def write_tools(
    tools: ToolFormat | None,
    declared: Sequence[Mapping[str, Any]],
    markers: tuple[str, ...],
    on_marker: OnMarker,
) -> str:
    """The declarations of tools.

    Raises:
        InputError: one is no function definition, or holds a marker that is to be refused.
    """
    assert tools is not None  # check_order has refused it otherwise
    for tool in cast(Sequence[Any], declared):
        if not isinstance(tool, Mapping) or not isinstance(
            cast(Mapping[str, Any], tool).get("function"), Mapping
        ):
            wanted = '{"type": "function", "function": {"name": ..., "parameters": ...}}'
            raise InputError(f"a tool must be {wanted}, not {str(cast(object, tool))[:60]!r}")
    written = [_write_tool(tools, tool) for tool in declared]
    if on_marker == "refuse":
        for text in written:
            if found := find_marker(text, markers):
                raise InputError(f"a tool's definition holds {found!r}, a marker: take it out")
    elif on_marker == "neutralise":
        written = [break_up(text, markers) for text in written]
    return tools.before + tools.separator.join(written) + tools.after


def _write_tool(tools: ToolFormat, tool: Mapping[str, Any]) -> str:
    if tools.style == "json":
        return as_json(tool, tools.indent)
    function: Mapping[str, Any] = tool["function"]
    fields = [
        f'"{key}": "{value}"' if isinstance(value, str) else f'"{key}": {as_json(value)}'
        for key, value in function.items()
        if key != "return"
    ]
    return '{"type": "function", "function": {' + ", ".join(fields) + "}}"


def write_calls(tools: ToolFormat, said: Said, before: str, after: str) -> str:
    """An assistant's turn with calls."""
    calls = [
        fill(
            tools.call,
            {
                "name": call.name,
                "arguments": call.arguments
                if tools.raw_arguments
                else as_json(load_arguments(call, said.place)),
                "id": call.id,
            },
        )
        for call in said.calls
    ]
    joint = tools.text_joint if said.text else ""
    written = tools.calls_before + tools.calls_separator.join(calls) + tools.calls_after
    return f"{before}{said.text}{joint}{written}{after}"


def write_results(tools: ToolFormat, said: Sequence[Said]) -> str:
    """What came of calls, for messages of the role "tool" in a row."""
    results = [
        fill(tools.result, {"content": one.text, "json": as_json(one.text), "id": one.answers})
        for one in said
    ]
    return tools.results_before + tools.results_separator.join(results) + tools.results_after
