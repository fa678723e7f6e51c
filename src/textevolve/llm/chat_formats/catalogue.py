"""The known chat formats by name (data in `catalogue.yaml`), and which of them a template or a
prompt is in.

`chat_format` uses the descriptions. docs/models.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from textevolve.errors import InputError, NotFoundError
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    parse_chat,
    render_chat,
)
from textevolve.llm.chat_formats.sources import JinjaTemplate
from textevolve.spec import suggest
from textevolve.texts.yaml_lines import load_shipped

CHAT_FORMATS: Mapping[str, ChatFormat] = MappingProxyType(
    {
        format.name: format
        for format in TypeAdapter(list[ChatFormat]).validate_python(
            load_shipped("textevolve.llm", "chat_formats/catalogue.yaml")
        )
    }
)


def chat_format(name: str) -> ChatFormat:
    """Return a format by name.

    Raises:
        NotFoundError: no format has this name; the message suggests the nearest name.
    """
    match = CHAT_FORMATS.get(name)
    if match is None:
        raise NotFoundError(f"no chat format '{name}'{suggest(name, list(CHAT_FORMATS))}")

    return match


# Find out which known format a chat template writes, or a rendered prompt is in, by comparing
# rendered texts and not by names.

Render = Callable[..., str]
"""A function that renders `(messages, tools=None, add_generation_prompt=False)`, or raises an error
if the template refuses the conversation."""


def talk(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    """Return a conversation in which user and assistant take turns, after an optional system
    message."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return turns if system is None else [{"role": "system", "content": system}, *turns]


_TIDES = ("What is a tide?", "The sea that rises.", "Why?", "The moon.", "Thanks.")
_BRIEF = "Answer in one line."

CONVERSATIONS: tuple[tuple[list[dict[str, Any]], bool], ...] = (
    (talk(_TIDES[0]), True),
    (talk(_TIDES[0], system=_BRIEF), True),
    (talk(*_TIDES[:3]), True),
    (talk(*_TIDES[:3], system=_BRIEF), True),
    (talk(" What\nis it?  ", "\n It rises. ", " Why? \n", system=" In one\nline. "), True),
    (talk(*_TIDES[:2]), False),
    (talk("Why?", "The moon.", "And the sun?", "Less so.", system=_BRIEF), False),
)
"""Test conversations that known formats render differently, each with whether an answer is asked
for."""


@dataclass(frozen=True, slots=True)
class FormatMatch:
    """The similarity of a known format to a template. `same`: the number of test conversations that
    both render alike, apart from the BOS token; `of`: the number of all test conversations."""

    name: str
    same: int
    of: int


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """The result of testing a chat template.

    Attributes:
        formats: The known formats that are similar, the best match first.
        system: The reason why the model never sees a system message; empty if it sees them.
    """

    formats: tuple[FormatMatch, ...]
    system: str

    @property
    def format(self) -> str | None:
        """Return the known format that matches in all test conversations; None if there is none."""
        return next((match.name for match in self.formats if match.same == match.of), None)


def check_chat_template(template: JinjaTemplate) -> TemplateCheck:
    """Render a few short conversations by a template, and return the known formats that it matches
    and whether it writes the system message.

    Raises:
        InputError: the template cannot be rendered at all.
    """
    template.render(talk(_TIDES[0]), add_generation_prompt=True)

    try:
        text = template.render(talk(_TIDES[0], system=_BRIEF), add_generation_prompt=True)
        system = "" if _BRIEF in text else "dropped: the model never sees it"
    except InputError as error:
        system = f"refused: {error}"

    return TemplateCheck(match_formats(template.render, template.bos_token), system)


def match_formats(render: Render, bos_token: str | None) -> tuple[FormatMatch, ...]:
    """Return the known formats that render at least one test conversation like the template, the
    best match first."""
    texts = [_render(render, talk, asks, bos_token) for talk, asks in CONVERSATIONS]
    matches: list[FormatMatch] = []

    for name, format in CHAT_FORMATS.items():
        write = partial(render_chat, format, on_marker="keep")
        rendered = (_render(write, talk, asks, format.bos) for talk, asks in CONVERSATIONS)
        same = [text for text, other in zip(texts, rendered, strict=True) if text == other]
        # Two refusals alone are not a match.
        if any(text is not None for text in same):
            matches.append(FormatMatch(name, len(same), len(texts)))

    return tuple(sorted(matches, key=lambda match: -match.same))


def detect_prompt(text: str) -> tuple[str, ...]:
    """Return the known formats that can parse a rendered prompt. Formats that reproduce it exactly
    are preferred; if there is none, all that can parse it are returned. Formats with the fewest
    characters left in the texts of messages come first."""
    readings: list[tuple[bool, int, str]] = []

    for name, format in CHAT_FORMATS.items():
        try:
            parsed = parse_chat(format, text)
        except InputError:
            continue
        # A text without any marker could be the system prompt of a format that marks none.
        if any(message["role"] == "user" for message in parsed.messages):
            write = partial(render_chat, format, on_marker="keep")
            again = _render(write, parsed.messages, parsed.add_generation_prompt, format.bos)
            differs = again != text.removeprefix(format.bos)
            length = sum(len(message["content"]) for message in parsed.messages)
            readings.append((differs, length, name))

    readings.sort()

    return tuple(name for differs, _, name in readings if differs == readings[0][0])


def _render(
    render: Render, messages: Sequence[Mapping[str, Any]], asks: bool, bos: str | None
) -> str | None:
    """Render a conversation without the BOS token; None if the template or format refuses it."""
    try:
        text = render(list(map(dict, messages)), add_generation_prompt=asks)
    except InputError:
        return None

    return text.removeprefix(bos or "")
