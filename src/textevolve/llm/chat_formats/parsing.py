"""From a rendered prompt back to the conversation.

What `render_chat` wrote is read to the letter: markers inside texts were broken up there, so none
can be taken for a change of speaker, and they are whole again here. A system message inside a
user's turn that no marker sets apart stays part of that turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    SystemTurn,
    closing_of,
    undo_set_apart,
    without_empty_thought,
)
from textevolve.llm.chat_formats.conversation import (
    Said,
    SaidCall,
    find_marker,
    unbreak,
    write_message,
)
from textevolve.llm.chat_formats.tools import ToolFormat, pieces

_SHOWN = 40


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A conversation as it was read: messages and tools of the protocol, and whether the text ends
    with the prompt for the next answer."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    add_generation_prompt: bool = False


@dataclass(slots=True)
class _Reading:
    """How far a text is read, and what was found."""

    format: ChatFormat
    text: str
    at: int = 0
    tools: tuple[dict[str, Any], ...] = ()
    patterns: dict[str, re.Pattern[str]] = field(default_factory=dict[str, "re.Pattern[str]"])

    def take(self, literal: str) -> bool:
        if literal and self.text.startswith(literal, self.at):
            self.at += len(literal)
            return True
        return not literal

    def until(self, after: str) -> str:
        """The text up to the end marker, which is passed over."""
        if after not in self.patterns:
            self.patterns[after] = _ending_pattern(self.format, after)
        found = self.patterns[after].search(self.text, self.at)
        if found is None:
            raise self.wrong(f"a turn that ends with {after!r}" if after else "the end of a turn")
        content = self.text[self.at : found.start()]
        self.at = found.end()
        return content

    def whole(self, text: str) -> str:
        """A text as it was before its markers were broken up."""
        if found := find_marker(text, self.format.markers):
            raise InputError(
                f"the text is not in the format {self.format.name}: {found!r} stands where no "
                f"speaker changes, near {text[:_SHOWN]!r}"
            )
        return unbreak(text, self.format.markers)

    def wrong(self, wanted: str) -> InputError:
        there = self.text[self.at : self.at + _SHOWN]
        return InputError(
            f"the text is not in the format {self.format.name}: {wanted} is wanted at character "
            f"{self.at + 1}, where {there!r} stands"
        )


def parse_chat(format: ChatFormat, text: str) -> ParsedChat:
    """The conversation of a rendered text. A missing BOS token is forgiven.

    Raises:
        InputError: the text is not in the format, or ends inside a turn; says where.
    """
    reading = _Reading(format, text)
    if format.bos and not format.user.before.startswith(format.bos):
        reading.take(format.bos)
    said: list[Said] = []
    inside = format.system is not None and format.system.inside
    if format.system is not None and not inside:
        said.extend(_read_system(reading, format.system))
    begun = bool(said)
    while True:
        asked = _closing(reading, said)
        if asked is not None:
            break
        if begun and not reading.take(format.separator):
            raise reading.wrong(f"{format.separator!r} between turns")
        begun = True
        said.extend(_read_turn(reading, said))
    if not said:
        raise reading.wrong("a turn")
    messages = tuple(write_message(one) for one in said)
    return ParsedChat(messages, reading.tools, asked)


def _closing(reading: _Reading, said: Sequence[Said]) -> bool | None:
    """Whether the text ends here with a prompt for an answer; None where it goes on."""
    last = said[-1].role if said else ""
    rest = reading.text[reading.at :]
    prompt = closing_of(reading.format, last, True)
    if rest == prompt and (prompt or last in ("user", "tool")):
        return True
    return False if rest == reading.format.ending else None


def _openings(format: ChatFormat) -> Iterator[tuple[str, str]]:
    """What opens turns, with the role; texts before their kind of turn are told apart by length."""
    tools = format.tools
    yield format.user.before, "user"
    yield format.assistant.before, "assistant"
    if format.system is not None and format.system.later and format.system.before:
        yield format.system.before, "system"
    if tools is None:
        return
    if tools.call:
        before = format.assistant.before if tools.assistant_before is None else ""
        yield (before or tools.assistant_before or "") + tools.calls_before, "calls"
    if tools.result:
        yield tools.results_before + pieces(tools.result)[0], "tool"
    if tools.placement == "last-user":
        yield tools.before, "tools"
    if tools.answer_before is not None:
        yield tools.answer_before, "answer"


def _ending_pattern(format: ChatFormat, after: str) -> re.Pattern[str]:
    """Where a turn ends: at its end marker, or, where that is none, right before the next turn."""
    if find_marker(after, format.markers):
        return re.compile(re.escape(after))
    closings = {closing_of(format, role, True) for role in ("user", "assistant", "tool")}
    ends = [re.escape(text) + r"\Z" for text in {*closings, format.ending, ""}]
    ends += [
        re.escape(format.separator + opening)
        for opening, _ in _openings(format)
        if find_marker(opening, format.markers)
    ]
    return re.compile(re.escape(after) + f"(?={'|'.join(ends)})")


def _read_system(reading: _Reading, system: SystemTurn) -> Iterator[Said]:
    tools = reading.format.tools
    mark = tools.system_mark if tools is not None else ""
    if system.absent and reading.take(system.absent):
        return
    if not system.before:
        opened = any(
            reading.text.startswith(opening, reading.at)
            for opening, _ in _openings(reading.format)
            if find_marker(opening, reading.format.markers)
        )
        if opened:
            return
    elif not reading.take(system.before):
        return
    if mark:
        reading.take(mark)
    if not reading.take(system.preamble):
        raise reading.wrong(repr(system.preamble))
    text: str | None = reading.until(system.after)
    if tools is not None and tools.placement == "system":
        text = _split_declared(reading, tools, text)
    if text is not None and (text or system.before or system.after or reading.format.separator):
        yield Said("system", reading.whole(text))


def _split_declared(reading: _Reading, tools: ToolFormat, text: str) -> str | None:
    """A system text without the declarations at its end; None if there is nothing else."""
    begin = text.rfind(tools.before)
    if begin < 0 or not text.endswith(tools.after):
        return text
    written = text[begin + len(tools.before) : len(text) - len(tools.after)]
    reading.tools = tuple(_load_tools(reading, written, tools.separator))
    if begin == 0:
        return None
    return text[:begin].removesuffix(tools.joint)


def _load_tools(reading: _Reading, written: str, separator: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(written):
        try:
            tool, at = decoder.raw_decode(written, at)
        except ValueError as error:
            raise reading.wrong(f"a tool's definition as JSON ({error})") from error
        yield json.loads(reading.whole(json.dumps(tool, ensure_ascii=False)))
        at += len(separator)


def _read_turn(reading: _Reading, said: Sequence[Said]) -> Iterator[Said]:
    format, last = reading.format, said[-1].role if said else ""
    first = all(one.role != "user" for one in said)
    openings = sorted(_openings(format), key=lambda one: -len(one[0]))
    for opening, role in openings:
        marked = bool(find_marker(opening, format.markers))
        if role in ("assistant", "calls") and not marked and last not in ("user", "tool"):
            continue
        if role == "answer" and last != "tool":
            continue
        if not reading.text.startswith(opening, reading.at):
            continue
        if role == "user":
            reading.at += len(opening)
            yield from _read_user(reading, first=first)
        elif role == "tool":
            yield from _read_results(reading)
        elif role == "tools":
            _read_declared(reading)
            if not reading.take(format.user.before):
                raise reading.wrong(repr(format.user.before))
            yield from _read_user(reading, first=first)
        elif role == "system" and format.system is not None:
            reading.at += len(opening)
            yield Said("system", reading.whole(reading.until(format.system.after)))
        else:
            reading.at += 0 if role == "calls" else len(opening)
            yield _read_assistant(reading, calls=role == "calls")
        return
    wanted = " or ".join(sorted({repr(opening) for opening, _ in openings if opening}))
    raise reading.wrong(wanted)


def _read_declared(reading: _Reading) -> None:
    """Declarations at the place of reading, which are passed over."""
    tools = reading.format.tools
    assert tools is not None
    reading.take(tools.before)
    end = reading.text.find(tools.after, reading.at)
    if end < 0:
        raise reading.wrong(f"declarations of tools that end with {tools.after!r}")
    if tools.style == "json":
        end = _json_end(reading, tools)
    written = reading.text[reading.at : end]
    reading.tools = tuple(_load_tools(reading, written, tools.separator))
    reading.at = end + len(tools.after)


def _json_end(reading: _Reading, tools: ToolFormat) -> int:
    """Where the last of several JSON values in a row ends."""
    decoder, at = json.JSONDecoder(), reading.at
    while reading.text.startswith("{", at):
        try:
            _, end = decoder.raw_decode(reading.text, at)
        except ValueError:
            break
        at = end
        if not reading.text.startswith(tools.separator + "{", at):
            return at
        at += len(tools.separator)
    raise reading.wrong("a tool's definition as JSON")


def _read_user(reading: _Reading, first: bool) -> Iterator[Said]:
    format, tools, system = reading.format, reading.format.tools, reading.format.system
    if tools is not None and tools.placement == "first-user" and first:
        if reading.text.startswith(tools.before, reading.at):
            _read_declared(reading)
            text = undo_set_apart(reading.until(format.user.after))
            yield Said("user", reading.whole(text))
            return
    elif (
        system is not None
        and system.inside
        and find_marker(system.before, format.markers)
        and reading.take(system.before)
    ):
        end = re.compile(re.escape(system.after.rstrip())).search(reading.text, reading.at)
        if end is None:
            raise reading.wrong(f"a system message that ends with {system.after!r}")
        yield Said("system", reading.whole(reading.text[reading.at : end.start()]))
        reading.at = end.end()
        reading.take(system.after.removeprefix(system.after.rstrip()))
    yield Said("user", reading.whole(reading.until(format.user.after)))


def _read_assistant(reading: _Reading, calls: bool) -> Said:
    """An answer. With `calls` the place of reading is before what opens it."""
    format, tools = reading.format, reading.format.tools
    turn = format.assistant
    if calls and tools is not None:
        reading.take(turn.before if tools.assistant_before is None else tools.assistant_before)
    written = reading.until(turn.after)
    if tools is not None and tools.call:
        begin = written.find(tools.calls_before + pieces(tools.call)[0])
        found = _read_calls(reading, tools, written[begin:]) if begin >= 0 else ()
        if found:
            text = written[:begin].removesuffix(tools.text_joint) if begin else ""
            return Said("assistant", reading.whole(text), found)
    return Said("assistant", without_empty_thought(format, reading.whole(written)))


def _read_calls(reading: _Reading, tools: ToolFormat, written: str) -> tuple[SaidCall, ...]:
    """The calls, if the text is nothing else."""
    inner = written.removeprefix(tools.calls_before)
    if tools.calls_after:
        if not inner.endswith(tools.calls_after):
            return ()
        inner = inner[: -len(tools.calls_after)]
    found: list[SaidCall] = []
    at = 0
    while at < len(inner):
        read = _read_call(tools, inner, at)
        if read is None:
            return ()
        values, at = read
        arguments = reading.whole(values.get("arguments", "{}"))
        found.append(SaidCall(values.get("name", ""), arguments, values.get("id", "")))
        if at < len(inner) and not inner.startswith(tools.calls_separator, at):
            return ()
        at += len(tools.calls_separator) if at < len(inner) else 0
    return tuple(found)


def _read_call(tools: ToolFormat, text: str, at: int) -> tuple[Mapping[str, str], int] | None:
    parts, values = pieces(tools.call), dict[str, str]()
    for number, part in enumerate(parts):
        if number % 2 == 0:
            if not text.startswith(part, at):
                return None
            at += len(part)
            continue
        end = _value_end(tools, part, text, at, parts[number + 1])
        if end is None:
            return None
        values[part], at = text[at:end], end
    return values, at


def _value_end(tools: ToolFormat, name: str, text: str, at: int, then: str) -> int | None:
    if name == "arguments" and not tools.raw_arguments:
        try:
            return json.JSONDecoder().raw_decode(text, at)[1]
        except ValueError:
            return None
    end = text.find(then, at)
    return None if end < 0 else end


def _read_results(reading: _Reading) -> Iterator[Said]:
    tools = reading.format.tools
    assert tools is not None
    kinds = {"content": "(.*?)", "json": r'("(?:[^"\\]|\\.)*")', "id": '([^"<\\s]*)'}
    parts = pieces(tools.result)
    source = "".join(re.escape(p) if n % 2 == 0 else kinds[p] for n, p in enumerate(parts))
    pattern, names = re.compile(source, re.DOTALL), parts[1::2]
    reading.take(tools.results_before)
    while found := pattern.match(reading.text, reading.at):
        values = dict(zip(names, found.groups(), strict=True))
        content = values.get("content")
        text = json.loads(values["json"]) if content is None else content
        yield Said("tool", reading.whole(text), answers=reading.whole(values.get("id", "")))
        reading.at = found.end()
        if not tools.results_before and not tools.results_after:
            return
        reading.take(tools.results_separator)
    if not reading.take(tools.results_after):
        raise reading.wrong(repr(tools.results_after))
