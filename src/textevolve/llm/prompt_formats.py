"""The format in which a conversation becomes the one text that `/v1/completions` continues.

By name from the catalogue of `chat_formats`, or by a Jinja template in a file. No text of a message
can hold a marker of the format, by which it could pass for another speaker: each is broken up by an
invisible character, and counted.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from textevolve.errors import InputError, NotFoundError, SettingsError
from textevolve.llm.chat_formats.catalogue import CHAT_FORMATS, chat_format
from textevolve.llm.chat_formats.chat_format import ChatFormat, render_chat
from textevolve.llm.chat_formats.conversation import break_up
from textevolve.llm.chat_formats.jinja_template import JinjaTemplate
from textevolve.llm.completions_wire import Messages, PromptFormat

JINJA = (".jinja", ".jinja2", ".j2")
_SIGNS = re.compile(
    r"<\|[^|\s<>]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<</?\w{1,40}>>|</?[A-Za-z_]\w{0,40}>|\[/?[A-Z_]{2,40}\]"
)
_QUESTION, _ANSWER = "question-7f3a", "answer-51c0"


def open_prompt_format(named: str) -> PromptFormat:
    """The format of a name, or of a file with a Jinja template.

    Raises:
        SettingsError: there is no such format or file, or the template cannot be used.
    """
    try:
        if named.endswith(JINJA) or "/" in named:
            return _jinja_format(Path(named))
        return _named_format(chat_format(named))
    except OSError as error:
        raise SettingsError(f"chat_format: {named} cannot be read: {error.strerror}") from error
    except (InputError, NotFoundError, UnicodeDecodeError) as error:
        names = ", ".join(CHAT_FORMATS)
        raise SettingsError(
            f"chat_format: {error}; it is one of {names}, or a .jinja file"
        ) from error


def _named_format(known: ChatFormat) -> PromptFormat:
    def render(messages: Messages) -> str:
        return render_chat(known, messages, add_generation_prompt=True).removeprefix(known.bos)

    return PromptFormat(known.name, render, known.stop, known.markers)


def _jinja_format(path: Path) -> PromptFormat:
    """What a template writes around the messages of a trial are its markers."""
    source = path.read_text(encoding="utf-8")
    template = JinjaTemplate(source)
    trial = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
    trial.append(trial[0])
    before, between, after, end = re.split(
        f"{_QUESTION}|{_ANSWER}", template.render(trial, add_generation_prompt=True)
    )
    signs = dict.fromkeys(_SIGNS.findall(source))
    words = {text.strip(): None for text in (before, between, after, end) if text.strip()}
    plain = {text: None for text in words if not _SIGNS.search(text)}
    markers = (*signs, *plain)
    closing = _SIGNS.match(after.lstrip())
    stop = (closing[0],) if closing else tuple(plain)[:4]
    return PromptFormat(path.name, partial(_render_jinja, template, markers), stop, markers)


def _render_jinja(template: JinjaTemplate, markers: tuple[str, ...], messages: Messages) -> str:
    broken = [
        {**message, "content": break_up(str(message.get("content") or ""), markers)}
        for message in messages
    ]
    return template.render(broken, add_generation_prompt=True)
