"""Parse a rendered prompt back into its conversation.

The text of a prompt that `render_chat` wrote is restored exactly: markers inside texts were broken
up by an invisible character, so they cannot be confused with a change of speaker, and they are
joined again here. A system message inside a user's message stays part of that message if no marker
separates the two. Tool calls and their results are not parsed: markers of tools are refused, and
parts without a marker are text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    OnMarker,
    SystemTurn,
    TurnMarkers,
    find_marker,
    make_message,
    render_chat,
    unbreak,
)

_SHOWN = 40


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A conversation that was parsed from a prompt. `add_generation_prompt`: whether the prompt
    ends by asking for the next answer."""

    messages: tuple[dict[str, Any], ...]
    add_generation_prompt: bool = False


def parse_chat(format: ChatFormat, text: str) -> ParsedChat:
    """Parse a rendered prompt back into its conversation. A missing BOS token is allowed.

    Raises:
        InputError: the text is not in the format, or ends inside a turn; says where.
    """
    reader = _Reader(format, text)
    if not (format.bos and format.user.before.startswith(format.bos)):
        reader.take(format.bos)
    if format.system is not None and not format.system.inside:
        reader.read_system(format.system)
    begun = bool(reader.messages)
    while (asks := reader.closing()) is None:
        if begun:
            reader.require(format.separator)
        begun = True
        reader.read_turn()
    if not reader.messages:
        raise reader.wrong("a turn")
    return ParsedChat(tuple(reader.messages), asks)


def convert(
    text: str, source: ChatFormat, target: ChatFormat, *, on_marker: OnMarker = "neutralise"
) -> str:
    """Convert a rendered prompt into another format. A system message that is the default of the
    first format is dropped.

    Raises:
        InputError: the text is not in the first format, or the second cannot express it.
    """
    parsed = parse_chat(source, text)
    default = source.system.default if source.system else None
    is_default = parsed.messages[0] == {"role": "system", "content": default}
    return render_chat(
        target,
        parsed.messages[1:] if is_default else parsed.messages,
        add_generation_prompt=parsed.add_generation_prompt,
        on_marker=on_marker,
    )


@dataclass
class _Reader:
    """A parser's state: the text, the position `at`, and the messages that were read so far."""

    format: ChatFormat
    text: str
    at: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def last(self) -> str:
        """Return the role of the last message; empty if there is none."""
        return self.messages[-1]["role"] if self.messages else ""

    def add(self, role: str, text: str) -> None:
        """Add a message, with the broken-up markers in its text restored."""
        self.messages.append(make_message(role, self.restore(text)))

    def take(self, literal: str) -> bool:
        """Skip a fixed text if the prompt continues with it; return whether it does."""
        stands = self.text.startswith(literal, self.at)
        self.at += len(literal) if stands else 0
        return stands

    def require(self, literal: str) -> None:
        if not self.take(literal):
            raise self.wrong(repr(literal))

    def wrong(self, expected: str) -> InputError:
        there = self.text[self.at : self.at + _SHOWN]
        return InputError(
            f"the text is not in the format {self.format.name}: {expected} is expected at"
            f" character {self.at + 1}, not {there!r}"
        )

    def is_marked(self, text: str) -> bool:
        return find_marker(text, self.format.markers) is not None

    def restore(self, text: str) -> str:
        """Return a text as it was before its markers were broken up."""
        if marker := find_marker(text, self.format.markers):
            raise InputError(
                f"the text is not in the format {self.format.name}: the marker {marker!r} is at a"
                f" place where no speaker changes, near {text[:_SHOWN]!r}"
            )
        return unbreak(text, self.format.markers)

    @cached_property
    def turns(self) -> list[tuple[str, TurnMarkers]]:
        """Return the roles with their markers, those with the longest opening first."""
        turns = [("user", self.format.user), ("assistant", self.format.assistant)]
        system = self.format.system
        if system is not None and system.later and system.before:
            turns.append(("system", system))
        return sorted(turns, key=lambda turn: -len(turn[1].before))

    @cached_property
    def openings(self) -> list[str]:
        """Return the texts that begin a message and are markers."""
        return [turn.before for _, turn in self.turns if self.is_marked(turn.before)]

    def until(self, after: str) -> str:
        """Return the text of a message up to its end marker, which is skipped. If the format has no
        end marker, the next message or the end of the text must follow."""
        end = re.escape(after)
        if not self.is_marked(after):
            format = self.format
            ends = [re.escape(text) + r"\Z" for text in {format.generation, format.ending, ""}]
            ends += [re.escape(format.separator + opening) for opening in self.openings]
            end += f"(?={'|'.join(ends)})"
        match = re.compile(end).search(self.text, self.at)
        if match is None:
            raise self.wrong(f"a turn that ends with {after!r}" if after else "the end of a turn")
        content = self.text[self.at : match.start()]
        self.at = match.end()
        return content

    def closing(self) -> bool | None:
        """Return True if the text ends here by asking for an answer, False if it ends without that,
        and None if messages follow."""
        remaining = self.text[self.at :]
        prompt = self.format.generation
        if remaining == prompt and (prompt or self.last == "user"):
            return True
        return False if remaining == self.format.ending else None

    def read_turn(self) -> None:
        system, thoughts = self.format.system, self.format.thoughts
        for role, turn in self.turns:
            fits = role != "assistant" or self.last == "user" or self.is_marked(turn.before)
            if not (fits and self.take(turn.before)):
                continue
            if role == "user" and system is not None:
                self.read_system_within(system)
            text = self.until(turn.after)
            # Where there is no reasoning, an empty one is written.
            if role == "assistant" and thoughts is not None and thoughts.wrap:
                text = text.removeprefix(f"{thoughts.opening}\n\n{thoughts.closing}\n\n")
            self.add(role, text)
            return
        expected = {repr(turn.before) for _, turn in self.turns if turn.before}
        raise self.wrong(" or ".join(sorted(expected)))

    def read_system(self, system: SystemTurn) -> None:
        """Read a system message that begins the text."""
        opens_turn = not system.before and self.text.startswith(tuple(self.openings), self.at)
        if opens_turn or not self.take(system.before):
            return
        self.require(system.preamble)
        text = self.until(system.after)
        if text or system.before or system.after or self.format.separator:
            self.add("system", text)

    def read_system_within(self, system: SystemTurn) -> None:
        """Read a system message inside a user's message, if markers set it apart."""
        if system.inside and self.is_marked(system.before) and self.take(system.before):
            after = system.after.rstrip()
            end = self.text.find(after, self.at)
            if end < 0:
                raise self.wrong(f"a system message that ends with {system.after!r}")
            self.add("system", self.text[self.at : end])
            self.at = end + len(after)
            self.take(system.after.removeprefix(after))
