"""The check of a model's chat template, made by rendering it.

Which format it writes, whether it keeps the system message, whether BOS comes twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from textevolve.errors import InputError
from textevolve.llm.chat_formats.detection import (
    FormatMatch,
    match_formats,
    talk,
)
from textevolve.llm.chat_formats.sources import JinjaTemplate, ModelTemplate

SYSTEM, QUESTION = "Answer in verse.", "What is a tide?"


@dataclass(frozen=True, slots=True)
class TemplateFinding:
    """`good` is None where it could not be found out, or is neither good nor bad."""

    question: str
    good: bool | None
    note: str


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
    plain = template.render(talk(QUESTION), add_generation_prompt=True)
    matches = match_formats(template.render, model.bos_token)
    findings = (
        _check_format(matches),
        _check_system(template, plain),
        _check_bos(model, plain),
    )
    return TemplateCheck(model.origin, matches, findings)


def _check_format(matches: tuple[FormatMatch, ...]) -> TemplateFinding:
    if not matches:
        return TemplateFinding("format", None, "none that is known")
    best = matches[0]
    but = " but for BOS" if best.but_bos else ""
    if best.same == best.of:
        return TemplateFinding("format", True, f"{best.name}{but}")
    alike = f"{best.same} of {best.of} conversations are the same{but}"
    return TemplateFinding("format", None, f"none that is known; like {best.name}: {alike}")


def _check_system(template: JinjaTemplate, plain: str) -> TemplateFinding:
    try:
        text = template.render(talk(QUESTION, system=SYSTEM), add_generation_prompt=True)
    except InputError as error:
        return TemplateFinding("system message", False, f"refused: {error}")
    if SYSTEM not in text:
        return TemplateFinding("system message", False, "dropped: the model never sees it")
    added = text.replace(SYSTEM, "").strip() != plain.strip() and len(plain) > len(text)
    more = "; without one, a default of the template's own is written" if added else ""
    return TemplateFinding("system message", True, f"kept{more}")


def _check_bos(model: ModelTemplate, text: str) -> TemplateFinding:
    bos = model.bos_token
    if not bos:
        return TemplateFinding("BOS", None, "the files name no BOS token")
    times = 0
    while text.startswith(bos):
        times, text = times + 1, text[len(bos) :]
    good: bool | None = True
    if times > 1:
        good, note = False, f"the template itself writes {bos} {times} times"
    elif times and model.adds_bos:
        good = False
        note = (
            f"{bos} comes from the template and from the tokenizer: twice, where a rendered prompt"
            " is tokenized with special tokens; llama.cpp's chat endpoint leaves out one"
        )
    elif model.adds_bos is None:
        good = None
        note = f"{'written' if times else 'not written'}; the tokenizer's part is not known"
    elif times or model.adds_bos:
        note = f"once, by the {'template' if times else 'tokenizer'}"
    else:
        note = f"{bos} is written by neither template nor tokenizer"
    return TemplateFinding("BOS", good, note)
