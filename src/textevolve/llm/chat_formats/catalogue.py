"""The known chat formats by name, as the published template of each model family writes them.

This module has only the descriptions; `chat_format` uses them. docs/models.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from textevolve.errors import InputError, NotFoundError
from textevolve.llm.chat_formats.chat_format import (
    ChatFormat,
    SystemTurn,
    Thoughts,
    Trim,
    TurnMarkers,
    parse_chat,
    render_chat,
)
from textevolve.llm.chat_formats.sources import JinjaTemplate
from textevolve.spec import suggest

_MISTRAL = ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]")
_MISTRAL_MARKERS = (*_MISTRAL, "[/TOOL_RESULTS]")
_QWEN_TOOLS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_QWEN: Mapping[str, Any] = {
    "stop": ("<|im_end|>", "<|endoftext|>"),
    "more_markers": ("<|endoftext|>", *_QWEN_TOOLS),
}
_DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
_DEEPSEEK_MARKERS = tuple(
    f"<｜tool▁{part}｜>"
    for part in (
        "calls▁begin",
        "calls▁end",
        "call▁begin",
        "call▁end",
        "sep",
        "outputs▁begin",
        "outputs▁end",
        "output▁begin",
        "output▁end",
    )
)
"""The control tokens of DeepSeek's formats for tool calls, with which a text could forge a call or
its result."""
_LLAMA_3: Mapping[str, Any] = {
    "opening": "<|start_header_id|>{}<|end_header_id|>\n\n",
    "closing": "<|eot_id|>",
    "trim": "both",
    "bos": "<|begin_of_text|>",
    "writes_bos": True,
    "more_markers": ("<|eom_id|>", "<|python_tag|>"),
}
_GEMMA: Mapping[str, Any] = {
    "opening": "<start_of_turn>{}\n",
    "closing": "<end_of_turn>\n",
    "roles": ("", "user", "model"),
    "trim": "both",
    "bos": "<bos>",
    "writes_bos": True,
    "eos": "<eos>",
    "alternate": True,
}


def _turn(before: str, after: str, trim: Trim = "none") -> TurnMarkers:
    return TurnMarkers(before=before, after=after, trim=trim)


def _marked(
    name: str,
    title: str,
    opening: str = "<|im_start|>{}\n",
    closing: str = "<|im_end|>\n",
    roles: tuple[str, str, str] = ("system", "user", "assistant"),
    trim: Trim = "none",
    system_options: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> ChatFormat:
    """Return a format whose messages all begin with `opening`, which has the name of the role, and
    end with `closing`; by default those of ChatML. `system_options`: other fields of the system
    message. `more`: other fields of the format."""
    system, user, assistant = map(opening.format, roles)
    marks: dict[str, Any] = {"before": system, "after": closing, "trim": trim, "later": True}
    eos = closing.strip()
    fields: dict[str, Any] = {
        "system": SystemTurn(**{**marks, **system_options}),
        "user": _turn(user, closing, trim),
        "assistant": _turn(assistant, closing, trim),
        "generation": assistant,
        "eos": eos,
        "stop": (eos,),
    }

    return ChatFormat(name=name, title=title, **(fields | more))


def _mistral(name: str, title: str, space: str, **more: Any) -> ChatFormat:
    fields: dict[str, Any] = {
        "bos": "<s>",
        "writes_bos": True,
        "eos": "</s>",
        "system": SystemTurn(before="", after="\n\n", placement="last-user"),
        "user": _turn(f"[INST]{space}", "[/INST]"),
        "assistant": _turn(space, "</s>"),
        "alternate": True,
        "stop": ("</s>",),
        "more_markers": _MISTRAL_MARKERS,
    }

    return ChatFormat(name=name, title=title, **(fields | more))


def _worded(
    name: str,
    title: str,
    user: TurnMarkers,
    assistant: str,
    system: SystemTurn,
    ends: tuple[str, str] = ("<s>", "</s>"),
    **more: Any,
) -> ChatFormat:
    """Return a format in which a word names the speaker, and the system message comes first without
    a mark. `ends`: the tokens that begin a prompt and end an answer."""
    bos, eos = ends
    fields: dict[str, Any] = {"generation": assistant.strip(), "stop": (eos,)} | more
    turns: dict[str, Any] = {"user": user, "assistant": _turn(assistant, eos), "system": system}
    return ChatFormat(name=name, title=title, bos=bos, writes_bos=True, eos=eos, **turns, **fields)


def _prefix(after: str, default: str | None = None) -> SystemTurn:
    return SystemTurn(before="", after=after, placement="prefix", default=default)


_TABLE: tuple[ChatFormat, ...] = (
    _marked("chatml", "ChatML: OpenHermes, Yi, many fine-tuned models"),
    ChatFormat(
        name="llama-2",
        title="Llama 2 Chat",
        bos="<s>",
        eos="</s>",
        system=SystemTurn(
            before="<<SYS>>\n",
            after="\n<</SYS>>\n\n",
            placement="first-user",
            joined_trim="whole",
        ),
        user=_turn("<s>[INST] ", " [/INST]", "both"),
        assistant=_turn(" ", " </s>", "both"),
        alternate=True,
        stop=("</s>",),
    ),
    _marked("llama-3", "Llama 3 Instruct", stop=("<|eot_id|>", "<|end_of_text|>"), **_LLAMA_3),
    _marked(
        "llama-3.1",
        "Llama 3.1, 3.2 and 3.3 Instruct",
        system_options={
            "preamble": "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
            "default": "",
        },
        stop=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
        **_LLAMA_3,
    ),
    _mistral(
        "mistral-v1",
        "Mistral 7B Instruct v0.1 and v0.2, Mixtral",
        " ",
        system=SystemTurn(before="", after="\n\n", placement="first-user"),
        user=_turn(" [INST] ", " [/INST]"),
        more_markers=(),
    ),
    _mistral(
        "mistral-v3",
        "Mistral 7B Instruct v0.3, Mistral Large 2407, Mixtral 8x22B",
        " ",
        assistant=_turn(" ", "</s>", "both"),
    ),
    _mistral("mistral-v3-tekken", "Mistral NeMo 2407, Pixtral 2409", ""),
    _mistral(
        "mistral-v7",
        "Mistral Large 2411",
        " ",
        system=SystemTurn(before="[SYSTEM_PROMPT] ", after="[/SYSTEM_PROMPT]", later=True),
        alternate=False,
        more_markers=(),
    ),
    _mistral(
        "mistral-v7-tekken",
        "Mistral Small 2501 and 2503",
        "",
        system=SystemTurn(before="[SYSTEM_PROMPT]", after="[/SYSTEM_PROMPT]", later=True),
        alternate=False,
        more_markers=(),
    ),
    _marked("gemma", "Gemma and Gemma 2", system=None, **_GEMMA),
    _marked(
        "gemma-3",
        "Gemma 3",
        system=SystemTurn(before="", after="\n\n", placement="first-user"),
        more_markers=("<start_of_image>", "<end_of_image>"),
        **_GEMMA,
    ),
    _marked(
        "phi-3",
        "Phi-3 and Phi-3.5",
        "<|{}|>\n",
        "<|end|>\n",
        system_options={"written_empty": False},
        bos="<s>",
        eos="<|endoftext|>",
        ending="<|endoftext|>",
        stop=("<|end|>", "<|endoftext|>"),
    ),
    _marked("phi-4", "Phi-4", "<|im_start|>{}<|im_sep|>", "<|im_end|>", bos="<|endoftext|>"),
    _marked(
        "qwen-2.5",
        "Qwen 2.5, Qwen 2.5 Coder",
        system_options={
            "default": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        },
        **_QWEN,
    ),
    _marked("qwen-3", "Qwen 3", thoughts=Thoughts(strip="\n", wrap=True), **_QWEN),
    _worded(
        "deepseek-v2",
        "DeepSeek V2 Chat, V2.5",
        _turn("User: ", "\n\n"),
        "Assistant: ",
        _prefix("\n\n"),
        _DEEPSEEK,
    ),
    _worded(
        "deepseek-v3",
        "DeepSeek V3 and R1",
        _turn("<｜User｜>", ""),
        "<｜Assistant｜>",
        _prefix(""),
        _DEEPSEEK,
        thoughts=Thoughts(),
        more_markers=_DEEPSEEK_MARKERS,
    ),
    _marked(
        "command-r",
        "Command R and R+",
        "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        ("SYSTEM", "USER", "CHATBOT"),
        "both",
        {"trim": "none", "later": False},
        bos="<BOS_TOKEN>",
        writes_bos=True,
        alternate=True,
    ),
    _worded(
        "alpaca",
        "Alpaca",
        _turn("### Instruction:\n", ""),
        "### Response:\n",
        _prefix(""),
        separator="\n\n",
        generation="\n\n### Response:\n",
        stop=("</s>", "### Instruction:"),
        more_markers=("### Input:",),
    ),
    _worded(
        "vicuna",
        "Vicuna 1.1 and 1.5",
        _turn("USER: ", " "),
        "ASSISTANT: ",
        _prefix(
            " ",
            "A chat between a curious user and an artificial intelligence assistant. The assistant"
            " gives helpful, detailed, and polite answers to the user's questions.",
        ),
        stop=("</s>", "USER:"),
    ),
    _marked(
        "zephyr",
        "Zephyr, TinyLlama Chat, StableLM Zephyr",
        "<|{}|>\n",
        "</s>\n",
        bos="<s>",
    ),
)

CHAT_FORMATS: Mapping[str, ChatFormat] = MappingProxyType({f.name: f for f in _TABLE})


def chat_format(name: str) -> ChatFormat:
    """Return a format by name.

    Raises:
        NotFoundError: no format has this name; the message suggests the nearest name.
    """
    match = CHAT_FORMATS.get(name)
    if match is None:
        raise NotFoundError(f"no chat format '{name}'{suggest(name, list(CHAT_FORMATS))}")

    return match


# Find out which known format a chat template writes, or a rendered prompt is in, by comparing
# rendered texts and not by names.

Render = Callable[..., str]
"""A function that renders `(messages, tools=None, add_generation_prompt=False)`, or raises an error
if the template refuses the conversation."""


def talk(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    """Return a conversation in which user and assistant take turns, after an optional system
    message."""
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
"""Test conversations that known formats render differently, each with whether an answer is asked
for."""


@dataclass(frozen=True, slots=True)
class FormatMatch:
    """The similarity of a known format to a template. `same`: the number of test conversations that
    both render alike, apart from the BOS token; `of`: the number of all test conversations."""

    name: str
    same: int
    of: int


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """The result of testing a chat template.

    Attributes:
        formats: The known formats that are similar, the best match first.
        system: The reason why the model never sees a system message; empty if it sees them.
    """

    formats: tuple[FormatMatch, ...]
    system: str

    @property
    def format(self) -> str | None:
        """Return the known format that matches in all test conversations; None if there is none."""
        return next((match.name for match in self.formats if match.same == match.of), None)


def check_chat_template(template: JinjaTemplate) -> TemplateCheck:
    """Render a few short conversations by a template, and return the known formats that it matches
    and whether it writes the system message.

    Raises:
        InputError: the template cannot be rendered at all.
    """
    template.render(talk(_TIDES[0]), add_generation_prompt=True)

    try:
        text = template.render(talk(_TIDES[0], system=_BRIEF), add_generation_prompt=True)
        system = "" if _BRIEF in text else "dropped: the model never sees it"
    except InputError as error:
        system = f"refused: {error}"

    return TemplateCheck(match_formats(template.render, template.bos_token), system)


def match_formats(render: Render, bos_token: str | None) -> tuple[FormatMatch, ...]:
    """Return the known formats that render at least one test conversation like the template, the
    best match first."""
    texts = [_render(render, talk, asks, bos_token) for talk, asks in CONVERSATIONS]
    matches: list[FormatMatch] = []

    for name, format in CHAT_FORMATS.items():
        write = partial(render_chat, format, on_marker="keep")
        rendered = (_render(write, talk, asks, format.bos) for talk, asks in CONVERSATIONS)
        same = [text for text, other in zip(texts, rendered, strict=True) if text == other]
        # Two refusals alone are not a match.
        if any(text is not None for text in same):
            matches.append(FormatMatch(name, len(same), len(texts)))

    return tuple(sorted(matches, key=lambda match: -match.same))


def detect_prompt(text: str) -> tuple[str, ...]:
    """Return the known formats that can parse a rendered prompt. Formats that reproduce it exactly
    are preferred; if there is none, all that can parse it are returned. Formats with the fewest
    characters left in the texts of messages come first."""
    readings: list[tuple[bool, int, str]] = []

    for name, format in CHAT_FORMATS.items():
        try:
            parsed = parse_chat(format, text)
        except InputError:
            continue
        # A text without any marker could be the system prompt of a format that marks none.
        if any(message["role"] == "user" for message in parsed.messages):
            write = partial(render_chat, format, on_marker="keep")
            again = _render(write, parsed.messages, parsed.add_generation_prompt, format.bos)
            differs = again != text.removeprefix(format.bos)
            length = sum(len(message["content"]) for message in parsed.messages)
            readings.append((differs, length, name))

    readings.sort()

    return tuple(name for differs, _, name in readings if differs == readings[0][0])


def _render(
    render: Render, messages: Sequence[Mapping[str, Any]], asks: bool, bos: str | None
) -> str | None:
    """Render a conversation without the BOS token; None if the template or format refuses it."""
    try:
        text = render(list(map(dict, messages)), add_generation_prompt=asks)
    except InputError:
        return None

    return text.removeprefix(bos or "")
