"""The description of an instruction format, and how conversations are written in it.

Roles with their markers, where the system message goes, the rules of order, trimming, the prompt
for the next answer, tools. One Jinja template (`chat_format.jinja`) renders every description, here
and, written out by `to_jinja`, at a server. What a format cannot express is refused, never dropped
in silence. Formats with names: `catalogue`. Back from text: `parsing`. Read off from a template of
somebody else: `inference`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Literal

from pydantic import Field

from textevolve.errors import InputError
from textevolve.llm.chat_formats.conversation import (
    OnMarker,
    as_json,
    break_up,
    guard,
    read_messages,
)
from textevolve.llm.fence import JOINER
from textevolve.spec import Frozen

CONTROL_TOKEN = re.compile(
    r"<\|[^|\s<>]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<</?\w{1,40}>>|</?[A-Za-z_]\w{0,40}>|\[/?[A-Z_]{2,40}\]"
)
_PLACE = re.compile(r"\$(name|arguments|id|content|json)")

Trim = Literal["none", "both", "left", "right"]


class TurnMarkers(Frozen):
    """A role's markers around its text, and which white space of the text goes."""

    before: str
    after: str
    trim: Trim = "none"


class SystemTurn(TurnMarkers):
    """The system message. `placement`: a turn of its own, a prefix without marker, or inside the
    first or the last turn of the user. `preamble`: stands between `before` and the text of a first
    system message. `default`: its text where the conversation has none; None: nothing is written.
    `later`: system messages may also come later, as turns. `written_empty`: not so if an empty one
    is left out. `joined_trim`: what is trimmed of a user's turn that holds the system text, too."""

    placement: Literal["turn", "prefix", "first-user", "last-user"] = "turn"
    preamble: str = ""
    default: str | None = None
    later: bool = False
    written_empty: bool = True
    joined_trim: Literal["content", "whole", "none"] = "content"

    @property
    def inside(self) -> bool:
        """Whether it is written inside a turn of the user."""
        return self.placement in ("first-user", "last-user")


class Thoughts(Frozen):
    """How thoughts in the text of an assistant are treated: those of earlier answers are dropped
    together with the white space after them that `strip` names; with `wrap` the last answer, if it
    follows the last question, is written with its thoughts, even where it has none. With
    `plain_only` answers that call tools, or answer to them, keep theirs."""

    opening: str = "<think>"
    closing: str = "</think>"
    strip: str = ""
    wrap: bool = False
    plain_only: bool = False


class ToolFormat(Frozen):
    """Tools in a format: what may be called, calls, and their results.

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

    @property
    def marking(self) -> tuple[str, ...]:
        """The texts whose control tokens are markers. Those in the prose around declarations are
        not, since a model may write about them."""
        edges = (self.before, self.after) if self.style == "mistral" else ()
        calls = (self.assistant_before or "", self.calls_before, self.call, self.calls_after)
        results = (self.results_before, self.result, self.results_after)
        return (*edges, *calls, *results, self.answer_before or "")


class ChatFormat(Frozen):
    """An instruction format. `bos`: the text of the token that begins a prompt; `writes_bos` says
    whether it is written, or left to the tokenizer. `separator`: between turns. `generation`: what
    asks for the next answer; `ending`: what ends a text that asks for none. `alternate`: user and
    assistant take turns, the user first. `stop`: texts at which an answer ends."""

    name: str
    title: str
    user: TurnMarkers
    assistant: TurnMarkers
    system: SystemTurn | None = None
    bos: str = ""
    writes_bos: bool = False
    eos: str = ""
    separator: str = ""
    generation: str = ""
    generation_after_assistant: bool = True
    ending: str = ""
    alternate: bool = False
    stop: tuple[str, ...] = ()
    thoughts: Thoughts | None = None
    tools: ToolFormat | None = None
    more_markers: tuple[str, ...] = ()
    differences: tuple[str, ...] = Field(
        default=(), description="What published templates of the family do otherwise, in sentences."
    )

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Every text by which a change of speaker could be forged: control tokens, and the words
        that stand in their place where the format has none."""
        turns = [self.user, self.assistant, *([self.system] if self.system else [])]
        texts = [text for turn in turns for text in (turn.before, turn.after)]
        texts += [self.bos, self.eos, self.generation, self.ending, *self.stop]
        texts += self.tools.marking if self.tools is not None else ()
        openings = {turn.before for turn in turns}
        markers: list[str] = []
        for text in texts:
            tokens = CONTROL_TOKEN.findall(text)
            markers += tokens or ([text.strip()] if text in openings and text.strip() else [])
        return tuple(dict.fromkeys([*markers, *self.more_markers]))

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The description as `chat_format.jinja` takes it: calls and results as the fixed texts and
        the names of their places, in turns; nothing where there is nothing."""
        plain = self.model_dump(exclude_none=True, exclude={"title", "differences", "more_markers"})
        for field in ("call", "result"):
            if self.tools is not None:
                written = plain["tools"][field]
                plain["tools"][field] = pieces(written) if written else []
        return plain


def changed(format: ChatFormat, **fields: Any) -> ChatFormat:
    """The format with other values of some fields."""
    return ChatFormat(**{name: getattr(format, name) for name in ChatFormat.model_fields} | fields)


def pieces(template: str) -> list[str]:
    """The fixed texts of a call or a result and the names of its places, in turns."""
    return _PLACE.split(template)


def render_chat(
    format: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    on_marker: OnMarker = "neutralise",
) -> str:
    """The conversation in a format, as a prompt.

    `messages`: those of the chat protocol; `tools`: its function definitions. `on_marker`: what
    becomes of a marker of the format inside a text; with "keep" the result is byte-equal to the
    published template, whoever wrote the marker.

    Raises:
        InputError: the format cannot express the conversation; says what to do.
    """
    talk = read_messages(messages)
    declared = [_check_tool(tool) for tool in tools or ()]
    for place, message in enumerate(talk, 1):
        for call in message.get("tool_calls", ()):
            if format.tools is not None and not format.tools.raw_arguments:
                call["function"]["arguments"] = _one_spelling(call["function"], place)
    if on_marker == "neutralise":
        for place, message in enumerate(talk, 1):
            _break_up_markers(message, format.markers, place)
        declared = [json.loads(break_up(as_json(tool), format.markers)) for tool in declared]
        _set_apart(format, talk if declared else ())
    return _compiled()(
        f=format.plain, messages=talk, tools=declared, add_generation_prompt=add_generation_prompt
    )


def _break_up_markers(message: dict[str, Any], markers: tuple[str, ...], place: int) -> None:
    for field in ("content", "reasoning_content", "tool_call_id"):
        if message.get(field):
            message[field] = guard(message[field], markers, place)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        function["arguments"] = guard(function["arguments"], markers, place)


def _one_spelling(function: Mapping[str, str], place: int) -> str:
    """The arguments of a call as JSON of one spelling.

    Raises:
        InputError: they are not JSON.
    """
    try:
        return as_json(json.loads(function["arguments"]))
    except ValueError as error:
        raise InputError(
            f"message {place}: the arguments of {function['name']} are not JSON ({error}): mend"
            " them, or leave the call out"
        ) from error


def _check_tool(tool: Any) -> Any:
    match tool:
        case {"function": {}}:
            return tool
        case _:
            form = '{"type": "function", "function": {"name": ..., "parameters": ...}}'
            raise InputError(f"a tool must be {form}, not {str(tool)[:60]!r}")


_LIKE_A_TOOL = re.compile(rf"\s*{JOINER}*{{")


def _set_apart(format: ChatFormat, talk: Sequence[dict[str, Any]]) -> None:
    """Put a joiner before a question that could pass for one more declaration, where nothing but
    its place tells it from the declarations before it."""
    if format.tools is not None and format.tools.placement == "first-user":
        first = next((message for message in talk if message["role"] == "user"), {"content": ""})
        if _LIKE_A_TOOL.match(first["content"]):
            first["content"] = JOINER + first["content"].lstrip()


def to_jinja(format: ChatFormat) -> str:
    """The source of a Jinja chat template that renders what `render_chat` renders with markers kept
    and refuses what it refuses. Breaking up markers inside texts is beyond a template."""
    return f"{{%- set f = {as_json(format.plain)} -%}}\n{_source()}"


@lru_cache(maxsize=1)
def _source() -> str:
    return resources.files(__package__ or "").joinpath("chat_format.jinja").read_text("utf-8")


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., str]:
    import jinja2

    environment = jinja2.Environment(autoescape=False)  # plain text: escaping would alter it
    environment.filters["tojson"] = as_json
    names: dict[str, Any] = environment.globals
    names["raise_exception"] = _refuse
    return environment.from_string(_source()).render


def _refuse(reason: str) -> None:
    raise InputError(reason)


def closing_of(format: ChatFormat, last: str, add_generation_prompt: bool) -> str:
    """Return the end of a text after a message of the role `last`."""
    if not add_generation_prompt:
        return format.ending
    if last == "tool" and format.tools is not None and format.tools.answer_before is not None:
        return format.tools.answer_before
    return (
        "" if last == "assistant" and not format.generation_after_assistant else format.generation
    )
