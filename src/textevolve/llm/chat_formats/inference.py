"""Parse a prompt by the chat template that wrote it, whatever format that is.

The template renders short conversations whose texts occur nowhere else. What it writes before the
first text, between two texts and after the last one are its markers, and a prompt is divided at
them. Nothing is taken from names, so this works for a model that appeared today.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, cast

from textevolve.errors import InputError
from textevolve.llm.chat_formats.chat_format import (
    CONTROL_TOKEN,
    ParsedChat,
    find_marker,
    make_message,
)
from textevolve.llm.chat_formats.sources import JinjaTemplate

Part = Literal["start", "system", "user", "thought", "assistant", "end", "question"]
"""A text of a conversation, its start, or one of its ends: `question` asks for an answer. The
reasoning of an assistant's message is a text of its own."""

_CONVERSATIONS = (
    "user",
    "user assistant user assistant user",
    "user assistant user assistant",
    "system user",
    "system user assistant user assistant",
    "user thought assistant",
    "user thought assistant user thought assistant",
    "user user",
    "user assistant assistant user",
    "assistant user",
    "system assistant user",
    "user system user assistant system user",
)
_ENDS: tuple[Part, ...] = ("question", "end")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Marker:
    """A text that a template writes between two parts of a conversation."""

    before: Part
    after: Part
    text: str


def parse_prompt(template: JinjaTemplate, text: str) -> ParsedChat:
    """Parse a prompt that a chat template wrote back into its conversation. A missing BOS token is
    allowed, and a system message that the template writes by default is left out.

    White space that the template trimmed, and a system message inside a user's turn without a
    marker, cannot be recovered. Calls of tools and their results are not parsed.

    Raises:
        InputError: the messages of the template cannot be told apart, or the text is not one that
            it writes; says where.
    """
    markers = infer_markers(template)
    bos = template.bos_token or ""
    prompt = text.removeprefix(bos)
    tokens = _control_tokens(template, markers)

    messages: list[dict[str, Any]] = []
    thought = ""
    part: Part = "start"
    at = 0
    while part not in _ENDS:
        marker, place = _find_next(markers, part, prompt, at)
        content = prompt[at:place]
        token = find_marker(content, tokens)
        if token is not None:
            raise InputError(
                f"the control token {token!r} stands where no speaker changes, near"
                f" {content[:_SHOWN]!r}; calls of tools and their results cannot be parsed"
            )
        if part == "thought":
            thought = content
        elif part != "start":
            messages.append(make_message(part, content, thought))
            thought = ""
        part = marker.after
        at = place + len(marker.text)

    asks = part == "question"
    again = template.render(messages, add_generation_prompt=asks)
    if again.removeprefix(bos) != prompt:
        raise InputError(
            "the chat template writes the parsed messages in another way: the prompt is from"
            " another template, or was written with tools or on another date"
        )

    return ParsedChat(tuple(messages), asks)


def infer_markers(template: JinjaTemplate) -> tuple[Marker, ...]:
    """Return the markers of a template, from its renderings of short conversations.

    Raises:
        InputError: a question and its answer cannot be told apart, or cannot be rendered.
    """
    refusals: list[str] = []
    markers: dict[Marker, None] = {}
    for roles in _CONVERSATIONS:
        parts = cast("list[Part]", roles.split())
        for end in _ENDS:
            try:
                markers |= dict.fromkeys(_probe(template, parts, end))
            except InputError as error:
                refusals.append(str(error))

    # White space alone also stands inside messages, so it is no marker. A system message without
    # one before the question is a part of it.
    blank = {
        m for m in markers if not m.text.strip() and m.before != "start" and m.after not in _ENDS
    }
    unmarked = {m.before for m in blank if m.before == "system" and m.after == "user"}
    usable = [m for m in markers if m not in blank and not unmarked & {m.before, m.after}]
    steps = {(m.before, m.after) for m in usable}
    if not {("start", "user"), ("user", "assistant"), ("assistant", "user")} <= steps:
        reason = refusals[0] if refusals else "no markers stand between them"
        raise InputError(f"questions and answers of this template cannot be told apart: {reason}")

    return tuple(usable)


def _probe(template: JinjaTemplate, parts: list[Part], end: Part) -> Iterator[Marker]:
    """Render a conversation of such parts, and yield the markers around them; none if a text is
    missing or stands there twice.

    Raises:
        InputError: the template refuses the conversation.
    """
    probes = [f"Zq{chr(ord('a') + place)}x" for place in range(len(parts))]
    messages: list[dict[str, Any]] = []
    thought = ""
    for part, probe in zip(parts, probes, strict=True):
        if part == "thought":
            thought = probe
        else:
            messages.append(make_message(part, probe, thought))
            thought = ""

    text = template.render(messages, add_generation_prompt=end == "question")
    text = text.removeprefix(template.bos_token or "")
    places: list[tuple[int, int, Part]] = [(0, 0, "start"), (len(text), len(text), end)]
    for part, probe in zip(parts, probes, strict=True):
        count = text.count(probe)
        if count == 1:
            place = text.index(probe)
            places.append((place, place + len(probe), part))
        elif count or part != "thought":  # reasoning of earlier answers is often left out
            return

    for (_, stop, before), (place, _, after) in pairwise(sorted(places)):
        yield Marker(before, after, text[stop:place])


def _control_tokens(template: JinjaTemplate, markers: tuple[Marker, ...]) -> tuple[str, ...]:
    """Return the control tokens of a template: those of its markers, and those in its source, with
    which it writes tools."""
    texts = [template.source, *(marker.text for marker in markers)]
    return tuple(dict.fromkeys(token for text in texts for token in CONTROL_TOKEN.findall(text)))


def _find_next(markers: tuple[Marker, ...], part: Part, text: str, at: int) -> tuple[Marker, int]:
    """Return the first marker after a part that begins at `at`, and its place; of several, an end
    of the whole text, then the longest.

    Raises:
        InputError: no such marker follows.
    """
    # Where an end and a request for an answer look alike, only an assistant's text ends.
    likely = "end" if part == "assistant" else "question"
    following = [marker for marker in markers if marker.before == part]
    following.sort(key=lambda m: (m.after not in _ENDS, -len(m.text), m.after != likely))
    patterns: list[str] = []
    for marker in following:
        end = r"\Z" if marker.after in _ENDS else ""
        patterns.append(f"({re.escape(marker.text)}{end})")

    pattern = re.compile("|".join(patterns))
    match = pattern.match(text) if part == "start" else pattern.search(text, at)
    if match is None or match.lastindex is None:
        expected = "its beginning" if part == "start" else f"the end of a text ({part})"
        raise InputError(
            f"the prompt was not written by this chat template: {expected} is not found from"
            f" character {at + 1} on, at {text[at : at + _SHOWN]!r}"
        )

    return following[match.lastindex - 1], match.start()
