"""The description of an unknown instruction format, found out from what its template renders.

Probes with texts that nobody writes show the markers around them; what probes leave open (trimming,
empty messages, thoughts, tools) is chosen by how many probes come out alike. Then other
conversations are rendered by both sides: the description is proved, or the differences are shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
)
from textevolve.llm.chat_formats.conversation import find_marker
from textevolve.llm.chat_formats.proving import (
    TOOLS,
    RenderDifference,
    TalkExample,
    TemplateProbe,
    accepts,
    count_wrong,
    example_talks,
    find_difference,
    one_message,
    tool_talks,
)

Render = Callable[..., str]
"""Renders `(messages, tools=None, add_generation_prompt=False)`, or raises where it refuses to."""

_SYSTEM, _USERS, _ASSISTANTS = "Zqsys", ("Zqua", "Zqub", "Zquc"), ("Zqaa", "Zqab")
_LATER = "Zqlater"
_KNOWN_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<BOS_TOKEN>", "<｜begin▁of▁sentence｜>")
_WHOLE = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]+\]|\w+")
_ELSEWHERE = "The system message stands where no format here has it: it is refused."
_CANDIDATES = 12
TRAINED, PROVED = 40, 60
"""How many conversations a description is chosen by, and how many others prove it; each is rendered
with the prompt for an answer and without."""


@dataclass(frozen=True, slots=True)
class Inference:
    """What was found out. `proved`: of the `conversations` rendered by both sides, all `accepted`
    by the description came out byte-equal, and what the template refuses it refuses. `refused`:
    what the template renders, but the description cannot express. `notes`: what is odd about the
    template, in sentences."""

    format: ChatFormat
    proved: bool
    conversations: int
    accepted: int
    differences: tuple[RenderDifference, ...]
    refused: tuple[RenderDifference, ...]
    notes: tuple[str, ...]


def infer_format(
    render: Render, *, name: str = "inferred", bos: str = "", eos: str = ""
) -> Inference:
    """The description of the format that `render` writes, with the proof of it.

    An error of `render`, of any kind, counts as refused. `bos`, `eos`: the tokens that the template
    was given, if any.

    Raises:
        InputError: not even a message of the user is rendered so that it can be found in the text.
    """
    probe = TemplateProbe(render)
    notes: list[str] = []
    turns = _infer_turns(probe)
    if probe.without is not None:
        notes.append("The template fails where there is no list of tools, be it an empty one.")
    training = example_talks(0, TRAINED)
    best: ChatFormat | None = None
    least = -1
    for user, assistant, more in turns:
        found = _with_system(probe, user, assistant, more, bos, notes)
        made = ChatFormat(name=name, title="found out from a template", eos=eos, **found)
        made = _refined(probe, made, training)
        wrong = count_wrong(probe, made, training)
        if best is None or wrong < least:
            best, least = made, wrong
        if not wrong:
            break
    assert best is not None  # _infer_turns raises where it finds none
    best = _with_tools(probe, best, notes)
    best = changed(best, stop=_stops(best))
    if best.user.before + best.assistant.after == best.assistant.before + best.user.after:
        notes.append("Nothing in the text tells who speaks.")
    return _prove(probe, best, tuple(dict.fromkeys(notes)))


def _talk(turns: int) -> list[dict[str, str]]:
    """The first turns of a conversation without a system message."""
    said = [one_message("user", _USERS[0]), one_message("assistant", _ASSISTANTS[0])]
    said += [
        one_message("user", _USERS[1]),
        one_message("assistant", _ASSISTANTS[1]),
        one_message("user", _USERS[2]),
    ]
    return said[:turns]


def _around(text: str | None, sentinels: Sequence[str]) -> list[str] | None:
    """The texts before, between and after the sentinels, if each is there once, in order."""
    if text is None:
        return None
    parts: list[str] = []
    for sentinel in sentinels:
        before, found, text = text.partition(sentinel)
        if not found or sentinel in text:
            return None
        parts.append(before)
    return [*parts, text]


def _infer_turns(probe: TemplateProbe) -> list[tuple[TurnMarkers, TurnMarkers, dict[str, Any]]]:
    """What user and assistant may be surrounded by; the likeliest first."""
    if probe.ask(_talk(1)) is None:
        probe.answers.clear()
        probe.without = []
    alone = _around(probe.ask(_talk(1)), _USERS[:1])
    if alone is None:
        why = probe.error or "its text is not in what is rendered"
        raise InputError(f"the template does not render a message of the user: {why}")
    asked = _around(probe.ask(_talk(1), True), _USERS[:1])
    contents = [one["content"] for one in _talk(5)]
    between = _around(probe.ask(_talk(5)), contents)
    answered = _around(probe.ask(_talk(2)), contents[:2])
    if asked is None or between is None or answered is None:
        why = probe.error or "texts are not rendered once each, in order"
        raise InputError(f"the template does not render a talk of user and assistant: {why}")
    # Between a question and its answer: the user's end, a separator, the assistant's beginning.
    to_answer, to_question = between[1], between[2]
    found = [
        made
        for end in _cuts(to_answer, alone[1], asked[1])
        if (made := _turns_cut(end, alone, asked, answered, to_answer, to_question)) is not None
    ]
    if not found:
        raise InputError("the template's markers follow no rule that a format here can have")
    return found[:_CANDIDATES]


def _cuts(*texts: str) -> Iterator[str]:
    """Common beginnings of texts that end inside no token and no word, the longest first."""
    common = 0
    while all(common < len(text) and text[common] == texts[0][common] for text in texts):
        common += 1
    for cut in range(common, -1, -1):
        inside = any(
            match.start() < cut < match.end() for text in texts for match in _WHOLE.finditer(text)
        )
        if not inside:
            yield texts[0][:cut]


def _turns_cut(
    end: str,
    alone: Sequence[str],
    asked: Sequence[str],
    answered: Sequence[str],
    to_answer: str,
    to_question: str,
) -> tuple[TurnMarkers, TurnMarkers, dict[str, Any]] | None:
    """The turns, if the user's ends so; None if that contradicts itself."""
    ending = alone[1][len(end) :]
    if not answered[2].endswith(ending):
        return None
    answer_end = answered[2][: len(answered[2]) - len(ending)]
    if not to_question.startswith(answer_end):
        return None
    opening = to_question[len(answer_end) :]
    shared = 0
    while (
        shared < min(len(opening), len(alone[0])) and opening[-1 - shared] == alone[0][-1 - shared]
    ):
        shared += 1
    begin, separator = opening[len(opening) - shared :], opening[: len(opening) - shared]
    if not to_answer[len(end) :].startswith(separator):
        return None
    more = {
        "separator": separator,
        "generation": asked[1][len(end) :],
        "ending": ending,
        "head": alone[0][: len(alone[0]) - len(begin)],
    }
    answer_begin = to_answer[len(end) + len(separator) :]
    return (
        TurnMarkers(before=begin, after=end),
        TurnMarkers(before=answer_begin, after=answer_end),
        more,
    )


def _with_system(
    probe: TemplateProbe,
    user: TurnMarkers,
    assistant: TurnMarkers,
    more: dict[str, Any],
    bos: str,
    notes: list[str],
) -> dict[str, Any]:
    """The fields of a format, with the system message if there is one."""
    more = dict(more)
    head: str = more.pop("head")
    fields = {"user": user, "assistant": assistant, **more}
    plain = {**fields, "bos": head or bos, "writes_bos": bool(head)}
    text = probe.ask([one_message("system", _SYSTEM), *_talk(3)])
    if text is None:
        return plain
    if _SYSTEM not in text:
        notes.append("The template drops the system message in silence.")
        return plain
    last = text.find(_SYSTEM) > text.find(_USERS[0])
    around = _around(probe.ask([one_message("system", _SYSTEM), *_talk(1)]), (_SYSTEM, _USERS[0]))
    if around is None:
        notes.append("The system message is not written where it can be told apart.")
        return plain
    if last or not around[1].endswith(more["separator"] + user.before) or not user.before:
        if not around[0].startswith(head + user.before):
            notes.append(_ELSEWHERE)
            return plain
        system = SystemTurn(
            before=around[0][len(head + user.before) :],
            after=around[1],
            placement="last-user" if last else "first-user",
        )
        return {**plain, "system": system}
    return plain | _own_turn(probe, fields, (head, bos), around)


def _own_turn(
    probe: TemplateProbe,
    fields: Mapping[str, Any],
    tokens: tuple[str, str],
    around: Sequence[str],
) -> dict[str, Any]:
    """The fields of a format whose system message is a turn, or a prefix. `tokens`: what a text
    without it begins with, and the BOS token that the template was given; `around`: what stands
    before and after its text."""
    head, bos = tokens
    start, default, absent = head + fields["user"].before, None, ""
    known = (bos, *_KNOWN_BOS)
    after = around[1].removesuffix(fields["separator"] + fields["user"].before)
    if start.startswith(around[0]) and start[len(around[0]) :].endswith(around[1]):
        default = start[len(around[0]) : len(start) - len(around[1])]
        head = next((one for one in known if one and around[0].startswith(one)), "")
    elif not around[0].startswith(head):
        token = next((one for one in known if one and head.startswith(one)), "")
        token = token if around[0].startswith(token) else ""
        head, absent = token, head.removeprefix(token)
    before = around[0][len(head) :]
    if not (before or after or fields["separator"]):
        default = None
    system = _system_turn(probe, before, after, fields)
    system = _other(system, default=default, absent=absent)
    return {"bos": head or bos, "writes_bos": bool(head), "system": system}


def _system_turn(
    probe: TemplateProbe, before: str, after: str, fields: Mapping[str, Any]
) -> SystemTurn:
    """A system message of its own; its preamble is what a later one does not have."""
    talk = [
        one_message("system", _SYSTEM),
        *_talk(2),
        one_message("system", _LATER),
        one_message("user", _USERS[1]),
    ]
    around = _around(probe.ask(talk), [one["content"] for one in talk])
    preamble, later = "", False
    opening = fields["assistant"].after + fields["separator"]
    if around is not None and around[3].startswith(opening):
        short = around[3][len(opening) :]
        if before.startswith(short) and (short or not before):
            before, preamble, later = short, before[len(short) :], True
    return SystemTurn(
        before=before,
        after=after,
        preamble=preamble,
        later=later,
        placement="turn" if before.strip() else "prefix",
    )


def _variations(format: ChatFormat) -> Iterator[ChatFormat]:
    """What else the format could be, as far as the markers do not say."""
    trims: tuple[Trim, ...] = ("none", "both", "left", "right")
    for name in ("user", "assistant"):
        turn: TurnMarkers = getattr(format, name)
        for trim in trims:
            yield changed(
                format, **{name: TurnMarkers(before=turn.before, after=turn.after, trim=trim)}
            )
    system = format.system
    if system is not None:
        for trim in trims:
            yield changed(format, system=_other(system, trim=trim))
        for how in ("content", "whole", "none"):
            yield changed(format, system=_other(system, joined_trim=how))
        yield changed(format, system=_other(system, written_empty=not system.written_empty))
    yield changed(format, generation_after_assistant=not format.generation_after_assistant)
    yield changed(format, thoughts=None)
    for strip in ("", "\n", None):
        for wrap in (False, True):
            yield changed(
                format, thoughts=Thoughts(strip=" \t\r\n" if strip is None else strip, wrap=wrap)
            )


def _other(system: SystemTurn, **fields: Any) -> SystemTurn:
    """The system message with other values of some fields."""
    given: dict[str, Any] = {name: getattr(system, name) for name in SystemTurn.model_fields}
    return SystemTurn(**given | fields)


def _narrower(format: ChatFormat) -> Iterator[ChatFormat]:
    """The format with less that it accepts."""
    yield changed(format, alternate=True)
    if format.system is not None:
        yield changed(format, system=_other(format.system, later=False))
        yield changed(format, system=None)


def _refined(
    probe: TemplateProbe, format: ChatFormat, examples: Sequence[TalkExample]
) -> ChatFormat:
    """The variation that the fewest examples contradict, step by step; what is accepted is given
    up last, and of that as little as possible."""
    least = count_wrong(probe, format, examples)
    for variations in (_variations, _narrower, _variations):
        better: ChatFormat | None = format
        while least and better is not None:
            better = None
            for one in variations(format):
                wrong = count_wrong(probe, one, examples, least)
                if wrong < least:
                    better, least = one, wrong
            format = better or format
    return format


def _with_tools(probe: TemplateProbe, format: ChatFormat, notes: list[str]) -> ChatFormat:
    """The format with the known way of writing tools that the template follows, if any."""
    examples = list(tool_talks())
    raw = next(tool_talks(raw=True))
    called = probe.ask(raw.messages, True) or probe.ask(examples[0].messages, True)
    declared = probe.ask(examples[-1].messages, True, list(TOOLS))
    if "look_up" not in (called or "") + (declared or ""):
        if called is not None:
            notes.append("The template drops calls of tools in silence.")
        return format
    known = {repr(one.tools): one.tools for one in CHAT_FORMATS.values() if one.tools is not None}
    tried = [changed(format, tools=tools) for tools in known.values()]
    for one in tried:
        assert one.tools is not None
        found = [find_difference(probe, one, e) for e in tool_talks(one.tools.raw_arguments)]
        if not any(different is not None and different.got is not None for different in found):
            return one
    notes.append("The template writes tools in a way that no format here has: they are refused.")
    return format


def _stops(format: ChatFormat) -> tuple[str, ...]:
    """Where an answer ends: at the first marker after it."""
    first = find_marker(format.assistant.after, format.markers)
    return tuple(dict.fromkeys(one for one in (first, format.eos) if one))


def _prove(probe: TemplateProbe, format: ChatFormat, notes: tuple[str, ...]) -> Inference:
    """Renders conversations that nothing was learnt from."""
    examples = example_talks(1, PROVED)
    if format.tools is not None:
        examples += list(tool_talks(format.tools.raw_arguments))
    found = [
        one for example in examples if (one := find_difference(probe, format, example)) is not None
    ]
    wrong = tuple(one for one in found if one.got is not None)
    refused = tuple(one for one in found if one.got is None)
    accepted = sum(accepts(format, example) for example in examples)
    return Inference(format, not wrong, len(examples), accepted, wrong, refused, notes)
