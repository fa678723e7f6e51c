"""Which of the known formats a template writes, or a rendered prompt is in.

Found out by comparing texts, never by names. A format that is not known is the business of
`inference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS
from textevolve.llm.chat_formats.chat_format import ChatFormat, render_chat
from textevolve.llm.chat_formats.inference import Render
from textevolve.llm.chat_formats.parsing import parse_chat


def _say(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    """A conversation in which user and assistant take turns."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return turns if system is None else [{"role": "system", "content": system}, *turns]


CONVERSATIONS: tuple[tuple[list[dict[str, Any]], bool], ...] = (
    (_say("What is a tide?"), True),
    (_say("What is a tide?", system="Answer in one line."), True),
    (_say("What is a tide?", "The sea that rises.", "Why?"), True),
    (_say("What is a tide?", "The sea that rises.", "Why?", system="Answer in one line."), True),
    (_say(" What\nis it?  ", "\n It rises. ", " Why? \n", system=" In one\nline. "), True),
    (_say("What is a tide?", "The sea that rises."), False),
    (_say("Why?", "The moon.", "And the sun?", "Less so.", system="Answer in one line."), False),
)
"""Conversations that formats write differently, each with whether an answer is asked for."""


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
    written = [_render(render, messages, asked) for messages, asked in CONVERSATIONS]
    found: list[FormatMatch] = []
    for name, format in CHAT_FORMATS.items():
        own = [_render(_renderer(format), messages, asked) for messages, asked in CONVERSATIONS]
        exact = _count(written, own)
        begun = [_without(text, bos_token) for text in written]
        bare = _count(begun, [_without(text, format.bos) for text in own])
        if bare:
            found.append(FormatMatch(name, max(exact, bare), len(own), but_bos=bare > exact))
    return tuple(sorted(found, key=lambda match: (-match.same, match.but_bos)))


def detect_prompt(text: str) -> tuple[str, ...]:
    """The known formats in which a rendered prompt can be read: those that write it again as it
    is, or, where none does, the others. Those that leave the fewest characters to the texts of the
    turns come first."""
    found: list[tuple[bool, int, str]] = []
    for name, format in CHAT_FORMATS.items():
        try:
            parsed = parse_chat(format, text)
            again = render_chat(
                format,
                parsed.messages,
                tools=parsed.tools or None,
                add_generation_prompt=parsed.add_generation_prompt,
                on_marker="keep",
            )
        except InputError:
            continue
        # A text without any marker could be the system prompt of a format that marks none.
        asks = any(message["role"] == "user" for message in parsed.messages)
        if asks:
            same = _without(again, format.bos) == _without(text, format.bos)
            said = sum(len(message.get("content") or "") for message in parsed.messages)
            found.append((same, said, name))
    best = any(same for same, _, _ in found)
    alike = sorted((said, name) for same, said, name in found if same is best)
    return tuple(name for _, name in alike)


def _renderer(format: ChatFormat) -> Render:
    def render(messages: Sequence[dict[str, Any]], **options: Any) -> str:
        return render_chat(format, messages, on_marker="keep", **options)

    return render


def _render(render: Render, messages: list[dict[str, Any]], asked: bool) -> str | None:
    try:
        return render(messages, add_generation_prompt=asked)
    except InputError:
        return None


def _count(one: list[str | None], other: list[str | None]) -> int:
    """How many are the same; two refusals are no likeness where nothing else is alike."""
    pairs = list(zip(one, other, strict=True))
    alike = any(a == b is not None for a, b in pairs)
    return sum(a == b for a, b in pairs) if alike else 0


def _without(text: str | None, bos: str | None) -> str | None:
    return text if text is None or not bos else text.removeprefix(bos)
