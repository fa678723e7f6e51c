"""From a rendered prompt back to the conversation.

What `render_chat` wrote is read to the letter: markers inside texts were broken up there, so none
can be taken for a change of speaker, and they are whole again here. A system message inside a
user's turn that no marker sets apart stays part of that turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
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
    return ParsedChat(tuple(reader.messages), tuple(reader.declared), asks)


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


@dataclass
class _Reader:
    """A text with the place up to which it is read, and the conversation until there."""

    format: ChatFormat
    text: str
    at: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    declared: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @cached_property
    def tools(self) -> ToolFormat:
        return self.format.tools or ToolFormat()

    @property
    def last(self) -> str:
        """The role of the last message."""
        return self.messages[-1]["role"] if self.messages else ""

    def add(self, role: str, text: str, **more: Any) -> None:
        """Add a message, whose text is whole again."""
        self.messages.append(make_message(role, self.whole(text), **more))

    def take(self, literal: str) -> bool:
        """Pass over a fixed text, if it stands here."""
        stands = self.text.startswith(literal, self.at)
        self.at += len(literal) if stands else 0
        return stands

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

    @cached_property
    def openings(self) -> list[tuple[str, str, Callable[[], None]]]:
        """The texts that open turns, the longest first, each with the role and how it is read."""
        format, tools = self.format, self.tools
        assistant, system = format.assistant.before, format.system
        before_calls = assistant if tools.assistant_before is None else tools.assistant_before
        openings: list[tuple[str, str, Callable[[], None]]] = [
            (format.user.before, "user", self.read_user),
            (assistant, "assistant", partial(self.read_assistant, assistant)),
        ]
        if system is not None and system.later and system.before:
            openings.append((system.before, "system", partial(self.read_later_system, system)))
        if tools.call:
            read_calls = partial(self.read_assistant, before_calls)
            openings.append((before_calls + tools.calls_before, "assistant", read_calls))
        if tools.result:
            begin = tools.results_before + pieces(tools.result)[0]
            openings.append((begin, "tool", self.read_results))
        if tools.placement == "last-user":
            openings.append((tools.before, "user", self.read_declared_user))
        if tools.answer_before is not None:
            read_answer = partial(self.read_assistant, tools.answer_before)
            openings.append((tools.answer_before, "answer", read_answer))
        return sorted(openings, key=lambda opening: -len(opening[0]))

    def until(self, after: str) -> str:
        """The text up to the end marker, which is passed over. Where that is no marker, the next
        turn or the end of the text must follow."""
        end = re.escape(after)
        if not self.is_marked(after):
            format = self.format
            closings = {closing_of(format, role, True) for role in ("user", "assistant", "tool")}
            ends = [re.escape(text) + r"\Z" for text in {*closings, format.ending, ""}]
            openings = (opening for opening, _, _ in self.openings if self.is_marked(opening))
            ends += [re.escape(format.separator + opening) for opening in openings]
            end += f"(?={'|'.join(ends)})"
        match = re.compile(end).search(self.text, self.at)
        if match is None:
            raise self.wrong(f"a turn that ends with {after!r}" if after else "the end of a turn")
        content = self.text[self.at : match.start()]
        self.at = match.end()
        return content

    def closing(self) -> bool | None:
        """Whether the text ends here with a prompt for an answer; None where it goes on."""
        rest = self.text[self.at :]
        prompt = closing_of(self.format, self.last, True)
        if rest == prompt and (prompt or self.last in ("user", "tool")):
            return True
        return False if rest == self.format.ending else None

    def read_turn(self) -> None:
        for opening, role, read in self.openings:
            answers = self.last in ("user", "tool") or self.is_marked(opening)
            fits = {"answer": self.last == "tool", "assistant": answers}.get(role, True)
            if fits and self.text.startswith(opening, self.at):
                read()
                return
        known = " or ".join(sorted({repr(opening) for opening, _, _ in self.openings if opening}))
        raise self.wrong(known)

    def read_system(self, system: SystemTurn) -> None:
        """Read a system message that begins the text, with declarations of tools at its end."""
        marked = [opening for opening, _, _ in self.openings if self.is_marked(opening)]
        opens_turn = not system.before and self.text.startswith(tuple(marked), self.at)
        if opens_turn or not self.take(system.before):
            return
        self.take(self.tools.system_mark)
        self.require(system.preamble)
        start = self.at
        text = self.until(system.after)
        if self.tools.placement == "system":
            begin, end = text.rfind(self.tools.before), self.at
            if begin >= 0 and text.endswith(self.tools.after):
                self.at = start + begin
                self.read_declarations()
                text, self.at = text[:begin].removesuffix(self.tools.joint), end
                if begin == 0:
                    return
        if text or system.before or system.after or self.format.separator:
            self.add("system", text)

    def read_later_system(self, system: SystemTurn) -> None:
        self.require(system.before)
        self.add("system", self.until(system.after))

    def read_declarations(self) -> None:
        self.require(self.tools.before)
        while True:
            try:
                tool, self.at = _DECODER.raw_decode(self.text, self.at)
            except ValueError as error:
                raise self.wrong(f"a tool's definition as JSON ({error})") from error
            self.declared.append(json.loads(self.whole(as_json(tool))))
            if not self.text.startswith(self.tools.separator + "{", self.at):
                break
            self.at += len(self.tools.separator)
        self.require(self.tools.after)

    def read_declared_user(self) -> None:
        self.read_declarations()
        self.read_user()

    def read_user(self) -> None:
        user, tools, system = self.format.user, self.tools, self.format.system
        self.require(user.before)
        is_first = all(message["role"] != "user" for message in self.messages)
        declares = tools.placement == "first-user" and is_first
        if declares and self.text.startswith(tools.before, self.at):
            self.read_declarations()
            self.add("user", undo_set_apart(self.until(user.after)))
            return
        is_set_apart = system is not None and system.inside and self.is_marked(system.before)
        if system is not None and is_set_apart and self.take(system.before):
            after = system.after.rstrip()
            end = self.text.find(after, self.at)
            if end < 0:
                raise self.wrong(f"a system message that ends with {system.after!r}")
            self.add("system", self.text[self.at : end])
            self.at = end + len(after)
            self.take(system.after.removeprefix(after))
        self.add("user", self.until(user.after))

    def read_assistant(self, opening: str) -> None:
        self.require(opening)
        tools, thoughts = self.tools, self.format.thoughts
        text = self.until(self.format.assistant.after)
        begin = text.find(tools.calls_before + pieces(tools.call)[0]) if tools.call else -1
        calls = self._read_calls(text[begin:]) if begin >= 0 else []
        if calls:
            text = text[:begin].removesuffix(tools.text_joint)
        elif thoughts is not None and thoughts.wrap:  # where there is none, an empty one is written
            text = text.removeprefix(f"{thoughts.opening}\n\n{thoughts.closing}\n\n")
        self.add("assistant", text, calls=calls)

    def _read_calls(self, text: str) -> list[dict[str, Any]]:
        """The calls, if the text is nothing else."""
        tools, parts = self.tools, pieces(self.tools.call)
        end, at = len(text) - len(tools.calls_after), len(tools.calls_before)
        calls: list[dict[str, Any]] = []
        try:
            while at < end:
                values = {"name": "", "arguments": "{}", "id": ""}
                at = _pass(text, at, tools.calls_separator if calls else "")
                for fixed, name, then in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
                    start = at = _pass(text, at, fixed)
                    if name == "arguments" and not tools.raw_arguments:
                        at = _DECODER.raw_decode(text, at)[1]
                    else:
                        at = text.index(then, at)
                    values[name] = text[start:at]
                at = _pass(text, at, parts[-1])
                arguments = self.whole(values["arguments"])
                calls.append(make_call(values["name"], arguments, values["id"]))
        except ValueError:  # something else stands there
            return []
        return calls if text[at:] == tools.calls_after else []

    def read_results(self) -> None:
        tools = self.tools
        kinds = {"content": "(.*?)", "json": r'("(?:[^"\\]|\\.)*")', "id": '([^"<\\s]*)'}
        parts = pieces(tools.result)
        source = "".join(re.escape(p) if n % 2 == 0 else kinds[p] for n, p in enumerate(parts))
        pattern = re.compile(source, re.DOTALL)
        self.take(tools.results_before)
        while result := pattern.match(self.text, self.at):
            values = dict(zip(parts[1::2], result.groups(), strict=True))
            text = values["content"] if "content" in values else json.loads(values["json"])
            self.add("tool", text, answers=self.whole(values.get("id", "")))
            self.at = result.end()
            if not tools.results_before and not tools.results_after:
                return
            self.take(tools.results_separator)
        self.require(tools.results_after)


def _pass(text: str, at: int, fixed: str) -> int:
    """The place behind a fixed text.

    Raises:
        ValueError: it does not stand here.
    """
    if not text.startswith(fixed, at):
        raise ValueError
    return at + len(fixed)
