"""Which format a template writes, or a rendered prompt is in: one of the known formats, or one that
is read off.

Found out by comparing texts, never by names. An unknown format is read off by probes, texts that
nobody writes, which show the markers around them and what is trimmed; the conversations below
choose among the descriptions that are possible.
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
    Trim,
    TurnMarkers,
    changed,
    find_marker,
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
    texts = [_ask(render, messages, asks)[0] for messages, asks in CONVERSATIONS]
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


def _ask(
    render: Render, messages: Sequence[Mapping[str, Any]], prompt: bool = False
) -> tuple[str | None, str]:
    """What a template writes; None where it refuses, and why."""
    talk = [dict(message) for message in messages]
    try:
        text: Any = render(talk, tools=None, add_generation_prompt=prompt)
    except Exception as error:  # noqa: BLE001  a stranger's template may raise anything
        return None, str(error) or type(error).__name__
    return (text, "") if isinstance(text, str) else (None, "what it renders is no text")


def infer_format(
    render: Render, *, name: str = "inferred", bos: str = "", eos: str = ""
) -> ChatFormat:
    """Return the description of the format that `render` writes: of those that the probes allow,
    the one that writes most of the conversations as it does.

    An error of `render`, of any kind, counts as refused. `bos`, `eos`: the tokens that the template
    was given, if any.

    Raises:
        InputError: not even a message of the user is rendered so that it can be found in the text.
    """
    texts = [_ask(render, messages, asks)[0] for messages, asks in CONVERSATIONS]
    best: tuple[int, ChatFormat | None] = (-1, None)
    for fields in _read_turns(render):
        format = ChatFormat(name=name, title="read off from a template", eos=eos, **fields)
        format = _with_system(render, format, bos)
        own = [_render(format, messages, asks) for messages, asks in CONVERSATIONS]
        same = sum(a == b for a, b in zip(texts, own, strict=True))
        best = max(best, (same, format), key=lambda pair: pair[0])
    if best[1] is None:
        raise InputError("the template's markers follow no rule that a format here can have")
    format = best[1]
    marker = find_marker(format.assistant.after, format.markers)
    return changed(format, stop=tuple(dict.fromkeys(filter(None, (marker, eos)))))


_PROBES = ("Zqua", "Zqaa", "Zqub", "Zqab", "Zquc")
_KNOWN_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<BOS_TOKEN>", "<｜begin▁of▁sentence｜>")
_WHOLE = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]+\]|\w+")


def _around(
    render: Render, texts: Sequence[str], prompt: bool = False, **more: str
) -> list[str] | None:
    """Return the texts before, between and after the messages of a conversation, if each
    message stands in the rendered text once, in order."""
    messages = talk(*texts, **more)
    text = _ask(render, messages, prompt)[0]
    parts: list[str] = []
    for message in messages if text is not None else ():
        before, content, text = (text or "").partition(message["content"])
        if not content or message["content"] in text:
            return None
        parts.append(before)
    return None if text is None else [*parts, text]


def _read_turns(render: Render) -> Iterator[dict[str, Any]]:
    """The fields of formats whose user and assistant are surrounded so; the likeliest first."""
    alone, prompted = (_around(render, _PROBES[:1], prompt) for prompt in (False, True))
    between, answered = _around(render, _PROBES), _around(render, _PROBES[:2])
    if alone is None or prompted is None or between is None or answered is None:
        reason = _ask(render, talk(*_PROBES))[1] or "texts are not rendered once each, in order"
        raise InputError(f"the template does not render a talk of user and assistant: {reason}")
    padded, answer = _ask(render, talk("  Zqu \n"))[0], _ask(render, talk("x", "  Zqa \n", "y"))[0]
    trims = (_find_trim(padded or "", "Zqu"), _find_trim(answer or "", "Zqa"))
    again = _ask(render, talk(*_PROBES[:2]), True)[0] or ""
    shared = {
        "alternate": _ask(render, [*talk("a"), *talk("b")])[0] is None,
        "generation_after_assistant": not prompted[1] or again.endswith(prompted[1][-8:]),
    }
    for end in _cut(between[1], alone[1], prompted[1]):
        fields = _fields_of_turns(end, alone, prompted[1], answered[2], between, trims)
        if fields is not None:
            yield fields | shared


def _find_trim(text: str, probe: str) -> Trim:
    left, right = f"  {probe}" not in text, f"{probe} \n" not in text
    if left and right:
        return "both"
    return "left" if left else "right" if right else "none"


def _count_common(*texts: str) -> int:
    """How many characters all texts begin with."""
    letters = zip(*texts, strict=False)
    different = (n for n, letter in enumerate(letters) if len(set(letter)) > 1)
    return next(different, min(map(len, texts)))


def _cut(*texts: str) -> Iterator[str]:
    """Common beginnings of texts that end inside no token and no word, the longest first."""
    tokens = [token.span() for text in texts for token in _WHOLE.finditer(text)]
    for cut in range(_count_common(*texts), -1, -1):
        if not any(start < cut < end for start, end in tokens):
            yield texts[0][:cut]


def _fields_of_turns(
    end: str,
    alone: Sequence[str],
    prompted: str,
    answered: str,
    between: Sequence[str],
    trims: tuple[Trim, Trim],
) -> dict[str, Any] | None:
    """A format's fields, if the user's turn ends so; None if that contradicts itself. Between a
    question and its answer stand the user's end, a separator and the assistant's beginning."""
    to_answer, to_question = between[1], between[2]
    ending = alone[1][len(end) :]
    answer_end = answered[: len(answered) - len(ending)]
    if not answered.endswith(ending) or not to_question.startswith(answer_end):
        return None
    opening, head = to_question[len(answer_end) :], alone[0]
    shared = len(opening) - _count_common(opening[::-1], head[::-1])
    separator, begin = opening[:shared], opening[shared:]
    if not to_answer[len(end) :].startswith(separator):
        return None
    return {
        "user": TurnMarkers(before=begin, after=end, trim=trims[0]),
        "assistant": TurnMarkers(
            before=to_answer[len(end) + len(separator) :], after=answer_end, trim=trims[1]
        ),
        "separator": separator,
        "generation": prompted[len(end) :],
        "ending": ending,
        "bos": head[: len(head) - len(begin)],
    }


def _with_system(render: Render, format: ChatFormat, bos: str) -> ChatFormat:
    """The format with its system message; without one where the template drops it, or writes it
    where no format here has it. What a text without one begins with is a default text."""
    head, user = format.bos, format.user.before
    plain = changed(format, bos=head or bos, writes_bos=bool(head))
    system = "Zqsys"
    text = _ask(render, talk(*_PROBES[:3], system=system))[0] or ""
    around = _around(render, _PROBES[:1], system=system)
    if around is None or system not in text:
        return plain
    trim = _find_trim(_ask(render, talk("x", system=f"  {system} \n"))[0] or "", system)
    is_last = text.find(system) > text.find(_PROBES[0])
    if is_last or not user or not around[1].endswith(format.separator + user):
        if not around[0].startswith(head + user):
            return plain
        placement = "last-user" if is_last else "first-user"
        before = around[0][len(head + user) :]
        turn = SystemTurn(before=before, after=around[1], placement=placement, trim=trim)
        return changed(plain, system=turn)
    default, start = None, head + user
    if start.startswith(around[0]) and start[len(around[0]) :].endswith(around[1]):
        default = start[len(around[0]) : len(start) - len(around[1])]
    if default is not None or not around[0].startswith(head):
        tokens = (token for token in (bos, *_KNOWN_BOS) if token)
        head = next((token for token in tokens if around[0].startswith(token)), "")
    before, after = around[0][len(head) :], around[1].removesuffix(format.separator + user)
    turn = SystemTurn(
        before=before,
        after=after,
        placement="turn" if before.strip() else "prefix",
        default=default if before or after or format.separator else None,
        later=_ask(render, [*talk("a", "b"), *talk("c", system=system)])[0] is not None,
        trim=trim,
    )
    return changed(format, bos=head or bos, writes_bos=bool(head), system=turn)
