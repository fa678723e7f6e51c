"""Which format a template writes, or a rendered prompt is in: one of the known formats, or one that
is read off.

Found out by comparing texts, never by names. An unknown format is read off by probes, texts that
nobody writes, which show the markers around them. What they leave open (trimming, order, thoughts)
is chosen by a fixed list of conversations that template and description both render; on
which of them the two are equal is said with the description.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    SystemTurn,
    Thoughts,
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
    template = _Template(render)
    texts = [template.ask(messages, asks) for messages, asks in CONVERSATIONS]
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


@dataclass(frozen=True, slots=True)
class SampleChat:
    """Messages of the chat protocol. `prompt`: whether they end with the prompt for an answer."""

    messages: Sequence[Mapping[str, Any]]
    prompt: bool


@dataclass(frozen=True, slots=True)
class RenderDifference:
    """A conversation that is written in two ways. `expected`: by the template; None: it refuses.
    `got`: by the description; None: it refuses, so that nothing wrong is written."""

    conversation: SampleChat
    expected: str | None
    got: str | None


@dataclass(frozen=True, slots=True)
class Inference:
    """The description, with those of the `conversations` that it does not write as the template
    does. `faithful`: all that it writes is equal; the rest it refuses."""

    format: ChatFormat
    conversations: int
    differences: tuple[RenderDifference, ...]

    @property
    def faithful(self) -> bool:
        return all(difference.got is None for difference in self.differences)


def _sample_chats() -> Iterator[SampleChat]:
    kind, thought = "Be kind.", "<think>t</think>\n\nz"
    asides: tuple[str | None, ...] = (None, kind, " s \n", "")
    samples = (
        (_TIDES[:1], asides[:3]),
        (_TIDES[:2], asides[:3]),
        (_TIDES, asides[:2]),
        (("  x \n", "Ha", " z\n"), asides[:3]),
        (("Hi", "\n\ny \n", "Why?"), asides[:2]),
        (("", "Ha"), asides[::3]),
        (("Hi", "", "Why?"), asides[::3]),
        (("Hi", thought), asides[::3]),
        (("Hi", thought, "Why?"), asides[:1]),
        (("Hi", thought, "Why?", "<think>\nu\n</think>\nBecause."), asides[:1]),
    )
    for texts, systems in samples:
        for system in systems:
            yield SampleChat(talk(*texts, system=system), len(texts) % 2 == 1)
    yield SampleChat(talk(*_TIDES[:2]), True)
    yield SampleChat(talk(_TIDES[0]), False)
    yield SampleChat([*talk("Hi"), *talk("Why?")], True)
    yield SampleChat([*talk("Hi", "Ha"), *talk("Why?", system=kind)], True)


_SAMPLES = tuple(_sample_chats())
"""What a description is chosen by, and compared on."""


@dataclass(slots=True)
class _Template:
    """A template, asked each thing once. `no_tools`: what it takes for none."""

    render: Render
    answers: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    error: str = ""
    no_tools: list[Any] | None = None

    def ask(self, messages: Sequence[Mapping[str, Any]], prompt: bool = False) -> str | None:
        """The text; None where it refuses, with the reason in `error`."""
        key = repr((messages, prompt))
        if key not in self.answers:
            self.answers[key] = None
            try:
                text: Any = self.render(
                    [dict(message) for message in messages],
                    tools=self.no_tools,
                    add_generation_prompt=prompt,
                )
            except Exception as error:  # noqa: BLE001  a stranger's template may raise anything
                self.error = str(error) or type(error).__name__
            else:
                self.error = "" if isinstance(text, str) else "what it renders is no text"
                self.answers[key] = text if isinstance(text, str) else None
        return self.answers[key]

    def around(self, texts: Sequence[str], prompt: bool = False, **more: str) -> list[str] | None:
        """Return the texts before, between and after the messages of a conversation, if each
        message stands in the rendered text once, in order."""
        messages = talk(*texts, **more)
        text = self.ask(messages, prompt)
        parts: list[str] = []
        for message in messages if text is not None else ():
            before, content, text = (text or "").partition(message["content"])
            if not content or message["content"] in text:
                return None
            parts.append(before)
        return None if text is None else [*parts, text]

    def differences(self, format: ChatFormat) -> Iterator[RenderDifference]:
        for sample in _SAMPLES:
            expected = self.ask(sample.messages, sample.prompt)
            text = _render(format, sample.messages, sample.prompt)
            if expected != text:
                yield RenderDifference(sample, expected, text)

    def count_wrong(self, format: ChatFormat, enough: float = float("inf")) -> int:
        """How wrong a format is: what is written otherwise counts more than what is refused
        without need. Nothing is counted beyond `enough`."""
        wrong = 0
        for difference in self.differences(format):
            wrong += 1 if difference.got is None else 100
            if wrong >= enough:
                break
        return wrong


def infer_format(
    render: Render, *, name: str = "inferred", bos: str = "", eos: str = ""
) -> Inference:
    """The description of the format that `render` writes, and where the two differ.

    An error of `render`, of any kind, counts as refused. `bos`, `eos`: the tokens that the template
    was given, if any.

    Raises:
        InputError: not even a message of the user is rendered so that it can be found in the text.
    """
    template = _Template(render)
    best: tuple[float, ChatFormat | None] = (float("inf"), None)
    for fields in _read_turns(template):
        format = ChatFormat(name=name, title="read off from a template", eos=eos, **fields)
        format = _refine(template, _with_system(template, format, bos))
        best = min(best, (template.count_wrong(format), format), key=lambda pair: pair[0])
        if not best[0]:
            break
    if best[1] is None:
        raise InputError("the template's markers follow no rule that a format here can have")
    format = best[1]
    marker = find_marker(format.assistant.after, format.markers)
    format = changed(format, stop=tuple(dict.fromkeys(filter(None, (marker, eos)))))
    return Inference(format, len(_SAMPLES), tuple(template.differences(format)))


_PROBES = ("Zqua", "Zqaa", "Zqub", "Zqab", "Zquc")
_KNOWN_BOS = ("<s>", "<|begin_of_text|>", "<bos>", "<BOS_TOKEN>", "<｜begin▁of▁sentence｜>")
_WHOLE = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]+\]|\w+")
_CUTS_TRIED = 12


def _read_turns(template: _Template) -> Iterator[dict[str, Any]]:
    """The fields of formats whose user and assistant are surrounded so; the likeliest first."""
    if template.ask(talk(_PROBES[0])) is None:
        template.answers.clear()
        template.no_tools = []  # some templates bear an empty list alone
    alone = template.around(_PROBES[:1])
    if alone is None:
        reason = template.error or "its text is not in what is rendered"
        raise InputError(f"the template does not render a message of the user: {reason}")
    prompted = template.around(_PROBES[:1], prompt=True)
    between, answered = template.around(_PROBES), template.around(_PROBES[:2])
    if prompted is None or between is None or answered is None:
        reason = template.error or "texts are not rendered once each, in order"
        raise InputError(f"the template does not render a talk of user and assistant: {reason}")
    tried = 0
    for end in _cut(between[1], alone[1], prompted[1]):
        fields = _fields_of_turns(end, alone, prompted[1], answered[2], between)
        if fields is not None and tried < _CUTS_TRIED:
            tried += 1
            yield fields


def count_common(*texts: str) -> int:
    """How many characters all texts begin with."""
    letters = zip(*texts, strict=False)
    different = (n for n, letter in enumerate(letters) if len(set(letter)) > 1)
    return next(different, min(map(len, texts)))


def _cut(*texts: str) -> Iterator[str]:
    """Common beginnings of texts that end inside no token and no word, the longest first."""
    tokens = [token.span() for text in texts for token in _WHOLE.finditer(text)]
    for cut in range(count_common(*texts), -1, -1):
        if not any(start < cut < end for start, end in tokens):
            yield texts[0][:cut]


def _fields_of_turns(
    end: str, alone: Sequence[str], prompted: str, answered: str, between: Sequence[str]
) -> dict[str, Any] | None:
    """A format's fields, if the user's turn ends so; None if that contradicts itself. Between a
    question and its answer stand the user's end, a separator and the assistant's beginning."""
    to_answer, to_question = between[1], between[2]
    ending = alone[1][len(end) :]
    answer_end = answered[: len(answered) - len(ending)]
    if not answered.endswith(ending) or not to_question.startswith(answer_end):
        return None
    opening, head = to_question[len(answer_end) :], alone[0]
    shared = len(opening) - count_common(opening[::-1], head[::-1])
    separator, begin = opening[:shared], opening[shared:]
    if not to_answer[len(end) :].startswith(separator):
        return None
    return {
        "user": TurnMarkers(before=begin, after=end),
        "assistant": TurnMarkers(before=to_answer[len(end) + len(separator) :], after=answer_end),
        "separator": separator,
        "generation": prompted[len(end) :],
        "ending": ending,
        "bos": head[: len(head) - len(begin)],
    }


def _with_system(template: _Template, format: ChatFormat, bos: str) -> ChatFormat:
    """The format with its system message; without one where the template drops it, or writes it
    where no format here has it. What a text without one begins with is a default text."""
    head, user = format.bos, format.user.before
    plain = changed(format, bos=head or bos, writes_bos=bool(head))
    system = "Zqsys"
    text = template.ask(talk(*_PROBES[:3], system=system)) or ""
    around = template.around(_PROBES[:1], system=system)
    if around is None or system not in text:
        return plain
    is_last = text.find(system) > text.find(_PROBES[0])
    if is_last or not user or not around[1].endswith(format.separator + user):
        if not around[0].startswith(head + user):
            return plain
        placement = "last-user" if is_last else "first-user"
        before = around[0][len(head + user) :]
        turn = SystemTurn(before=before, after=around[1], placement=placement)
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
        later=True,
    )
    return changed(format, bos=head or bos, writes_bos=bool(head), system=turn)


def _vary(format: ChatFormat) -> Iterator[ChatFormat]:
    """Vary the rules that the markers leave open."""
    variations: list[tuple[str, str, tuple[Any, ...]]] = [
        (turn, "trim", ("none", "both", "left", "right")) for turn in ("user", "assistant")
    ]
    if format.system is not None:
        variations.append(("system", "trim", ("none", "both", "left", "right")))
        variations.append(("system", "joined_trim", ("content", "whole", "none")))
        variations.append(("system", "written_empty", (not format.system.written_empty,)))
    for turn, rule, values in variations:
        for value in values:
            yield changed(format, **{turn: getattr(format, turn).model_copy(update={rule: value})})
    yield changed(format, generation_after_assistant=not format.generation_after_assistant)
    for strip in ("", "\n", " \t\r\n"):
        for wrap in (False, True):
            yield changed(format, thoughts=Thoughts(strip=strip, wrap=wrap))


def _narrow(format: ChatFormat) -> Iterator[ChatFormat]:
    """The format with less that it accepts."""
    yield changed(format, alternate=True)
    if format.system:
        yield changed(format, system=format.system.model_copy(update={"later": False}))
        yield changed(format, system=None)


def _refine(template: _Template, format: ChatFormat) -> ChatFormat:
    """The variation that the fewest conversations contradict, step by step; what is accepted is
    given up last, and of that as little as possible."""
    least = template.count_wrong(format)
    for variations in (_vary, _narrow, _vary):
        better: ChatFormat | None = format
        while least and better is not None:
            better = None
            for other in variations(format):
                wrong = template.count_wrong(other, least)
                if wrong < least:
                    better, least = other, wrong
            format = better or format
    return format
