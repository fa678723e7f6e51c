"""Conversations that are rendered by a template and by a description, to find what differs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.chat_format import ChatFormat, render_chat, settle_chat
from textevolve.llm.chat_formats.conversation import as_json


@dataclass(frozen=True, slots=True)
class RenderDifference:
    """A conversation that is written in two ways. `expected`: by the template; None: it refuses.
    `got`: by the description; None: it refuses."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    add_generation_prompt: bool
    expected: str | None
    got: str | None


@dataclass(slots=True)
class TemplateProbe:
    """The template, asked each thing once."""

    render: Callable[..., str]
    answers: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    error: str = ""
    without: Any = None  # what stands for no tools; some templates bear an empty list alone

    def ask(
        self, messages: Sequence[Mapping[str, Any]], prompt: bool = False, tools: Any = None
    ) -> str | None:
        key = repr((messages, prompt, tools))
        if key not in self.answers:
            try:
                text: Any = self.render(
                    [dict(one) for one in messages],
                    tools=tools or self.without,
                    add_generation_prompt=prompt,
                )
                self.answers[key] = text if isinstance(text, str) else None
                self.error = "" if isinstance(text, str) else "what it renders is no text"
            except Exception as error:  # noqa: BLE001  a stranger's template may raise anything
                self.error = str(error) or type(error).__name__
                self.answers[key] = None
        return self.answers[key]


def one_message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@dataclass(frozen=True, slots=True)
class TalkExample:
    messages: tuple[Mapping[str, Any], ...]
    prompt: bool
    tools: tuple[Mapping[str, Any], ...] = ()


def find_difference(
    probe: TemplateProbe, format: ChatFormat, example: TalkExample
) -> RenderDifference | None:
    expected = probe.ask(example.messages, example.prompt, list(example.tools) or None)
    try:
        got = render_chat(
            format,
            example.messages,
            tools=example.tools or None,
            add_generation_prompt=example.prompt,
            on_marker="keep",
        )
    except InputError:
        got = None
    if expected == got:
        return None
    return RenderDifference(example.messages, example.tools, example.prompt, expected, got)


def count_wrong(
    probe: TemplateProbe,
    format: ChatFormat,
    examples: Iterable[TalkExample],
    enough: int | None = None,
) -> int:
    """How wrong a format is: what differs counts more than what is refused without need. Nothing
    is counted beyond `enough`."""
    wrong = 0
    for example in examples:
        if (one := find_difference(probe, format, example)) is not None:
            wrong += 1 if one.got is None else 100
            if enough is not None and wrong >= enough:
                break
    return wrong


_TEXTS = (
    "Hi",
    "  x \n",
    "",
    "\n\ny\n",
    'é "q" \\ \'s',
    "<think>t</think>\n\nz",
    " ",
    "{a} {{ b }} $c",
)


def example_talks(seed: int, count: int) -> list[TalkExample]:
    """Conversations of all shapes; the same for the same seed."""
    draw = random.Random(seed)
    examples: list[TalkExample] = []
    for n in range(count):
        talk: list[Mapping[str, Any]] = []
        if n % 3:
            talk.append(one_message("system", draw.choice(_TEXTS)))
        for turn in range(draw.randint(1, 5)):
            role = ("user", "assistant")[turn % 2]
            if n % 4 == 0:
                role = draw.choice(("user", "assistant", "user", "assistant", "system"))
            talk.append(one_message(role, draw.choice(_TEXTS)))
        examples += [TalkExample(tuple(talk), prompt) for prompt in (False, True)]
    return examples


TOOLS = tuple(
    {
        "type": "function",
        "function": {"name": name, "description": told, "parameters": {"type": "object"}},
    }
    for name, told in (("look_up", "Looks é up"), ("count2", "Counts"))
)


def _call(id: str, arguments: Any) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


def tool_talks(raw: bool = False) -> Iterator[TalkExample]:
    """Conversations with tools. Arguments as an object, which is what servers hand to templates, or
    as JSON to those that want it `raw`."""
    ids = ("Zq1234567", "Zq7654321")
    ask = one_message("user", "What is it?")
    for count in (1, 2):
        calls = [
            _call(one, as_json(given) if raw else given)
            for one, given in zip(ids[:count], ({"a": "é"}, {"n": [1, None]}), strict=False)
        ]
        results = [
            {"role": "tool", "content": f"r {one}", "tool_call_id": one} for one in ids[:count]
        ]
        called = [ask, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
        ends: tuple[list[Mapping[str, Any]], ...] = (
            [],
            [one_message("assistant", "Done.")],
            [one_message("assistant", "Done."), one_message("user", "Why?")],
        )
        for end in ends:
            for system in ([], [one_message("system", "Be kind.")]):
                for tools in ((), TOOLS):
                    yield TalkExample((*system, *called, *end), not end, tools)
    yield TalkExample((one_message("system", "Be kind."), ask), True, TOOLS[:1])
    yield TalkExample((ask,), True, TOOLS)


def accepts(format: ChatFormat, example: TalkExample) -> bool:
    try:
        settle_chat(format, example.messages, example.tools or None, "keep")
    except InputError:
        return False
    return True
