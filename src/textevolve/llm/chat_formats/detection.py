"""Which known format a template writes, or a rendered prompt is in: found out by comparing texts,
never by names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    render_chat,
)
from textevolve.llm.chat_formats.parsing import parse_chat

Render = Callable[..., str]
"""Renders `(messages, tools=None, add_generation_prompt=False)`, or raises where it refuses to."""


def talk(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    """A conversation in which user and assistant take turns."""
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
"""Conversations that known formats write differently, each with whether an answer is asked for."""


@dataclass(frozen=True, slots=True)
class FormatMatch:
    """How many of the conversations a format writes as the template does; `but_bos`: only where
    the token that begins the text is left out of the comparison."""

    name: str
    same: int
    of: int
    but_bos: bool = False

    @property
    def exact(self) -> bool:
        return self.same == self.of and not self.but_bos


def match_formats(render: Render, bos_token: str | None = None) -> tuple[FormatMatch, ...]:
    """The known formats that write anything as the template does, the most alike first."""
    texts = [_ask(render, messages, asks) for messages, asks in CONVERSATIONS]
    matches: list[FormatMatch] = []
    for name, format in CHAT_FORMATS.items():
        own = [_render(format, messages, asks) for messages, asks in CONVERSATIONS]
        same = _count_same(texts, own)
        bare = _count_same(
            [_without(text, bos_token) for text in texts], [_without(t, format.bos) for t in own]
        )
        if bare:
            matches.append(FormatMatch(name, max(same, bare), len(own), but_bos=bare > same))
    return tuple(sorted(matches, key=lambda match: (-match.same, match.but_bos)))


def detect_prompt(text: str) -> tuple[str, ...]:
    """The known formats in which a rendered prompt can be read: those that write it again as it
    is, or, where none does, the others. Those that leave the fewest characters to the texts of the
    turns come first."""
    readings: list[tuple[bool, int, str]] = []
    for name, format in CHAT_FORMATS.items():
        try:
            parsed = parse_chat(format, text)
        except InputError:
            continue
        # A text without any marker could be the system prompt of a format that marks none.
        if any(message["role"] == "user" for message in parsed.messages):
            asks = parsed.add_generation_prompt
            again = _render(format, parsed.messages, asks)
            same = _without(again, format.bos) == _without(text, format.bos)
            length = sum(len(message["content"]) for message in parsed.messages)
            readings.append((same, length, name))
    best = max((same for same, _, _ in readings), default=False)
    return tuple(name for same, _, name in sorted(readings) if same is best)


def _render(format: ChatFormat, messages: Sequence[Mapping[str, Any]], asks: bool) -> str | None:
    """The text with markers kept, as a template writes it; None where it is refused."""
    try:
        return render_chat(format, messages, add_generation_prompt=asks, on_marker="keep")
    except InputError:
        return None


def _count_same(texts: Sequence[str | None], others: Sequence[str | None]) -> int:
    """How many are the same; two refusals are no likeness where nothing else is alike."""
    same = [text for text, other in zip(texts, others, strict=True) if text == other]
    return len(same) if any(text is not None for text in same) else 0


def _without(text: str | None, bos: str | None) -> str | None:
    return text if text is None or not bos else text.removeprefix(bos)


def _ask(render: Render, messages: Sequence[Mapping[str, Any]], prompt: bool) -> str | None:
    """Render a conversation by a template; None where the template refuses it."""
    talk = [dict(message) for message in messages]
    try:
        text: Any = render(talk, tools=None, add_generation_prompt=prompt)
    except Exception:  # noqa: BLE001  a stranger's template may raise anything
        return None
    return text if isinstance(text, str) else None
