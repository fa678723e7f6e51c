"""What is wrong with a model's chat template, found out by rendering it, here and at a server.

Here: which format it writes, whether it keeps the system message, whether BOS comes twice, tools,
the prompt for an answer, and what llama.cpp's server makes of it. Not here: where templates come
from (`sources`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from textevolve.errors import InputError
from textevolve.llm.chat_formats.detection import CONVERSATIONS, FormatMatch, match_formats
from textevolve.llm.chat_formats.jinja_template import JinjaTemplate
from textevolve.llm.chat_formats.served_template import (
    QUESTION,
    SYSTEM,
    Ask,
    TemplateFinding,
    served_text,
)
from textevolve.llm.chat_formats.sources import ModelTemplate

ANSWER = "The sea that rises."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_tide",
        "description": "When the sea is high.",
        "parameters": {
            "type": "object",
            "properties": {"port": {"type": "string", "description": "The port."}},
            "required": ["port"],
        },
    },
}
_OPEN_MARKER = re.compile(r"<[^<>]*$")
_CALL = {"id": "call00001", "type": "function"}
_ARGUMENTS = {"port": "Brest"}
_RESULT = "At noon."


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """`formats`: the known formats that are like it, the most alike first."""

    origin: str
    formats: tuple[FormatMatch, ...]
    findings: tuple[TemplateFinding, ...]

    @property
    def format(self) -> str | None:
        """The known format that it writes, where there is one."""
        return next((match.name for match in self.formats if match.exact), None)


def check_chat_template(model: ModelTemplate) -> TemplateCheck:
    """Renders about twenty short conversations.

    Raises:
        InputError: the template cannot be rendered at all.
    """
    template = model.open()
    plain = template.render(_messages("user"), add_generation_prompt=True)
    matches = match_formats(template.render, model.bos_token)
    findings = (
        _check_format(matches),
        _check_system(template),
        _check_generation(template),
        _check_bos(model, plain),
        _check_order(template),
        _check_tools(template),
        *_check_date(model),
    )
    return TemplateCheck(model.origin, matches, findings)


def _messages(*roles: str) -> list[dict[str, Any]]:
    texts = {"system": SYSTEM, "user": QUESTION, "assistant": ANSWER}
    return [{"role": role, "content": texts[role]} for role in roles]


def _check_format(matches: tuple[FormatMatch, ...]) -> TemplateFinding:
    if not matches:
        return TemplateFinding("format", None, "none that is known")
    best = matches[0]
    but = " but for BOS" if best.but_bos else ""
    if best.same == best.of:
        return TemplateFinding("format", True, f"{best.name}{but}")
    alike = f"{best.same} of {best.of} conversations are the same{but}"
    return TemplateFinding("format", None, f"none that is known; like {best.name}: {alike}")


def _check_system(template: JinjaTemplate) -> TemplateFinding:
    try:
        text = template.render(_messages("system", "user"), add_generation_prompt=True)
    except InputError as error:
        return TemplateFinding("system message", False, f"refused: {error}")
    if SYSTEM not in text:
        return TemplateFinding("system message", False, "dropped: the model never sees it")
    default = template.render(_messages("user"), add_generation_prompt=True)
    added = text.replace(SYSTEM, "").strip() != default.strip() and len(default) > len(text)
    more = "; without one, a default of the template's own is written" if added else ""
    return TemplateFinding("system message", True, f"kept{more}")


def _check_generation(template: JinjaTemplate) -> TemplateFinding:
    messages = _messages("user")
    try:
        asked = template.render(messages, add_generation_prompt=True)
        plain = template.render(messages)
    except InputError as error:
        return TemplateFinding("generation prompt", False, str(error))
    if asked == plain:
        note = "the same with and without it: the template ends a question as it always does"
        return TemplateFinding("generation prompt", None, note)
    shared = _OPEN_MARKER.sub("", "".join(_shared_beginning(asked, plain)))
    prompt, ending = asked[len(shared) :], plain[len(shared) :]
    if prompt and QUESTION in shared:
        note = f"ends with {prompt!r}" + (f", and with {ending!r} without it" if ending else "")
        return TemplateFinding("generation prompt", True, note)
    note = "asking for an answer does not add to the text, but changes it"
    return TemplateFinding("generation prompt", False, note)


def _shared_beginning(one: str, other: str) -> Iterator[str]:
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            return
        yield mine


def _check_bos(model: ModelTemplate, text: str) -> TemplateFinding:
    bos = model.bos_token
    if not bos:
        return TemplateFinding("BOS", None, "the files name no BOS token")
    times = 0
    while text.startswith(bos):
        times, text = times + 1, text[len(bos) :]
    if times > 1:
        return TemplateFinding("BOS", False, f"the template itself writes {bos} {times} times")
    if times and model.adds_bos:
        note = (
            f"{bos} comes from the template and from the tokenizer: twice, where a rendered prompt"
            " is tokenized with special tokens; llama.cpp's chat endpoint leaves out one"
        )
        return TemplateFinding("BOS", False, note)
    if model.adds_bos is None:
        note = f"{'written' if times else 'not written'}; the tokenizer's part is not known"
        return TemplateFinding("BOS", None, note)
    if not times and not model.adds_bos:
        return TemplateFinding("BOS", True, f"{bos} is written by neither template nor tokenizer")
    return TemplateFinding("BOS", True, f"once, by the {'template' if times else 'tokenizer'}")


def _check_order(template: JinjaTemplate) -> TemplateFinding:
    try:
        template.render(_messages("user", "user"), add_generation_prompt=True)
    except InputError:
        return TemplateFinding("order", None, "user and assistant must take turns")
    return TemplateFinding("order", True, "any: also two messages of the user in a row")


def _check_date(model: ModelTemplate) -> Iterator[TemplateFinding]:
    if any("strftime_now" in source for source in model.templates.values()):
        note = "asked for: prompts may change from day to day, unless TEXTEVOLVE_TODAY is set"
        yield TemplateFinding("date", None, note)


def _check_tools(template: JinjaTemplate) -> TemplateFinding:
    """Whether tools are declared, a call is written and its result is."""
    name = TOOL["function"]["name"]

    def shown(messages: list[dict[str, Any]], wanted: str, tools: bool) -> bool:
        try:
            return wanted in template.render(messages, tools=[TOOL] if tools else None)
        except InputError:
            return False

    call = {"role": "assistant", "content": "", "tool_calls": [_call(name)]}
    answer = {"role": "tool", "content": _RESULT, "tool_call_id": _CALL["id"], "name": name}
    parts = {
        "declarations": shown(_messages("user"), name, tools=True),
        "calls": shown([*_messages("user"), call], _ARGUMENTS["port"], tools=True),
        "results": shown([*_messages("user"), call, answer], _RESULT, tools=True),
    }
    there = [part for part, found in parts.items() if found]
    if len(there) == len(parts):
        return TemplateFinding("tools", True, "declarations, calls and results are written")
    missing = ", ".join(part for part in parts if part not in there)
    return TemplateFinding("tools", None, f"not written: {missing}" if there else "not supported")


def _call(name: str) -> dict[str, Any]:
    return {**_CALL, "function": {"name": name, "arguments": _ARGUMENTS}}


async def compare_with_server(model: ModelTemplate, ask: Ask) -> TemplateFinding:
    """Whether llama.cpp's server renders this template as it is rendered here. `ask` reaches the
    server; one that is not llama.cpp's, or has another template, is a finding without a verdict."""
    question = "llama.cpp"
    properties = await ask("/props", None)
    served = served_text(properties, "chat_template")
    if served is None:
        return TemplateFinding(question, None, "the server does not show its template")
    if served.rstrip("\n") != model.templates.get("default", "").rstrip("\n"):
        return TemplateFinding(question, None, "the server has another template")
    template = JinjaTemplate(served, served_text(properties, "bos_token") or "", model.eos_token)
    differing: list[str] = []
    for messages, asked in CONVERSATIONS:
        if not asked:
            continue  # the server always asks for an answer
        theirs = served_text(await ask("/apply-template", {"messages": messages}), "prompt")
        try:
            ours = template.render(messages, add_generation_prompt=True)
        except InputError:
            ours = None
        # llama.cpp leaves out a BOS that its tokenizer adds.
        if theirs != ours and theirs != (ours or "").removeprefix(template.bos_token or ""):
            differing.append("+".join(message["role"] for message in messages))
    if differing:
        note = f"renders {len(differing)} conversations otherwise: {', '.join(differing)}"
        return TemplateFinding(question, False, note)
    return TemplateFinding(question, True, "renders every conversation as Jinja does")
