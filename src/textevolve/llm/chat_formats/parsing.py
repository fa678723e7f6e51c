"""From a rendered prompt back to the conversation.

What `render_chat` wrote is read to the letter: markers inside texts were broken up there, so none
can be taken for a change of speaker, and they are whole again here. A system message inside a
user's turn that no marker sets apart stays part of that turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    SystemTurn,
    ToolFormat,
    closing_of,
    pieces,
    render_chat,
    undo_set_apart,
)
from textevolve.llm.chat_formats.conversation import (
    OnMarker,
    as_json,
    find_marker,
    make_call,
    make_message,
    unbreak,
)

_SHOWN = 40
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A conversation as it was read: messages and tools of the protocol, and whether the text ends
    with the prompt for the next answer."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    add_generation_prompt: bool = False


def parse_chat(format: ChatFormat, text: str) -> ParsedChat:
    """The conversation of a rendered text. A missing BOS token is forgiven.

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
    return ParsedChat(tuple(reader.messages), tuple(reader.tools), asks)


def convert(
    text: str, source: ChatFormat, target: ChatFormat, *, on_marker: OnMarker = "neutralise"
) -> str:
    """A rendered prompt of one format, in another one. A system message that is the default text of
    the first format is not carried over.

    Raises:
        InputError: the text is not in the first format, or the second cannot express it.
    """
    parsed = parse_chat(source, text)
    default = source.system.default if source.system else None
    is_default = parsed.messages[0] == {"role": "system", "content": default}
    return render_chat(
        target,
        parsed.messages[1:] if is_default else parsed.messages,
        tools=parsed.tools or None,
        add_generation_prompt=parsed.add_generation_prompt,
        on_marker=on_marker,
    )


@dataclass(slots=True)
class _Reader:
    """A text with the place up to which it is read, and the conversation until there."""

    format: ChatFormat
    text: str
    at: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ends: dict[str, re.Pattern[str]] = field(default_factory=dict[str, "re.Pattern[str]"])

    @property
    def last(self) -> str:
        """The role of the last message."""
        return self.messages[-1]["role"] if self.messages else ""

    def take(self, literal: str) -> bool:
        """Pass over a fixed text, if it stands here."""
        if not self.text.startswith(literal, self.at):
            return False
        self.at += len(literal)
        return True

    def require(self, literal: str) -> None:
        if not self.take(literal):
            raise self.wrong(repr(literal))

    def wrong(self, expected: str) -> InputError:
        there = self.text[self.at : self.at + _SHOWN]
        return InputError(
            f"the text is not in the format {self.format.name}: {expected} is wanted at character "
            f"{self.at + 1}, where {there!r} stands"
        )

    def is_marked(self, text: str) -> bool:
        return find_marker(text, self.format.markers) is not None

    def whole(self, text: str) -> str:
        """A text as it was before its markers were broken up."""
        if marker := find_marker(text, self.format.markers):
            raise InputError(
                f"the text is not in the format {self.format.name}: {marker!r} stands where no "
                f"speaker changes, near {text[:_SHOWN]!r}"
            )
        return unbreak(text, self.format.markers)

    def until(self, after: str) -> str:
        """The text up to the end marker, which is passed over."""
        if after not in self.ends:
            self.ends[after] = self._end_of_turn(after)
        end = self.ends[after].search(self.text, self.at)
        if end is None:
            raise self.wrong(f"a turn that ends with {after!r}" if after else "the end of a turn")
        content = self.text[self.at : end.start()]
        self.at = end.end()
        return content

    def _end_of_turn(self, after: str) -> re.Pattern[str]:
        """Where a turn ends: at its end marker, or, where that is none, right before the next turn
        or the end of the text."""
        if self.is_marked(after):
            return re.compile(re.escape(after))
        format = self.format
        closings = {closing_of(format, role, True) for role in ("user", "assistant", "tool")}
        ends = [re.escape(text) + r"\Z" for text in {*closings, format.ending, ""}]
        openings = (opening for opening, _ in self.openings() if self.is_marked(opening))
        ends += [re.escape(format.separator + opening) for opening in openings]
        return re.compile(re.escape(after) + f"(?={'|'.join(ends)})")

    def openings(self) -> Iterator[tuple[str, str]]:
        """The texts that open turns, each with its kind."""
        format, tools = self.format, self.format.tools
        yield format.user.before, "user"
        yield format.assistant.before, "assistant"
        if format.system is not None and format.system.later and format.system.before:
            yield format.system.before, "system"
        if tools is None:
            return
        if tools.call:
            yield self._before_calls(tools) + tools.calls_before, "calls"
        if tools.result:
            yield tools.results_before + pieces(tools.result)[0], "tool"
        if tools.placement == "last-user":
            yield tools.before, "tools"
        if tools.answer_before is not None:
            yield tools.answer_before, "answer"

    def _before_calls(self, tools: ToolFormat) -> str:
        own = tools.assistant_before
        return self.format.assistant.before if own is None else own

    def closing(self) -> bool | None:
        """Whether the text ends here with a prompt for an answer; None where it goes on."""
        rest = self.text[self.at :]
        prompt = closing_of(self.format, self.last, True)
        if rest == prompt and (prompt or self.last in ("user", "tool")):
            return True
        return False if rest == self.format.ending else None

    def read_system(self, system: SystemTurn) -> None:
        """Read a system message that begins the text, with declarations of tools at its end."""
        tools = self.format.tools
        if not self.take(system.before):
            return
        if not system.before and any(
            self.text.startswith(opening, self.at)
            for opening, _ in self.openings()
            if self.is_marked(opening)
        ):
            return
        if tools is not None:
            self.take(tools.system_mark)
        self.require(system.preamble)
        start = self.at
        text = self.until(system.after)
        if tools is not None and tools.placement == "system":
            begin, end = text.rfind(tools.before), self.at
            if begin >= 0 and text.endswith(tools.after):
                self.at = start + begin
                self.read_declarations(tools)
                text, self.at = text[:begin].removesuffix(tools.joint), end
                if begin == 0:
                    return
        if text or system.before or system.after or self.format.separator:
            self.messages.append(make_message("system", self.whole(text)))

    def read_turn(self) -> None:
        openings = sorted(self.openings(), key=lambda one: -len(one[0]))
        for opening, kind in openings:
            if not self.text.startswith(opening, self.at):
                continue
            if kind == "answer" and self.last != "tool":
                continue
            answers = self.last in ("user", "tool") or self.is_marked(opening)
            if kind in ("assistant", "calls") and not answers:
                continue
            self._read_turn_of(kind, opening)
            return
        expected = " or ".join(sorted({repr(opening) for opening, _ in openings if opening}))
        raise self.wrong(expected)

    def _read_turn_of(self, kind: str, opening: str) -> None:
        format, tools = self.format, self.format.tools
        if kind == "tool" and tools is not None:
            self.read_results(tools)
            return
        if kind == "tools" and tools is not None:
            self.read_declarations(tools)
            opening, kind = format.user.before, "user"
        elif kind == "calls" and tools is not None:
            opening = self._before_calls(tools)
        self.require(opening)
        if kind == "user":
            self.read_user()
        elif kind == "system" and format.system is not None:
            text = self.whole(self.until(format.system.after))
            self.messages.append(make_message("system", text))
        else:
            self.read_assistant()

    def read_declarations(self, tools: ToolFormat) -> None:
        self.require(tools.before)
        while True:
            try:
                tool, self.at = _DECODER.raw_decode(self.text, self.at)
            except ValueError as error:
                raise self.wrong(f"a tool's definition as JSON ({error})") from error
            self.tools.append(json.loads(self.whole(as_json(tool))))
            if not self.text.startswith(tools.separator + "{", self.at):
                break
            self.at += len(tools.separator)
        self.require(tools.after)

    def read_user(self) -> None:
        format, tools, system = self.format, self.format.tools, self.format.system
        is_first = all(message["role"] != "user" for message in self.messages)
        declares = tools is not None and tools.placement == "first-user" and is_first
        if tools is not None and declares and self.text.startswith(tools.before, self.at):
            self.read_declarations(tools)
            text = undo_set_apart(self.until(format.user.after))
        else:
            is_set_apart = system is not None and system.inside and self.is_marked(system.before)
            if system is not None and is_set_apart and self.take(system.before):
                end = self.text.find(system.after.rstrip(), self.at)
                if end < 0:
                    raise self.wrong(f"a system message that ends with {system.after!r}")
                opening = make_message("system", self.whole(self.text[self.at : end]))
                self.messages.append(opening)
                self.at = end + len(system.after.rstrip())
                self.take(system.after.removeprefix(system.after.rstrip()))
            text = self.until(format.user.after)
        self.messages.append(make_message("user", self.whole(text)))

    def read_assistant(self) -> None:
        """Read an answer, from behind what opens it."""
        tools, thoughts = self.format.tools, self.format.thoughts
        text = self.until(self.format.assistant.after)
        calls: list[dict[str, Any]] = []
        if tools is not None and tools.call:
            begin = text.find(tools.calls_before + pieces(tools.call)[0])
            calls = self._read_calls(tools, text[begin:]) if begin >= 0 else []
            if calls:
                text = text[:begin].removesuffix(tools.text_joint)
        text = self.whole(text)
        if thoughts is not None and thoughts.wrap and not calls:  # none is written as an empty one
            text = text.removeprefix(f"{thoughts.opening}\n\n{thoughts.closing}\n\n")
        self.messages.append(make_message("assistant", text, calls))

    def _read_calls(self, tools: ToolFormat, written: str) -> list[dict[str, Any]]:
        """The calls, if the text is nothing else."""
        if not written.endswith(tools.calls_after):
            return []
        end = len(written) - len(tools.calls_after)
        parts, at = pieces(tools.call), len(tools.calls_before)
        calls: list[dict[str, Any]] = []
        while at < end:
            if calls and not written.startswith(tools.calls_separator, at):
                return []
            at += len(tools.calls_separator) if calls else 0
            values = {"name": "", "arguments": "{}", "id": ""}
            for number, part in enumerate(parts):
                start = at
                if number % 2 == 0:
                    at = at + len(part) if written.startswith(part, at) else -1
                elif part == "arguments" and not tools.raw_arguments:
                    at = _json_end(written, at)
                else:
                    at = written.find(parts[number + 1], at)
                if at < 0:
                    return []
                if number % 2 == 1:
                    values[part] = written[start:at]
            calls.append(make_call(values["name"], self.whole(values["arguments"]), values["id"]))
        return calls

    def read_results(self, tools: ToolFormat) -> None:
        kinds = {"content": "(.*?)", "json": r'("(?:[^"\\]|\\.)*")', "id": '([^"<\\s]*)'}
        parts = pieces(tools.result)
        source = "".join(re.escape(p) if n % 2 == 0 else kinds[p] for n, p in enumerate(parts))
        pattern = re.compile(source, re.DOTALL)
        self.take(tools.results_before)
        while result := pattern.match(self.text, self.at):
            values = dict(zip(parts[1::2], result.groups(), strict=True))
            text = values["content"] if "content" in values else json.loads(values["json"])
            answers = self.whole(values.get("id", ""))
            self.messages.append(make_message("tool", self.whole(text), answers=answers))
            self.at = result.end()
            if not tools.results_before and not tools.results_after:
                return
            self.take(tools.results_separator)
        self.require(tools.results_after)


def _json_end(text: str, at: int) -> int:
    """Where a JSON value ends; -1 where none begins."""
    try:
        return _DECODER.raw_decode(text, at)[1]
    except ValueError:
        return -1
