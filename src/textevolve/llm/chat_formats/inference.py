"""The description of an unknown instruction format, read off from what its template renders.

Probes with texts that nobody writes show the markers around them. What they leave open (trimming,
empty messages, thoughts, tools) is chosen by a fixed list of conversations that template and
description both render; on which of them the two are equal is said with the description.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    SystemTurn,
    Thoughts,
    Trim,
    TurnMarkers,
    changed,
    render_chat,
)
from textevolve.llm.chat_formats.conversation import find_marker

Render = Callable[..., str]
"""Renders `(messages, tools=None, add_generation_prompt=False)`, or raises where it refuses to."""

_SYSTEM, _LATER = "Zqsys", "Zqlater"
_TURNS = ("Zqua", "Zqaa", "Zqub", "Zqab", "Zquc")
_KNOWN_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<BOS_TOKEN>", "<｜begin▁of▁sentence｜>")
_WHOLE = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]+\]|\w+")
_CUTS_TRIED = 12


@dataclass(frozen=True, slots=True)
class SampleChat:
    """Messages of the chat protocol. `prompt`: whether they end with the prompt for an answer."""

    messages: tuple[Mapping[str, Any], ...]
    prompt: bool
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RenderDifference:
    """A conversation that is written in two ways. `expected`: by the template; None: it refuses.
    `got`: by the description; None: it refuses, so that nothing wrong is written."""

    conversation: SampleChat
    expected: str | None
    got: str | None


@dataclass(frozen=True, slots=True)
class Inference:
    """The description, with those of the `conversations` that it does not write as the template
    does. `faithful`: all that it writes is equal; the rest it refuses."""

    format: ChatFormat
    conversations: int
    differences: tuple[RenderDifference, ...]

    @property
    def faithful(self) -> bool:
        return all(difference.got is None for difference in self.differences)


@dataclass(slots=True)
class _Template:
    """A template, asked each thing once. `no_tools`: what it takes for none."""

    render: Render
    answers: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    error: str = ""
    no_tools: list[Any] | None = None

    def ask(
        self, messages: Sequence[Mapping[str, Any]], prompt: bool = False, tools: Any = None
    ) -> str | None:
        key = repr((messages, prompt, tools))
        if key not in self.answers:
            self.answers[key] = None
            try:
                text: Any = self.render(
                    [dict(message) for message in messages],
                    tools=list(tools) if tools else self.no_tools,
                    add_generation_prompt=prompt,
                )
            except Exception as error:  # noqa: BLE001  a stranger's template may raise anything
                self.error = str(error) or type(error).__name__
            else:
                self.error = "" if isinstance(text, str) else "what it renders is no text"
                self.answers[key] = text if isinstance(text, str) else None
        return self.answers[key]


def infer_format(
    render: Render, *, name: str = "inferred", bos: str = "", eos: str = ""
) -> Inference:
    """The description of the format that `render` writes, and where the two differ.

    An error of `render`, of any kind, counts as refused. `bos`, `eos`: the tokens that the template
    was given, if any.

    Raises:
        InputError: not even a message of the user is rendered so that it can be found in the text.
    """
    template = _Template(render)
    formats: list[tuple[int, ChatFormat]] = []
    for fields in _read_turns(template):
        format = ChatFormat(name=name, title="read off from a template", eos=eos, **fields)
        format = _refine(template, _with_system(template, format, bos))
        formats.append((_count_wrong(template, format), format))
        if not formats[-1][0]:
            break
    format = _with_tools(template, min(formats, key=lambda pair: pair[0])[1])
    marker = find_marker(format.assistant.after, format.markers)
    format = changed(format, stop=tuple(dict.fromkeys(filter(None, (marker, eos)))))
    raw = format.tools is not None and format.tools.raw_arguments
    talks = (*CONVERSATIONS, *_tool_talks(raw))
    return Inference(format, len(talks), tuple(_find_differences(template, format, talks)))


def _talk(*texts: str, system: str | None = None) -> tuple[dict[str, Any], ...]:
    """User and assistant take turns."""
    head = () if system is None else ({"role": "system", "content": system},)
    roles = ("user", "assistant")
    return (*head, *({"role": roles[n % 2], "content": text} for n, text in enumerate(texts)))


_PLAIN = ("What is a tide?", "The sea rises.", "Why?", "The moon.", "Thanks.")
_SPACED = (("  x \n", "Ha", " z\n"), ("Hi", "\n\ny \n", "Why?"))
_EMPTY = (("", "Ha"), ("Hi", "", "Why?"))
_THOUGHT = ("Hi", "<think>t</think>\n\nz", "Why?", "<think>\nu\n</think>\nBecause.")
_KIND = "Be kind."
_TOOLS = tuple(
    {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": {"type": "object"}},
    }
    for name, text in (("look_up", "Looks é up"), ("count2", "Counts"))
)


def _tool_talks(raw: bool) -> Iterator[SampleChat]:
    """Declarations, a call and its result; `raw`: with the arguments as JSON."""
    arguments = {"a": "é"}
    call = {"name": "look_up", "arguments": '{"a": "é"}' if raw else arguments}
    calls = [{"id": "Zq1234567", "type": "function", "function": call}]
    asked = {"role": "assistant", "content": "", "tool_calls": calls}
    result = {"role": "tool", "content": "r", "tool_call_id": "Zq1234567"}
    for system in (None, _KIND):
        used = (*_talk(_PLAIN[0], system=system), asked, result)
        yield SampleChat(_talk(_PLAIN[0], system=system), True, _TOOLS)
        yield SampleChat(used, True, _TOOLS)
        yield SampleChat((*used, {"role": "assistant", "content": "Done."}), False)


CONVERSATIONS = (
    *(
        SampleChat(_talk(*texts, system=system), len(texts) % 2 == 1)
        for texts in (_PLAIN[:1], _PLAIN[:2], _PLAIN, *_SPACED)
        for system in (None, _KIND, " s \n")
    ),
    *(
        SampleChat(_talk(*texts, system=system), len(texts) % 2 == 1)
        for texts in (*_EMPTY, _THOUGHT[:2], _THOUGHT[:3], _THOUGHT)
        for system in (None, "")
    ),
    SampleChat(_talk(*_PLAIN[:2]), True),
    SampleChat(_talk(_PLAIN[0]), False),
    SampleChat((*_talk("Hi"), *_talk("Why?")), True),
    SampleChat((*_talk("Hi", "Ha"), *_talk("Why?", system=_KIND)), True),
)
"""What a description is chosen by; it is compared on these, and on conversations with tools."""


def _find_differences(
    template: _Template, format: ChatFormat, conversations: Sequence[SampleChat]
) -> Iterator[RenderDifference]:
    for talk in conversations:
        expected = template.ask(talk.messages, talk.prompt, talk.tools or None)
        try:
            got = render_chat(
                format,
                talk.messages,
                tools=talk.tools or None,
                add_generation_prompt=talk.prompt,
                on_marker="keep",
            )
        except InputError:
            got = None
        if expected != got:
            yield RenderDifference(talk, expected, got)


def _count_wrong(template: _Template, format: ChatFormat, enough: float = float("inf")) -> int:
    """How wrong a format is: what is written otherwise counts more than what is refused without
    need. Nothing is counted beyond `enough`."""
    wrong = 0
    for difference in _find_differences(template, format, CONVERSATIONS):
        wrong += 1 if difference.got is None else 100
        if wrong >= enough:
            break
    return wrong


def _around(text: str | None, sentinels: Sequence[str]) -> list[str] | None:
    """The texts before, between and after the sentinels, if each is there once, in order."""
    if text is None:
        return None
    parts: list[str] = []
    for sentinel in sentinels:
        before, sign, text = text.partition(sentinel)
        if not sign or sentinel in text:
            return None
        parts.append(before)
    return [*parts, text]


def _read_turns(template: _Template) -> Iterator[dict[str, Any]]:
    """The fields of formats whose user and assistant are surrounded so; the likeliest first."""
    if template.ask(_talk(_TURNS[0])) is None:
        template.answers.clear()
        template.no_tools = []  # some templates bear an empty list alone
    alone = _around(template.ask(_talk(_TURNS[0])), _TURNS[:1])
    if alone is None:
        reason = template.error or "its text is not in what is rendered"
        raise InputError(f"the template does not render a message of the user: {reason}")
    prompted = _around(template.ask(_talk(_TURNS[0]), True), _TURNS[:1])
    between = _around(template.ask(_talk(*_TURNS)), _TURNS)
    answered = _around(template.ask(_talk(*_TURNS[:2])), _TURNS[:2])
    if prompted is None or between is None or answered is None:
        reason = template.error or "texts are not rendered once each, in order"
        raise InputError(f"the template does not render a talk of user and assistant: {reason}")
    tried = 0
    for end in _cut(between[1], alone[1], prompted[1]):
        fields = _fields_of_turns(end, alone, prompted[1], answered[2], between)
        if fields is not None and tried < _CUTS_TRIED:
            tried += 1
            yield fields
    if not tried:
        raise InputError("the template's markers follow no rule that a format here can have")


def _count_common(*texts: str) -> int:
    """How many characters all texts begin with."""
    letters = zip(*texts, strict=False)
    different = (n for n, letter in enumerate(letters) if len(set(letter)) > 1)
    return next(different, min(map(len, texts)))


def _cut(*texts: str) -> Iterator[str]:
    """Common beginnings of texts that end inside no token and no word, the longest first."""
    for cut in range(_count_common(*texts), -1, -1):
        tokens = (token for text in texts for token in _WHOLE.finditer(text))
        if not any(token.start() < cut < token.end() for token in tokens):
            yield texts[0][:cut]


def _fields_of_turns(
    end: str, alone: Sequence[str], prompted: str, answered: str, between: Sequence[str]
) -> dict[str, Any] | None:
    """A format's fields, if the user's turn ends so; None if that contradicts itself. Between a
    question and its answer stand the user's end, a separator and the assistant's beginning."""
    to_answer, to_question = between[1], between[2]
    ending = alone[1][len(end) :]
    answer_end = answered[: len(answered) - len(ending)]
    if not answered.endswith(ending) or not to_question.startswith(answer_end):
        return None
    opening, head = to_question[len(answer_end) :], alone[0]
    shared = len(opening) - _count_common(opening[::-1], head[::-1])
    separator, begin = opening[:shared], opening[shared:]
    if not to_answer[len(end) :].startswith(separator):
        return None
    return {
        "user": TurnMarkers(before=begin, after=end),
        "assistant": TurnMarkers(before=to_answer[len(end) + len(separator) :], after=answer_end),
        "separator": separator,
        "generation": prompted[len(end) :],
        "ending": ending,
        "bos": head[: len(head) - len(begin)],
    }


def _with_system(template: _Template, format: ChatFormat, bos: str) -> ChatFormat:
    """The format with its system message; without one where the template drops it, or writes it
    where no format here has it."""
    head, user = format.bos, format.user.before
    plain = changed(format, bos=head or bos, writes_bos=bool(head))
    text = template.ask(_talk(*_TURNS[:3], system=_SYSTEM))
    around = _around(template.ask(_talk(_TURNS[0], system=_SYSTEM)), (_SYSTEM, _TURNS[0]))
    if text is None or around is None or _SYSTEM not in text:
        return plain
    last = text.find(_SYSTEM) > text.find(_TURNS[0])
    if not last and user and around[1].endswith(format.separator + user):
        return _with_own_turn(template, format, bos, around)
    if not around[0].startswith(head + user):
        return plain
    placement = "last-user" if last else "first-user"
    before = around[0][len(head + user) :]
    return changed(plain, system=SystemTurn(before=before, after=around[1], placement=placement))


def _with_own_turn(
    template: _Template, format: ChatFormat, bos: str, around: Sequence[str]
) -> ChatFormat:
    """A system message that is a turn, or a prefix: `around` is what stands before and after it.
    What a text without one begins with is a default text, or stands in its place."""
    head, default, absent = format.bos, None, ""
    start = head + format.user.before
    known = [token for token in (bos, *_KNOWN_BOS) if token]
    after = around[1].removesuffix(format.separator + format.user.before)
    if start.startswith(around[0]) and start[len(around[0]) :].endswith(around[1]):
        default = start[len(around[0]) : len(start) - len(around[1])]
        head = next((token for token in known if around[0].startswith(token)), "")
    elif not around[0].startswith(head):
        token = next((token for token in known if head.startswith(token)), "")
        token = token if around[0].startswith(token) else ""
        head, absent = token, head.removeprefix(token)
    before, preamble, later = around[0][len(head) :], "", False
    talk = (*_talk(*_TURNS[:2], system=_SYSTEM), *_talk(_TURNS[2], system=_LATER))
    second = _around(template.ask(talk), [message["content"] for message in talk])
    opening = format.assistant.after + format.separator
    if second is not None and second[3].startswith(opening):
        short = second[3][len(opening) :]  # a later one has no preamble
        if before.startswith(short) and (short or not before):
            before, preamble, later = short, before[len(short) :], True
    system = SystemTurn(
        before=before,
        after=after,
        preamble=preamble,
        later=later,
        placement="turn" if before.strip() else "prefix",
        default=default if before or after or format.separator else None,
        absent=absent,
    )
    return changed(format, bos=head or bos, writes_bos=bool(head), system=system)


def _vary(format: ChatFormat) -> Iterator[ChatFormat]:
    """What else the format could be, as far as the markers do not say."""
    trims: tuple[Trim, ...] = ("none", "both", "left", "right")
    for name in ("user", "assistant", *(["system"] if format.system else [])):
        for trim in trims:
            yield changed(format, **{name: getattr(format, name).model_copy(update={"trim": trim})})
    if system := format.system:
        for joined in ("content", "whole", "none"):
            yield changed(format, system=system.model_copy(update={"joined_trim": joined}))
        written = {"written_empty": not system.written_empty}
        yield changed(format, system=system.model_copy(update=written))
    yield changed(format, generation_after_assistant=not format.generation_after_assistant)
    for strip in ("", "\n", " \t\r\n"):
        for wrap in (False, True):
            yield changed(format, thoughts=Thoughts(strip=strip, wrap=wrap))


def _narrow(format: ChatFormat) -> Iterator[ChatFormat]:
    """The format with less that it accepts."""
    yield changed(format, alternate=True)
    if format.system:
        yield changed(format, system=format.system.model_copy(update={"later": False}))
        yield changed(format, system=None)


def _refine(template: _Template, format: ChatFormat) -> ChatFormat:
    """The variation that the fewest conversations contradict, step by step; what is accepted is
    given up last, and of that as little as possible."""
    least = _count_wrong(template, format)
    for variations in (_vary, _narrow, _vary):
        better: ChatFormat | None = format
        while least and better is not None:
            better = None
            for other in variations(format):
                wrong = _count_wrong(template, other, least)
                if wrong < least:
                    better, least = other, wrong
            format = better or format
    return format


def _with_tools(template: _Template, format: ChatFormat) -> ChatFormat:
    """The format with the known way of writing tools that the template follows, if any."""
    known = {repr(one.tools): one.tools for one in CHAT_FORMATS.values() if one.tools is not None}
    for tools in known.values():
        other = changed(format, tools=tools)
        talks = list(_tool_talks(tools.raw_arguments))
        written = [template.ask(talk.messages, talk.prompt, talk.tools) for talk in talks]
        if not any("look_up" in (text or "") for text in written):
            continue
        if all(one.got is None for one in _find_differences(template, other, talks)):
            return other
    return format
