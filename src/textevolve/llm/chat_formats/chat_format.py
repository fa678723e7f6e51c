"""What an instruction format is, in one frozen description, and how conversations are written.

Roles with their markers, where the system message goes, the rules of order, trimming, the prompt
for the next answer, tools. Which formats there are: `catalogue`. Back from text: `parsing`. Read
off from a template: `inference`. What a format cannot express is refused, never dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from textevolve.llm.chat_formats.conversation import (
    OnMarker,
    Said,
    broken_messages,
    read_said,
)
from textevolve.llm.chat_formats.order import check_order
from textevolve.llm.chat_formats.tools import ToolFormat, write_calls, write_results, write_tools
from textevolve.llm.fence import JOINER
from textevolve.spec import Frozen

_TOKEN = re.compile(
    r"<\|[^|\s<>]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<</?\w{1,40}>>|</?[A-Za-z_]\w{0,40}>|\[/?[A-Z_]{2,40}\]"
)

Trim = Literal["none", "both", "left", "right"]


class TurnMarkers(Frozen):
    """A role's markers around its text, and which white space of the text goes."""

    before: str
    after: str
    trim: Trim = "none"


class SystemTurn(TurnMarkers):
    """The system message. `placement`: a turn of its own, a prefix without marker, or inside the
    first or the last turn of the user. `preamble`: stands between `before` and the text of a first
    system message. `default`: its text where the conversation has none; None: nothing is written
    but `absent`.
    `later`: system messages may also come later, as turns. `written_empty`: not so if an empty one
    is left out. `joined_trim`: what is trimmed of a user's turn that holds the system text, too."""

    placement: Literal["turn", "prefix", "first-user", "last-user"] = "turn"
    preamble: str = ""
    default: str | None = None
    absent: str = ""
    later: bool = False
    written_empty: bool = True
    joined_trim: Literal["content", "whole", "none"] = "content"

    @property
    def inside(self) -> bool:
        """Whether it is written inside a turn of the user."""
        return self.placement in ("first-user", "last-user")


class Thoughts(Frozen):
    """How thoughts in the text of an assistant are treated: those of earlier answers are dropped
    together with the white space after them that `strip` names; with `wrap` the last answer, if it
    follows the last question, is written with its thoughts, even where it has none. With
    `plain_only` answers that call tools, or answer to them, keep theirs."""

    opening: str = "<think>"
    closing: str = "</think>"
    strip: str = ""
    wrap: bool = False
    plain_only: bool = False


class ChatFormat(Frozen):
    """An instruction format. `bos`: the text of the token that begins a prompt; `writes_bos` says
    whether it is written, or left to the tokenizer. `separator`: between turns. `generation`: what
    asks for the next answer; `ending`: what ends a text that asks for none. `alternate`: user and
    assistant take turns, the user first. `stop`: texts at which an answer ends."""

    name: str
    title: str
    user: TurnMarkers
    assistant: TurnMarkers
    system: SystemTurn | None = None
    bos: str = ""
    writes_bos: bool = False
    eos: str = ""
    separator: str = ""
    generation: str = ""
    generation_after_assistant: bool = True
    ending: str = ""
    alternate: bool = False
    stop: tuple[str, ...] = ()
    thoughts: Thoughts | None = None
    tools: ToolFormat | None = None
    more_markers: tuple[str, ...] = ()
    differences: tuple[str, ...] = Field(
        default=(), description="What published templates of the family do otherwise, in sentences."
    )

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Every text by which a change of speaker could be forged: control tokens, and the words
        that stand in their place where the format has none."""
        turns = [self.user, self.assistant, *([self.system] if self.system else [])]
        found: dict[str, None] = {}
        for turn in turns:
            found |= dict.fromkeys(_markers_in(turn.before, words=True))
            found |= dict.fromkeys(_markers_in(turn.after))
        for text in (self.bos, self.eos, self.generation, self.ending, *self.stop):
            found |= dict.fromkeys(_markers_in(text))
        if self.tools is not None:
            for text in self.tools.marking:
                found |= dict.fromkeys(_markers_in(text))
        return tuple(found | dict.fromkeys(self.more_markers))

    @cached_property
    def word_markers(self) -> tuple[str, ...]:
        """Those of the markers that are plain words, such as `USER:`."""
        return tuple(marker for marker in self.markers if not _TOKEN.fullmatch(marker))


def _markers_in(text: str, words: bool = False) -> list[str]:
    found = _TOKEN.findall(text)
    return found if found or not words else [text.strip()] if text.strip() else []


def changed(format: ChatFormat, **fields: Any) -> ChatFormat:
    """The format with other values of some fields."""
    return ChatFormat(**{name: getattr(format, name) for name in ChatFormat.model_fields} | fields)


def trimmed(text: str, how: Trim) -> str:
    if how == "both":
        return text.strip()
    return text.lstrip() if how == "left" else text.rstrip() if how == "right" else text


def render_chat(
    format: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    on_marker: OnMarker = "neutralise",
) -> str:
    """The conversation in a format, as a prompt.

    `messages`: those of the chat protocol; `tools`: its function definitions. `on_marker`: what
    becomes of a marker of the format inside a text; with "keep" the result is byte-equal to the
    published template, whoever wrote the marker.

    Raises:
        InputError: the format cannot express the conversation; says what to do.
    """
    said = settle_chat(format, messages, tools, on_marker)
    if tools and on_marker == "neutralise":
        said = _set_apart(format, said)
    declared = write_tools(format.tools, tools or (), format.markers, on_marker) if tools else ""
    turns = _write(format, said, declared)
    text = (format.bos if format.writes_bos else "") + _absent(format, said[0])
    text += format.separator.join(turns)
    return text + closing_of(format, said[-1].role, add_generation_prompt)


def _absent(format: ChatFormat, first: Said) -> str:
    return format.system.absent if format.system is not None and first.role != "system" else ""


_LIKE_A_TOOL = re.compile(rf"{JOINER}*{{")


def _set_apart(format: ChatFormat, said: Sequence[Said]) -> list[Said]:
    """The messages, with a joiner before a question that could pass for one more declaration,
    where nothing but its place tells it from the declarations before it."""
    if format.tools is None or format.tools.placement != "first-user":
        return list(said)
    n = next(n for n, one in enumerate(said) if one.role == "user")
    text = trimmed(said[n].text, format.user.trim)
    if not _LIKE_A_TOOL.match(text):
        return list(said)
    return [*said[:n], Said("user", JOINER + text), *said[n + 1 :]]


def undo_set_apart(text: str) -> str:
    """A question behind declarations as it was."""
    return text[1:] if text.startswith(JOINER) and _LIKE_A_TOOL.match(text) else text


def closing_of(format: ChatFormat, last: str, add_generation_prompt: bool) -> str:
    """What a text ends with after a message of the role `last`."""
    if not add_generation_prompt:
        return format.ending
    if last == "tool" and format.tools is not None and format.tools.answer_before is not None:
        return format.tools.answer_before
    if last == "assistant" and not format.generation_after_assistant:
        return ""
    return format.generation


def settle_chat(
    format: ChatFormat,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    on_marker: OnMarker = "neutralise",
) -> list[Said]:
    """The messages as the format lets a model see them: checked, trimmed, with the default system
    message, without the thoughts that the format drops.

    Raises:
        InputError: the format cannot express the conversation; says what to do.
    """
    said = read_said(messages)
    check_order(format, said, bool(tools))
    said = list(broken_messages(said, format.markers, on_marker))
    system = format.system
    if system is not None and system.default is not None and said[0].role != "system":
        said = [Said("system", system.default), *said]
    last_question = max((n for n, one in enumerate(said) if one.role == "user"), default=len(said))
    return [_settled(format, said, n, answering=n > last_question) for n in range(len(said))]


def _settled(format: ChatFormat, said: Sequence[Said], n: int, answering: bool) -> Said:
    one = said[n]
    text, thought, thoughts = one.text, one.thought, format.thoughts
    if one.role == "assistant":
        plain = not one.calls and (n == 0 or said[n - 1].role != "tool")
        if thoughts is not None and (plain or not thoughts.plain_only):
            text, thought = _think(thoughts, text, thought, n == len(said) - 1, answering)
        text = trimmed(text, format.assistant.trim)
    elif one.role == "system" and format.system is not None:
        text = trimmed(text, format.system.trim)
    if text is one.text and thought is one.thought:
        return one
    return one._replace(text=text, thought=thought)


def _think(
    thoughts: Thoughts, text: str, thought: str, last: bool, answering: bool
) -> tuple[str, str]:
    """The text of an answer as it is written, and nothing beside it."""
    if not thought and thoughts.closing in text:
        thought = text.split(thoughts.closing)[0].split(thoughts.opening)[-1]
        text = text.split(thoughts.closing)[-1]
        text = text.lstrip(thoughts.strip) if thoughts.strip else text
    thought, newline = thought.strip("\n"), "\n"
    if thoughts.wrap and answering and (last or thought):
        wrapped = f"{thoughts.opening}\n{thought}\n{thoughts.closing}\n\n"
        return wrapped + text.lstrip(newline), ""
    return text, ""


def _write(format: ChatFormat, said: Sequence[Said], declared: str) -> list[str]:
    """The turns, in order."""
    system, tools = format.system, format.tools
    rest = list(said)
    opening = rest.pop(0) if rest[0].role == "system" else None
    turns: list[str] = []
    inside = ""
    if system is not None and system.inside:
        inside = f"{system.before}{opening.text}{system.after}" if opening else ""
    elif opening is not None or (declared and tools and tools.placement == "system"):
        turns.extend(_system_turn(format, opening, declared))
    users = [n for n, one in enumerate(rest) if one.role == "user"]
    n = 0
    while n < len(rest):
        one = rest[n]
        if one.role == "tool":
            end = next((m for m in range(n, len(rest)) if rest[m].role != "tool"), len(rest))
            turns.append(write_results(_tools(format), rest[n:end]))
            n = end
            continue
        if one.role == "user":
            aimed = users[-1] if system and system.placement == "last-user" else users[0]
            turns.append(
                _user_turn(
                    format,
                    one.text,
                    inside if n == aimed else "",
                    (declared if declared and n == _declaring(format, users) else ""),
                )
            )
        elif one.role == "assistant":
            turns.append(_assistant_turn(format, one, n > 0 and rest[n - 1].role == "tool"))
        elif system is not None and (one.text or system.written_empty):
            turns.append(system.before + one.text + system.after)
        n += 1
    return turns


def _declaring(format: ChatFormat, users: Sequence[int]) -> int:
    placement = format.tools.placement if format.tools else None
    return {"first-user": users[0], "last-user": users[-1]}.get(placement or "", -1)


def _system_turn(format: ChatFormat, opening: Said | None, declared: str) -> Iterable[str]:
    system, tools = format.system, format.tools
    assert system is not None
    here = declared if tools is not None and tools.placement == "system" else ""
    if opening is not None and not opening.text and not system.written_empty and not here:
        return
    mark = tools.system_mark if tools is not None and declared else ""
    text = opening.text if opening is not None else ""
    joint = tools.joint if tools is not None and here and opening is not None else ""
    yield f"{system.before}{mark}{system.preamble}{text}{joint}{here}{system.after}"


def _user_turn(format: ChatFormat, text: str, inside: str, declared: str) -> str:
    user, tools = format.user, format.tools
    how = format.system.joined_trim if format.system is not None and inside else "content"
    if how == "content":
        text = inside + trimmed(text, user.trim)
    else:
        text = trimmed(inside + text, user.trim if how == "whole" else "none")
    if declared and tools is not None and tools.placement == "last-user":
        return declared + user.before + text + user.after
    return user.before + declared + text + user.after


def _assistant_turn(format: ChatFormat, one: Said, answers_tool: bool) -> str:
    turn, tools = format.assistant, format.tools
    if one.calls and tools is not None:
        before = turn.before if tools.assistant_before is None else tools.assistant_before
        return write_calls(tools, one, before, turn.after)
    if answers_tool and tools is not None and tools.answer_before is not None:
        return tools.answer_before + one.text + turn.after
    return turn.before + one.text + turn.after


def _tools(format: ChatFormat) -> ToolFormat:
    assert format.tools is not None  # check_order has refused it otherwise
    return format.tools


def seen_messages(
    format: ChatFormat, messages: Sequence[Mapping[str, Any]], on_marker: OnMarker = "neutralise"
) -> list[Said]:
    """The messages as they can be read back from the format: a system message inside a user's turn
    that no marker sets apart is the beginning of that turn's text."""
    said = settle_chat(format, messages, None, on_marker)
    system = format.system
    opening = said[0] if system is not None and said[0].role == "system" else None
    if system is None or opening is None:
        return [_as_seen(format, one) for one in said]
    if not system.inside:
        unwritten = not opening.text and not (system.written_empty and _shows(format, system))
        return [_as_seen(format, one) for one in said[1 if unwritten else 0 :]]
    rest = said[1:]
    users = [n for n, one in enumerate(rest) if one.role == "user"]
    aimed = users[-1] if system.placement == "last-user" else users[0]
    whole = _user_turn(format, rest[aimed].text, system.before + opening.text + system.after, "")
    text = whole[len(format.user.before) : len(whole) - len(format.user.after)]
    joined = [Said("user", text)]
    if _markers_in(system.before + system.after):
        kept = text.removeprefix(system.before + opening.text).removeprefix(system.after.rstrip())
        white = system.after.removeprefix(system.after.rstrip())
        joined = [Said("system", opening.text), Said("user", kept.removeprefix(white))]
    after = [_as_seen(format, one) for one in rest[aimed + 1 :]]
    return [*(_as_seen(format, one) for one in rest[:aimed]), *joined, *after]


def _shows(format: ChatFormat, system: SystemTurn) -> bool:
    """Whether an empty system message leaves any trace."""
    return bool(system.before or system.after or format.separator)


def _as_seen(format: ChatFormat, one: Said) -> Said:
    if one.role == "user":
        return Said("user", trimmed(one.text, format.user.trim))
    if one.role == "assistant" and not one.calls:
        return Said("assistant", without_empty_thought(format, one.text))
    return one


def without_empty_thought(format: ChatFormat, text: str) -> str:
    """An answer without the empty thought that the format writes where there was none."""
    thoughts = format.thoughts
    if thoughts is None or not thoughts.wrap:
        return text
    return text.removeprefix(f"{thoughts.opening}\n\n{thoughts.closing}\n\n")
