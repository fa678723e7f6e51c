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
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Literal, NamedTuple, cast

from pydantic import Field

from textevolve.errors import InputError
from textevolve.llm.fence import JOINER, literal_pattern
from textevolve.spec import Frozen

Messages = Sequence[Mapping[str, Any]]
"""Messages of the chat protocol."""


@dataclass(frozen=True, slots=True)
class PromptFormat:
    """`render`: the text of messages whose markers have been broken up, ready for the next answer,
    without the token that begins a text, which servers add. `stop`: where an answer ends.
    `markers`: what no message may hold."""

    name: str
    render: Callable[[Messages], str]
    stop: tuple[str, ...]
    markers: tuple[str, ...]

    def count_markers(self, messages: Messages) -> int:
        """How many markers the texts of the messages hold, which rendering breaks up."""
        if not self.markers:
            return 0
        ordered = sorted(self.markers, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, ordered)))
        return sum(len(pattern.findall(str(message.get("content") or ""))) for message in messages)


OnMarker = Literal["neutralise", "keep"]
"""The handling of a marker of the format inside a text: it is broken up (`unbreak` undoes
it), or it stays and a server may read it as a change of speaker."""

ROLES = ("system", "user", "assistant", "tool")
_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class ChatFile(NamedTuple):
    """`tools`: the function definitions that came with the messages, or None."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None


def read_conversation(text: str, name: str) -> ChatFile:
    """Read a list of messages, or an object with `messages` and perhaps `tools`, from JSON.

    Raises:
        InputError: the text is not JSON, or holds no messages; `name` is what it is called there.
    """
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: not JSON: {error}") from error
    parts = cast("dict[str, Any]", body if isinstance(body, dict) else {"messages": body})
    for part in ("messages", "tools"):
        items = parts.get(part)
        listed = cast("list[Any]", items) if isinstance(items, list) else []
        if (part == "messages" or items is not None) and not (
            listed and all(isinstance(item, dict) for item in listed)
        ):
            raise InputError(
                f"{name}: the {part} must be a list of JSON objects, with one at least"
            )
    return ChatFile(parts["messages"], parts.get("tools"))


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check messages of the protocol, and reduce each to the fields that a format can write.

    Raises:
        InputError: there is none, or one that no text format can hold; says which and why.
    """
    if not messages:
        raise InputError("there are no messages to render: give at least one")
    if any(not isinstance(message, Mapping) for message in cast(Sequence[object], messages)):
        raise InputError('messages must be a list of {"role": ..., "content": ...}')
    return [_read(message, place) for place, message in enumerate(messages, 1)]


def _read(message: Mapping[str, Any], place: int) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise InputError(f"message {place}: role must be one of {', '.join(ROLES)}, not {role!r}")
    unknown = [key for key in message if key not in _FIELDS and message[key] is not None]
    if unknown:
        raise InputError(f"message {place}: no format writes '{unknown[0]}': leave it out")
    if message.get("name") and role != "tool":
        raise InputError(f"message {place}: no format writes names: put the name into the content")
    calls = [_read_call(call, place) for call in message.get("tool_calls") or ()]
    if calls and role != "assistant":
        raise InputError(f"message {place}: only an assistant calls tools, not the {role}")
    text = _read_text(message.get("content"), place, bool(calls))
    thought = str(message.get("reasoning_content") or "")
    return make_message(role, text, calls, str(message.get("tool_call_id") or ""), thought)


def make_message(
    role: str,
    text: str,
    calls: Sequence[dict[str, Any]] = (),
    answers: str = "",
    thought: str = "",
) -> dict[str, Any]:
    """Return a message of the protocol with only the fields that hold something."""
    more = {"reasoning_content": thought, "tool_calls": list(calls), "tool_call_id": answers}
    return {"role": role, "content": text} | {key: value for key, value in more.items() if value}


def make_call(name: str, arguments: str, id: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**({"id": id} if id else {}), "type": "function", "function": function}


def _read_text(content: Any, place: int, may_be_absent: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and may_be_absent:
        return ""
    if not isinstance(content, list):
        kind = type(content).__name__
        raise InputError(f"message {place}: content must be a text, not {kind}")
    texts: list[str] = []
    for part in cast("list[Any]", content):
        match part:
            case {"type": "text", "text": text}:
                texts.append(str(text))
            case _:
                raise InputError(
                    f"message {place}: only texts can be written, not images: leave them out"
                )
    return "".join(texts)


def _read_call(call: Any, place: int) -> dict[str, Any]:
    match call:
        case {"function": {"name": str(name), **function}} if _TOOL_NAME.fullmatch(name):
            arguments = function.get("arguments", "{}")
            written = arguments if isinstance(arguments, str) else as_json(arguments)
            return make_call(name, written, str(call.get("id") or ""))
        case {"function": {"name": name}}:
            raise InputError(
                f"message {place}: {name!r} cannot be a tool's name: letters, digits, _ -"
            )
        case _:
            raise InputError(
                f"message {place}: a tool call needs a function with name and arguments"
            )


def as_json(value: Any, indent: int | None = None) -> str:
    """Return JSON as the `tojson` of published templates writes it."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


@lru_cache(maxsize=256)
def _loose(markers: tuple[str, ...]) -> re.Pattern[str]:
    """Match the markers with any number of joiners after the first character."""
    ordered = sorted(markers, key=len, reverse=True)
    return re.compile("|".join(f"{re.escape(m[0])}{JOINER}*{re.escape(m[1:])}" for m in ordered))


def find_marker(text: str, markers: tuple[str, ...]) -> str | None:
    """Return the first marker that stands in a text."""
    match = literal_pattern(markers).search(text) if markers else None
    return match[0] if match else None


def break_up(text: str, markers: tuple[str, ...]) -> str:
    """Put a joiner (U+2060) after the first character of each marker; one more where there are some
    already. Time is linear in the text."""
    # Nearly no text holds a marker's end, and a pattern costs a hundred times this look.
    if not any(marker[1:] in text for marker in markers):
        return text
    return _loose(markers).sub(lambda match: match[0][0] + JOINER + match[0][1:], text)


def unbreak(text: str, markers: tuple[str, ...]) -> str:
    """Undo `break_up`."""
    if not markers or JOINER not in text:
        return text
    return _loose(markers).sub(lambda m: m[0][0] + m[0][2:] if m[0][1:2] == JOINER else m[0], text)


def guard(text: str, markers: tuple[str, ...], place: int) -> str:
    """Break up the markers in a text of a message.

    Raises:
        InputError: one is a single character, and cannot be broken up.
    """
    for marker in markers:
        if len(marker) == 1 and marker in text:
            raise InputError(
                f"message {place} holds {marker!r}, which the format has for a marker and which"
                " cannot be broken up: take it out"
            )
    return break_up(text, markers)


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
